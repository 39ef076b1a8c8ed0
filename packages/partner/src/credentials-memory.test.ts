/**
 * What is valid between two reads of the credentials, and when one is read: the table is in memory, and time moves only with the test.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import type { KitCredential } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { openCredentials } from './credentials.ts';

const DAY = 86_400;
const digestOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');
const ENVIRONMENT = 'the key of the environment';

/** A row of the table. `endsAt`: seconds of the clock, absent for one without an end. */
interface Stored {
  readonly credential_id: string;
  readonly client_id: string;
  readonly secret: string;
  readonly endsAt?: number;
  readonly source?: 'environment';
  revoked_at?: string;
}

function rig(
  stored: Stored[] = [],
  options: { recheckMs?: number; configured?: ReadonlyMap<string, readonly string[]> } = {},
) {
  const clock = manualClock();
  const state = { reads: 0, isAway: false, slow: undefined as Promise<void> | undefined };
  const audit: unknown[] = [];
  const query = async (statement: string | { name: string }, values: readonly unknown[] = []) => {
    const name = typeof statement === 'string' ? statement : statement.name;
    if (state.isAway) throw new Error('no connection');
    if (name === 'kit_audit') audit.push(values.slice(0, 4).flat());
    if (name === 'kit_issue_credential') {
      const [credential_id, client_id, digest, days] = values as [string, string, string, number?];
      stored.push({
        credential_id,
        client_id,
        secret: digest,
        ...((days ?? null) === null ? {} : { endsAt: clock.monotonic() / 1_000 + days! * DAY }),
      });
      return [{ expires_at: days === null ? null : `in ${days} days` }];
    }
    if (name === 'kit_revoke_credential') {
      const [credential_id, client_id, secret] = values as [string, string, string];
      const found = stored.find((row) => row.credential_id === credential_id);
      if (found) found.revoked_at = 'now';
      else
        stored.push({
          credential_id,
          client_id,
          secret,
          source: 'environment',
          revoked_at: 'now',
        });
    }
    if (name !== 'kit_credentials') return [];
    state.reads += 1;
    const rows = stored.map(({ secret, endsAt, ...row }) => ({
      source: 'issued',
      issued_at: 'before',
      expires_at: endsAt === undefined ? null : 'some day',
      revoked_at: null,
      ...row,
      digest: /^[0-9a-f]{64}$/.test(secret) ? secret : digestOf(secret),
      seconds_left: endsAt === undefined ? null : endsAt - clock.monotonic() / 1_000,
    }));
    // A read shows the table as it was when the read began.
    await state.slow;
    return rows;
  };
  const database = {
    query,
    transaction: (work: (tx: unknown) => unknown) => Promise.resolve(work({ query })),
  } as unknown as Database;
  const credentials = openCredentials({
    configured: options.configured ?? new Map([['platform', [ENVIRONMENT]]]),
    database,
    clock,
    recheckMs: options.recheckMs ?? 4_000,
  });
  const isValid = async (secret: string, client = 'platform'): Promise<boolean> =>
    (await credentials.valid())
      .get(client)
      ?.some((one) => one.toString('hex') === digestOf(secret)) ?? false;
  return { clock, state, audit, credentials, isValid, stored };
}

const issued = (secret: string, more: Partial<Stored> = {}): Stored => ({
  credential_id: `id of ${secret}`,
  client_id: 'platform',
  secret,
  ...more,
});

test('the table is read again after the recheck time, once for all who ask, and answers come from memory before [OA1 KY1]', async () => {
  const { clock, state, credentials, isValid, stored } = rig();
  assert.deepEqual(await Promise.all([isValid(ENVIRONMENT), isValid(ENVIRONMENT)]), [true, true]);
  assert.equal(state.reads, 1, 'two who ask at once share a read');
  await clock.advance(3_999);
  stored.push(issued('new'));
  assert.ok(!(credentials.valid() instanceof Promise), 'a wait for each call');
  assert.equal(await isValid('new'), false);
  await clock.advance(1);
  assert.equal(await isValid('new'), true);
  assert.equal(state.reads, 2);
  await clock.advance(3_999);
  await isValid('new');
  assert.equal(state.reads, 2);
});

