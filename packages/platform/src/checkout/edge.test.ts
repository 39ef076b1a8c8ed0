/** What comes from outside: return addresses, secrets that nobody issued, addresses in other Unicode forms. */
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import { systemClock } from '@duebridge/runtime';
import type { Partner } from '../partners/registry.ts';
import type { Services } from '../services.ts';
import type { Session } from './flow.ts';
import { emailDigest, emailDigests, flowId, newSecret } from './secrets.ts';
import { openSessions } from './session.ts';
import { openVisits } from './visit.ts';

const partner = { partner_id: 'p', origins: ['https://site.example'] } as unknown as Partner;

test('a customer is sent back to pages of the web only', async () => {
  const services = {
    database: { transaction: (work: (tx: unknown) => unknown) => Promise.resolve(work({})) },
    registry: { get: () => Promise.resolve(partner) },
    clock: systemClock,
  } as unknown as Services;
  const visits = openVisits(services, randomBytes(32).toString('base64'));
  const session = { partner_id: 'p', flow_id: null, token_hash: randomBytes(32) } as Session;
  const leave = (return_url: string) => visits.leave(session, { return_url });
  assert.match((await leave('https://site.example/done')).location, /duebridge_result=/);
  for (const address of [
    'blob:https://site.example/2f6c5a0e-0000-4000-8000-000000000000',
    'filesystem:https://site.example/temporary/x.html',
    'javascript:alert(1)//https://site.example',
    'data:text/html,https://site.example',
    'wss://site.example/',
  ]) {
    await assert.rejects(leave(address), Refusal, address);
  }
});

test('two thousand secrets that nobody issued take a handful of statements, one at a time', async () => {
  let [statements, open, most] = [0, 0, 0];
  const database = {
    async query() {
      statements += 1;
      open += 1;
      most = Math.max(most, open);
      await new Promise(setImmediate);
      open -= 1;
      return [];
    },
  };
  // Nothing else is asked.
  const sessions = openSessions({ database, clock: systemClock } as unknown as Services);
  const guesses = Array.from({ length: 2_000 }, () => newSecret('dbs_'));
  const refused = await Promise.allSettled(guesses.map((guess) => sessions.authenticate(guess)));
  assert.ok(refused.every(({ status }) => status === 'rejected'));
  assert.ok(statements <= 10 && most === 1, `${statements} statements, ${most} at once`);
  statements = 0;
  for (const text of [undefined, '', 'x', 'dbs_', newSecret('dbt_'), `dbs_${'ä'.repeat(43)}`]) {
    await assert.rejects(sessions.authenticate(text), Refusal);
  }
  assert.equal(statements, 0);
});

test('a person is found in whichever Unicode form the address is typed, and was typed before', () => {
  const pepper = createSecretKey(randomBytes(32));
  const [composed, apart] = ['Ren\u00e9@x.example', 'Rene\u0301@x.example'];
  assert.deepEqual(emailDigest(pepper, composed), emailDigest(pepper, apart));
  const of = { partner_id: 'p', biller_id: 'b', account_id: 'a' };
  assert.deepEqual(
    flowId(pepper, { ...of, email: composed }),
    flowId(pepper, { ...of, email: ` ${apart} ` }),
  );
  const texts = (email: string): string[] =>
    emailDigests(pepper, email).map((digest) => digest.toString('hex'));
  assert.deepEqual(new Set(texts(composed)), new Set(texts(apart)));
  assert.equal(texts(apart).length, 2, 'those of both forms');
  assert.equal(texts('jo@x.example').length, 1);
});
