import assert from 'node:assert/strict';
import test from 'node:test';
import { createLogger } from './logger.ts';

test('no secret and no customer name reaches the log, however deeply nested or in whatever case [PL15]', () => {
  let written = '';
  const log = createLogger({
    name: 'test',
    level: 'debug',
    privateKeys: ['X-Biller-Key'],
    destination: { write: (line: string) => void (written += line) },
  });
  const hidden = { Authorization: 'canary', 'x-biller-key': 'canary', email: 'canary' };
  log.info({ headers: hidden, list: [{ access_token: 'canary' }] }, 'one');
  log.info({ a: { b: { c: { customer: { first_name: 'canary' } } } }, token: 'canary' }, 'two');
  log.warn(
    { url: 'postgres://user:canary@host/db', at: new URL('https://u:canary@h/canary') },
    'three',
  );
  log.error({ error: new Error('no way to postgres://user:canary@host/db') }, 'four');
  log.error({ err: new Error('no way to postgres://user:canary@host/db') }, 'five');
  log.error(new Error('no way to postgres://user:canary@host/db'));
  log.info('to postgres://user:canary@host/db');
  log.child({ token: 'canary' }).info({}, 'six');
  const database = Object.assign(new Error('invalid input: "canary"'), {
    severity: 'ERROR',
    code: '22P02',
    detail: 'canary',
  });
  log.error({ error: database, cause: new Error('x', { cause: database }) }, 'seven');
  assert.doesNotMatch(written, /canary/);
  assert.match(written, /22P02/);
  const lines = written.trim().split('\n');
  assert.equal(lines.length, 9);
  for (const line of lines) assert.doesNotThrow(() => JSON.parse(line) as unknown);
});

test('a line break in a value cannot forge a log line', () => {
  let written = '';
  const destination = { write: (line: string) => void (written += line) };
  createLogger({ name: 'test', destination }).info({ id: 'a\n{"level":"error"}' }, 'b\nc');
  assert.equal(written.trim().split('\n').length, 1);
});
