import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import test from 'node:test';
import { exitCodes, DatabaseDown } from './errors.ts';
import { silentLog } from './log.ts';
import { openServerDatabase } from './server-database.ts';
import { freePort, testDatabase } from '../test/testing.ts';

const migrations = {
  schema: 'test_ground',
  directory: new URL('./fixtures/migrations/', import.meta.url),
};

test('a start waits for a database that is down, says so, and ends with a code that units restart on', async (t) => {
  const direct = await testDatabase(t, { migrations });
  const there = new URL(direct.url);
  const url = new URL(direct.url);
  url.port = String(await freePort());
  const options = {
    server: 'platform',
    migrations,
    databaseUrl: url.href,
    databaseConnections: 2,
    beside: true,
  } as const;
  await assert.rejects(openServerDatabase(options), (error) => {
    assert.ok(error instanceof DatabaseDown);
    assert.equal(error.exitCode, exitCodes.failed);
    assert.match(error.message, /does not answer \(.*ECONNREFUSED.*\): start it/);
    return true;
  });

  const comesUp = createServer((ours) => {
    const theirs = connect(Number(there.port), there.hostname);
    for (const socket of [ours, theirs]) socket.on('error', () => undefined);
    ours.pipe(theirs).pipe(ours);
  });
  const lines: unknown[] = [];
  const warn = (line: unknown): void => {
    lines.push(line);
    // It comes back after the second attempt.
    if (lines.length === 2) comesUp.listen(Number(url.port), there.hostname);
  };
  const log = { ...silentLog, warn };
  const opened = await openServerDatabase({ ...options, databaseWaitSeconds: 600, log });
  direct.closing(async () => {
    await opened.close();
    comesUp.close();
  });
  const attempts = lines.slice(0, 2).map((line) => (line as { attempt: number }).attempt);
  assert.deepEqual(attempts, [1, 2]);
});
