/**
 * Payments whose accounts live in the biller's own system. The first tests are faults that did happen: an answer lost between the core,
 * this process and the database, a clock that steps, a process that was suspended; none may bring a payment into a second call, or
 * to a second posting that nobody asked about. The others are what a core may do: answer late, never, wrongly, or with "later". The
 * database is real; the core and the clocks do what the test says.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Clock, Database } from '@duebridge/runtime';
import { manualClock, type TestDatabase, until } from '@duebridge/runtime/testing';
import type { AccountsInOwnSystem, PostOutcome } from './account-system.ts';
import type { Applier } from './apply.ts';
import type { PaymentRow } from './store.ts';
import { accepted, applierOn, kitDatabase } from '../test/kit.ts';

const POSTED: PostOutcome = { outcome: 'posted' };

/** A replica whose core does what `on` says, and notes it. */
function replica(
  database: Database,
  clock: Clock,
  on: Partial<Pick<AccountsInOwnSystem, 'post' | 'lookup' | 'calls'>> = {},
): { applier: Applier; did: string[] } {
  const did: string[] = [];
  const { post = (payments) => Promise.resolve(payments.map(() => POSTED)), lookup } = on;
  const applier = applierOn(database, {
    accounts: {
      posts: 'in_own_system',
      findAccount: () => Promise.resolve(undefined),
      post(payments, signal) {
        did.push(...payments.map((payment) => `post ${payment.platform_payment_id}`));
        return post(payments, signal);
      },
      ...(on.calls && { calls: on.calls }),
      ...(lookup && {
        lookup(id, signal) {
          did.push(`lookup ${id}`);
          return lookup(id, signal);
        },
      }),
    },
    clock,
  });
  return { applier, did };
}

/** A call of the core that the test answers. */
interface Call {
  readonly ids: readonly string[];
  readonly signal: AbortSignal;
  /** Answers; each payment without an outcome is posted. */
  answer(...outcomes: PostOutcome[]): void;
  fail(): void;
}

/** A core whose calls are answered by the test. */
function heldCore(): { made: Call[]; of(id: string): Call; post: AccountsInOwnSystem['post'] } {
  const made: Call[] = [];
  return {
    made,
    of(id) {
      const call = made.findLast((one) => one.ids.includes(id));
      assert(call, `no call for ${id}`);
      return call;
    },
    post(payments, signal) {
      const answered = Promise.withResolvers<PostOutcome[]>();
      made.push({
        ids: payments.map((payment) => payment.platform_payment_id),
        signal,
        answer: (...outcomes) =>
          answered.resolve(payments.map((_, index) => outcomes[index] ?? POSTED)),
        fail: () => answered.reject(new Error('the connection was lost')),
      });
      return answered.promise;
    },
  };
}

/** Accepts payments, each to an account of its own. */
const apart = async (database: Database, ...ids: string[]): Promise<PaymentRow[]> => {
  const rows = ids.map((id) => accepted(database, [id], { account_id: `of ${id}` }));
  return (await Promise.all(rows)).flat();
};

const statusOf = async (database: Database, id: string): Promise<string | undefined> => {
  const [row] = await database.query<{ status: string }>(
    `SELECT status FROM duebridge_partner.payment WHERE platform_payment_id = $1`,
    [id],
  );
  return row?.status;
};

/** A payment that a replica claimed which is no more: nobody knows whether it was posted. */
async function leftBehind(database: TestDatabase, id: string): Promise<void> {
  await accepted(database, [id]);
  await database.query(
    `UPDATE duebridge_partner.payment_processing SET claimed_by = gen_random_uuid()`,
  );
}

/** The database, which refuses the next statement of this name. */
function refusingOnce(database: TestDatabase, name: string): TestDatabase {
  let isLeft = true;
  return {
    ...database,
    query<Row>(...[statement, values]: Parameters<Database['query']>): Promise<Row[]> {
      if (isLeft && typeof statement !== 'string' && statement.name === name) {
        isLeft = false;
        return Promise.reject(new Error('refused'));
      }
      return database.query<Row>(statement, values);
    },
  };
}