test('a read that took long counts from its begin, so that a revocation is seen in time [OA1 KY1]', async () => {
  const { clock, state, isValid, stored } = rig([issued('one')]);
  const slow = Promise.withResolvers<void>();
  state.slow = slow.promise;
  const first = isValid('one');
  await clock.advance(3_000);
  stored[0]!.revoked_at = 'now';
  slow.resolve();
  assert.equal(await first, true);
  await clock.advance(999);
  assert.equal(await isValid('one'), true);
  await clock.advance(1);
  assert.equal(await isValid('one'), false);
});

test('without its database a replica keeps the last state, asks again at the next call, and never starts from nothing [LV7 KY1]', async () => {
  const { clock, state, isValid, credentials } = rig([issued('one')]);
  state.isAway = true;
  await assert.rejects(isValid('one'), /no connection/);
  state.isAway = false;
  assert.equal(await isValid('one'), true, 'a failed read is tried again at once');
  state.isAway = true;
  await clock.advance(4_000);
  assert.equal(await isValid('one'), true);
  assert.ok(
    !(credentials.valid() instanceof Promise),
    'a database that is away is not asked for each call',
  );
  await clock.advance(4_000);
  state.isAway = false;
  const before = state.reads;
  await isValid('one');
  assert.equal(state.reads, before + 1);
});

test('a credential ends to the millisecond from the last read, each at its own time [KY1 OA1]', async () => {
  const { clock, isValid, state } = rig(
    [
      issued('soon', { endsAt: 110 }),
      issued('later', { endsAt: 120 }),
      issued('ended', { endsAt: 100 }),
    ],
    { recheckMs: Infinity },
  );
  await clock.advance(100_000);
  const valid = async (): Promise<boolean[]> =>
    Promise.all([ENVIRONMENT, 'soon', 'later', 'ended'].map((secret) => isValid(secret)));
  assert.deepEqual(await valid(), [true, true, true, false]);
  await clock.advance(9_999);
  assert.deepEqual(await valid(), [true, true, true, false]);
  await clock.advance(1);
  assert.deepEqual(await valid(), [true, false, true, false]);
  await clock.advance(9_999);
  assert.deepEqual(await valid(), [true, false, true, false]);
  await clock.advance(1);
  assert.deepEqual(await valid(), [true, false, false, false]);
  assert.equal(state.reads, 1);
});

test('each client has its own; one of the environment that was revoked here stays revoked, whatever the environment says [KY1 OA1]', async () => {
  const configured = new Map([
    ['one', ['first of one', 'second of one']],
    ['two', ['of two']],
  ]);
  const { credentials, isValid, stored } = rig([], { configured });
  const [first, second, third] = await credentials.list();
  assert.deepEqual([first?.client_id, second?.client_id, third?.client_id], ['one', 'one', 'two']);
  assert.equal(new Set([first, second, third].map((one) => one?.credential_id)).size, 3);
  assert.match(String(first?.credential_id), /^[0-9a-f]{16}$/);
  const { credential_id, ...rest } = first!;
  assert.deepEqual(rest, {
    client_id: 'one',
    source: 'environment',
    issued_at: null,
    expires_at: null,
    revoked_at: null,
  } satisfies Partial<KitCredential>);
  assert.equal(await isValid('first of one', 'two'), false);
  const revoked = await credentials.revoke(credential_id, 'operator', 'leaked');
  assert.deepEqual(revoked, { ...first, revoked_at: 'now' });
  assert.equal(await isValid('first of one', 'one'), false, 'valid until the next read');
  assert.equal(await isValid('second of one', 'one'), true);
  // Its row in the table is the same credential, not another one.
  assert.equal((await credentials.list()).length, 3);
  assert.equal(stored.length, 1);
  // Two clients with one secret have a credential each.
  const shared = rig([], {
    configured: new Map([
      ['a', ['same']],
      ['b', ['same']],
    ]),
  });
  assert.equal(new Set((await shared.credentials.list()).map((one) => one.credential_id)).size, 2);
});

test('the last valid credential of a client is not revoked; an expired or revoked one is, and a repeat changes nothing [KY1]', async () => {
  const { credentials, audit } = rig(
    [
      issued('one'),
      issued('two'),
      issued('ended', { endsAt: 0 }),
      issued('of another client', { client_id: 'other' }),
    ],
    { configured: new Map([['platform', []]]) },
  );
  const revoke = (secret: string): Promise<KitCredential> =>
    credentials.revoke(`id of ${secret}`, 'operator', 'test');
  assert.equal((await revoke('one')).revoked_at, 'now');
  assert.equal((await revoke('one')).revoked_at, 'now');
  await assert.rejects(revoke('two'), { code: 'CONFLICT', message: /last valid credential/ });
  assert.equal((await revoke('ended')).revoked_at, 'now');
  await assert.rejects(revoke('nobody'), { code: 'NOT_FOUND' });
  assert.equal(audit.length, 2, 'a repeat is no event');
  assert.deepEqual(audit[0], [
    null,
    'operator',
    'credential_revoked',
    JSON.stringify({ client_id: 'platform', credential_id: 'id of one', reason: 'test' }),
  ]);
});

test('a client may have five valid credentials, and an issued one is valid at once, here [KY1 OA1]', async () => {
  const { credentials, isValid, audit, stored } = rig([issued('ended', { endsAt: 0 })]);
  assert.equal(await isValid(ENVIRONMENT), true);
  const first = await credentials.issue('platform', 'operator', 'rotation', 3);
  assert.match(first.secret, /^dbs_[A-Za-z0-9_-]{43}$/);
  assert.deepEqual(first, {
    credential_id: first.credential_id,
    client_id: 'platform',
    secret: first.secret,
    expires_at: 'in 3 days',
  });
  assert.equal(await isValid(first.secret), true, 'valid from the next read only');
  const endless = await credentials.issue('platform', 'operator', 'rotation');
  assert.equal(endless.expires_at, null);
  for (const detail of [
    {
      client_id: 'platform',
      credential_id: first.credential_id,
      reason: 'rotation',
      valid_for_days: '3',
    },
    { client_id: 'platform', credential_id: endless.credential_id, reason: 'rotation' },
  ]) {
    assert.deepEqual(audit.shift(), [
      null,
      'operator',
      'credential_issued',
      JSON.stringify(detail),
    ]);
  }
  await credentials.issue('platform', 'operator', 'rotation');
  // One is valid until its last moment.
  stored.push(issued('brief', { endsAt: 0.5 }));
  await assert.rejects(credentials.issue('platform', 'operator', 'rotation'), {
    code: 'CONFLICT',
    message: 'The client has 5 valid credentials; revoke one first',
  });
  await assert.rejects(credentials.issue('nobody', 'operator', 'x'), { code: 'NOT_FOUND' });
});

test('operators are warned of a client whose last credential ends within fourteen days, until fourteen days after it [KY1]', async () => {
  const { credentials, clock, state } = rig(
    [
      issued('one', { endsAt: 15 * DAY + 10 }),
      issued('shorter', { endsAt: DAY + 10 }),
      issued('endless', { client_id: 'other' }),
      issued('also ends', { client_id: 'other', endsAt: DAY + 5 }),
      issued('revoked', { client_id: 'third', endsAt: DAY + 5, revoked_at: 'before' }),
    ],
    { configured: new Map([['platform', []]]), recheckMs: 1e12 },
  );
  await clock.advance(DAY * 1_000);
  assert.equal(credentials.ending(), 0, 'nothing is known yet');
  await clock.advance(0);
  assert.equal(state.reads, 1, 'read for the next time');
  assert.equal(credentials.ending(), 0);
  await clock.advance(10_000);
  assert.equal(credentials.ending(), 0, 'fourteen days to the second');
  await clock.advance(1);
  assert.equal(credentials.ending(), 1);
  await clock.advance(28 * DAY * 1_000 - 2);
  assert.equal(credentials.ending(), 1);
  await clock.advance(1);
  assert.equal(credentials.ending(), 0);
  assert.equal(state.reads, 1);
  // Read again where no request asks, and a database that is away warns of nothing else.
  const often = rig([issued('one', { endsAt: 10 })], { configured: new Map(), recheckMs: 1_000 });
  often.state.isAway = true;
  assert.equal(often.credentials.ending(), 0);
  await often.clock.advance(999);
  often.state.isAway = false;
  often.credentials.ending();
  await often.clock.advance(0);
  assert.equal(often.credentials.ending(), 1);
  await often.clock.advance(999);
  often.credentials.ending();
  assert.equal(often.state.reads, 1);
  await often.clock.advance(1);
  often.credentials.ending();
  assert.equal(often.state.reads, 2);
});