test('a payment taken over is not posted while its look-up has not answered, which has as long as a call [PF2 KT2]', async (t) => {
  const database = await kitDatabase(t);
  await leftBehind(database, 'p');
  const clock = manualClock();
  const answer = Promise.withResolvers<PostOutcome>();
  const { applier, did } = replica(database, clock, {
    lookup: () => (did.length < 3 ? Promise.reject(new Error('down')) : answer.promise),
    calls: { deadlineMs: 30_000 },
  });
  for (let round = 0; round < 2; round += 1) {
    await applier.sweep(0);
    await clock.advance(60_000);
  }
  const last = applier.sweep(0);
  await until('the last look-up', () => did.length === 3);
  await clock.advance(29_999);
  answer.resolve(POSTED);
  await last;
  assert.deepEqual(did, ['lookup p', 'lookup p', 'lookup p']);
  assert.equal(await statusOf(database, 'p'), 'succeeded');
  await applier.stop();
});

test('an outcome that was looked up and could not be stored is looked up again [PF2 KT2 KT6]', async (t) => {
  const database = refusingOnce(await kitDatabase(t), 'kit_end_payments');
  await accepted(database, ['p']);
  const clock = manualClock();
  const { applier, did } = replica(database, clock, {
    post: () => Promise.reject(new Error('the answer was lost')),
    lookup: () => Promise.resolve(POSTED),
  });
  for (let round = 0; round < 3; round += 1) {
    await applier.sweep(0);
    await clock.advance(60_000);
  }
  assert.deepEqual(did, ['post p', 'lookup p', 'lookup p']);
  assert.equal(await statusOf(database, 'p'), 'succeeded');
  await applier.stop();
});

// A step of the clock changes the distance to every time in the table.
for (const [title, shift] of [
  ['forward', "- interval '1 hour'"],
  ['back', "+ interval '1 hour'"],
] as const) {
  test(`a database clock that steps an hour ${title} brings no payment into two calls [KT2 LV1]`, async (t) => {
    const database = await kitDatabase(t);
    const clock = manualClock();
    const answer = Promise.withResolvers<PostOutcome[]>();
    const a = replica(database, clock, { post: () => answer.promise });
    const b = replica(database, clock);
    a.applier.take(await accepted(database, ['p']));
    await until('the call', () => a.did.length === 1);
    await database.query(`UPDATE duebridge_partner.replica SET lease_until = lease_until ${shift}`);
    await b.applier.sweep(0);
    await clock.advance(3_000);
    await b.applier.sweep(0);
    assert.deepEqual(b.did, []);
    answer.resolve([POSTED]);
    await until('the end', async () => (await statusOf(database, 'p')) === 'succeeded');
    await Promise.all([a.applier.stop(), b.applier.stop()]);
  });
}

test('a process that was suspended does not call for a payment that another replica has taken over [KT2 LV1]', async (t) => {
  const database = await kitDatabase(t);
  await leftBehind(database, 'p');
  // The machine sleeps: timers and the monotonic clock stand still, the wall clock does not.
  const [asleep, awake] = [manualClock(), manualClock()];
  const answer = Promise.withResolvers<undefined>();
  const a = replica(database, asleep, { lookup: () => answer.promise });
  const b = replica(database, awake, { lookup: () => Promise.resolve(undefined) });
  const sweeping = a.applier.sweep(0);
  await until('the look-up', () => a.did.length === 1);
  b.applier.start();
  await until('the take-over', async () => {
    await awake.advance(500);
    return b.did.length === 2;
  });
  asleep.stepWallClock(30_000);
  answer.resolve(undefined);
  await sweeping;
  await b.applier.stop();
  await a.applier.stop();
  assert.deepEqual([a.did, b.did], [['lookup p'], ['lookup p', 'post p']]);
  assert.equal(await statusOf(database, 'p'), 'succeeded');
});

test('a call beyond its deadline holds its payment until it returns, and its answer counts [KT2 KT6 LV3]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const core = heldCore();
  const { applier } = replica(database, clock, { post: core.post, calls: { concurrency: 1 } });
  applier.take(await apart(database, 'late', 'next'));
  await until('the call', () => core.made.length === 1);
  await clock.advance(10_000);
  await until('the next call, in its place', () => core.made.length === 2);
  core.of('next').answer();
  await clock.advance(600);
  await applier.sweep(0);
  assert.equal(core.of('late').signal.aborted, false);
  await clock.advance(49_400);
  assert.equal(core.of('late').signal.aborted, true, 'given up after six times the deadline');
  core.of('late').answer({ outcome: 'failed', reason: 'No such account.' });
  await until('the late answer', async () => (await statusOf(database, 'late')) === 'failed');
  assert.equal(core.made.length, 2);
  await applier.stop();
});

test('a cancel at any replica succeeds between two calls, never in one or while the outcome is unknown [ST4 KT5]', async (t) => {
  const database = await kitDatabase(t);
  const core = heldCore();
  const { applier } = replica(database, manualClock(), { post: core.post });
  const other = replica(database, manualClock()).applier;
  const cancel = async (id: string): Promise<string> =>
    (
      await other.end(
        { platform_payment_id: id, status: 'canceled', failure_reason: null },
        { actor: 'ann', event: 'canceled', reason: 'asked' },
      )
    ).outcome;
  applier.take(await apart(database, 'rests', 'fixed', 'lost', 'open'));
  await until('the calls', () => core.made.length === 4);
  assert.equal(await cancel('rests'), 'is_claimed');
  core.of('rests').answer({ outcome: 'later' });
  core.of('fixed').answer({ outcome: 'later', cancelable: false });
  core.of('lost').fail();
  await until('its claim given back', async () => (await cancel('rests')) !== 'is_claimed');
  for (const [id, outcome] of Object.entries({
    rests: 'was_ended',
    fixed: 'is_claimed',
    lost: 'is_claimed',
    open: 'is_claimed',
  })) {
    assert.equal(await cancel(id), outcome, id);
  }
  core.of('open').answer();
  await applier.stop();
});

test('a stop waits for open calls, then aborts them, and gives up its claims only when every outcome is known [KT13 LV5]', async (t) => {
  const database = await kitDatabase(t);
  const clock = manualClock();
  const core = heldCore();
  const { applier } = replica(database, clock, { post: core.post, calls: { concurrency: 1 } });
  applier.take(await apart(database, 'p0', 'p1'));
  await until('the call', () => core.made.length === 1);
  let isStopped = false;
  const stopping = applier.stop().then(() => (isStopped = true));
  await clock.advance(3_999);
  assert.equal(core.made[0]?.signal.aborted, false);
  await clock.advance(1);
  assert.equal(core.made[0]?.signal.aborted, true);
  await until('the stop', async () => {
    await clock.advance(500);
    return isStopped;
  });
  await stopping;
  const leases = (): Promise<object[]> => database.query('SELECT FROM duebridge_partner.replica');
  assert.equal((await leases()).length, 1, 'the call may still post');
  assert.equal(core.made.length, 1, 'what waited was given back');
  core.made[0]?.answer();
  await until('its end', async () => (await statusOf(database, 'p0')) === 'succeeded');

  const calm = replica(database, manualClock());
  await calm.applier.sweep(0);
  await calm.applier.stop();
  assert.equal((await leases()).length, 1, 'its own lease is gone');
});

test('an answer that contradicts what settle recorded changes nothing and is kept in the audit [RU2]', async (t) => {
  const database = await kitDatabase(t);
  const core = heldCore();
  const { applier } = replica(database, manualClock(), { post: core.post });
  applier.take(await accepted(database, ['p']));
  await until('the call', () => core.made.length === 1);
  const end = { platform_payment_id: 'p', status: 'failed', failure_reason: 'No.' } as const;
  await applier.end(end, { actor: 'core', event: 'settled' });
  core.made[0]?.answer();
  await applier.stop();
  assert.equal(await statusOf(database, 'p'), 'failed');
  const audit = await database.query(
    `SELECT actor, detail FROM duebridge_partner.payment_audit WHERE event = 'contradicted'`,
  );
  assert.deepEqual(audit, [{ actor: 'account system', detail: { status: 'succeeded' } }]);
});

test('settings of no place or no time are refused at the start', async (t) => {
  const database = await kitDatabase(t);
  for (const calls of [{ concurrency: 0 }, { deadlineMs: 0 }]) {
    assert.throws(() => replica(database, manualClock(), { calls }), /at least one/);
  }
});
