/**
 * When the applying end tries which payment again: on a real database, with an account system that answers as the test says, and time that
 * moves only with the test. What is at stake: a payment that nobody tries again, one that is tried without pause, an outage that is taken
 * for the fault of a payment.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { DatabaseUnavailable, silentLog, type Database } from '@duebridge/runtime';
import { manualClock, until } from '@duebridge/runtime/testing';
import type { AccountSystem, PostOutcome, Posting } from './account-system.ts';
import type { ApplierOptions } from './apply.ts';
import { kitMetrics } from './metrics.ts';
import type { PaymentRow } from './store.ts';
import { accepted, applierOn, kitDatabase, processing, settle } from '../test/kit.ts';

const AWAY = new DatabaseUnavailable('cut off', 'not_executed');

async function rig(t: TestContext, more: Partial<ApplierOptions> = {}, isOwnSystem = false) {
  const clock = manualClock();
  const real = await kitDatabase(t);
  /** What the account system answers to whom; a promise is waited for, an error is thrown. Others are posted. */
  const answers = new Map<string, PostOutcome | Promise<PostOutcome> | Error>();
  const looks: { at: number; ageMs: unknown; after: unknown; limit: unknown }[] = [];
  const tries: string[] = [];
  const told: string[] = [];
  const lines: string[] = [];
  const figures: string[] = [];
  const watched = new Map<string, () => number>();
  /** Payments cannot be posted, and nothing else can be asked. */
  const state = { isAway: false };
  const database: Database = {
    ...real,
    query<Row>(...[statement, values = []]: Parameters<Database['query']>): Promise<Row[]> {
      if (typeof statement !== 'string' && statement.name === 'kit_unfinished') {
        const [ageMs, after, limit] = values;
        looks.push({ at: clock.monotonic(), ageMs, after, limit });
      }
      if (state.isAway && statement === 'SELECT 1') return Promise.reject(AWAY);
      return real.query<Row>(statement, values);
    },
    transaction: (work, options) =>
      state.isAway ? Promise.reject(AWAY) : real.transaction(work, options),
  };
  const accounts = {
    findAccount: () => Promise.resolve(undefined),
    post(postings: readonly Posting[]) {
      tries.push(postings.map(({ platform_payment_id: id }) => id).join(' '));
      return Promise.all(
        postings.map(async ({ platform_payment_id: id }): Promise<PostOutcome> => {
          const answer = answers.get(id) ?? { outcome: 'posted' };
          if (answer instanceof Error) throw answer;
          return answer;
        }),
      );
    },
  };
  const write = (_fields: object, text: string): void => void lines.push(text);
  const applier = applierOn(database, {
    accounts: isOwnSystem
      ? { posts: 'in_own_system', ...accounts }
      : { posts: 'in_transaction', ...accounts },
    announce: (rows) => told.push(...rows.map((row) => `${row.platform_payment_id} ${row.status}`)),
    metrics: {
      ...kitMetrics(undefined),
      ended: (status, count) => void figures.push(`${status} ${count}`),
      observePosting: (seconds) => void figures.push(seconds < 60 ? 'in time' : `${seconds} s`),
      watch: (name, value) => void watched.set(name, value),
    },
    log: { ...silentLog, info: write, warn: write, error: write },
    clock,
    ...more,
  });
  real.closing(async () => {
    state.isAway = false;
    const stopped = applier.stop();
    await clock.advance(100_000);
    await stopped;
  });
  return {
    applier,
    clock,
    answers,
    looks,
    tries,
    told,
    lines,
    figures,
    watched,
    state,
    add: (...ids: string[]): Promise<PaymentRow[]> => accepted(real, ids),
    /** Sweeps once; how many were due, and have been tried. */
    sweep: (): Promise<number> => applier.sweep(0),
  };
}

test('a payment that fails is tried again after a pause that doubles to a minute, and logged once as an error [RU3 LV3]', async (t) => {
  const { add, answers, sweep, clock, lines, told } = await rig(t);
  await add('bad', 'good');
  answers.set('bad', new Error('a bug'));
  assert.equal(await sweep(), 2);
  assert.deepEqual(told, ['good succeeded'], 'its neighbour is not held up');
  for (const seconds of [1, 2, 4, 8, 16, 32, 60, 60]) {
    await clock.advance(seconds * 1_000 - 1);
    assert.equal(await sweep(), 0, `${seconds} s`);
    await clock.advance(1);
    assert.equal(await sweep(), 1, `${seconds} s`);
  }
  assert.deepEqual(lines, [
    'not applied; will be retried',
    ...Array.from({ length: 8 }, () => 'still not applied'),
  ]);
  answers.delete('bad');
  await clock.advance(60_000);
  assert.equal(await sweep(), 1);
  assert.deepEqual(told, ['good succeeded', 'bad succeeded']);
});

test('a payment for later is asked for again more and more seldom, unless a time was named [ST1]', async (t) => {
  const { add, answers, sweep, clock, lines, tries } = await rig(t);
  await add('later', 'dated');
  answers.set('later', { outcome: 'later' });
  answers.set('dated', { outcome: 'later', until: '2026-01-01T00:00:01Z' });
  const last = (): string | undefined => tries.at(-1);
  assert.equal(await sweep(), 2);
  await clock.advance(499);
  assert.equal(await sweep(), 0);
  await clock.advance(1);
  // The table says when; here a short pause is enough.
  assert.deepEqual([await sweep(), last()], [1, 'dated']);
  await clock.advance(500);
  assert.deepEqual([await sweep(), last()], [2, 'dated later']);
  for (let half = 0; half < 3; half += 1) {
    await clock.advance(500);
    assert.deepEqual([await sweep(), last()], [1, 'dated'], 'its pause does not grow');
  }
  await clock.advance(500);
  assert.equal(await sweep(), 2);
  assert.deepEqual(lines, []);
});

test('an outage is logged when it begins and when it is over, and its payments resume at once [RU3 LV8]', async (t) => {
  const { add, sweep, clock, lines, state, told } = await rig(t);
  await add('a', 'b');
  state.isAway = true;
  assert.equal(await sweep(), 2);
  for (let count = 0; count < 3; count += 1) {
    await clock.advance(499);
    assert.equal(await sweep(), 0);
    await clock.advance(1);
    assert.equal(await sweep(), 2);
  }
  assert.deepEqual(lines, ['payments cannot be applied; retrying']);
  state.isAway = false;
  await clock.advance(500);
  assert.equal(await sweep(), 2);
  assert.deepEqual(lines.slice(1), ['posting of payments resumed']);
  assert.equal(told.length, 2);
});

test('a payment that was accepted is applied at once, once, unless it may still be canceled [RU3 ST4]', async (t) => {
  const { applier, add, answers, tries, watched, told, figures } = await rig(t);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('slow', answer.promise);
  const rows = await add('slow');
  applier.take(rows);
  applier.take(rows);
  await until('a try', () => tries.length > 0);
  assert.equal(watched.get('apply_queue')?.(), 1);
  assert.equal(await applier.sweep(0), 0, 'it is in hand');
  answer.resolve({ outcome: 'posted' });
  await until('its end', () => watched.get('apply_queue')?.() === 0);
  assert.deepEqual([tries, told], [['slow'], ['slow succeeded']]);
  assert.deepEqual(figures, ['succeeded 1', 'in time']);

  const held = await rig(t, { holdMs: 60_000 });
  held.applier.take(await held.add('held'));
  await settle();
  assert.deepEqual([held.watched.get('apply_queue')?.(), await held.sweep()], [0, 0]);
  await applier.stop();
  applier.take(await add('late'));
  assert.equal(watched.get('apply_queue')?.(), 0, 'a replica that stops takes no more');
});

test('the table is swept whole at the start, page by page, then for what has been left behind [RU3 KT13]', async (t) => {
  const { applier, add, clock, looks, told } = await rig(t);
  await add(...Array.from({ length: 5_001 }, (_, index) => `p${10_000 + index}`));
  /** The pause until the next page, and that until the next count. */
  const rests = (): Promise<boolean> => until('both pauses', () => clock.sleeping === 2);
  applier.start();
  await until('a page', () => told.length === 5_000);
  await rests();
  await clock.advance(999);
  assert.equal(looks.length, 1);
  await clock.advance(1);
  await until('the rest', () => told.length === 5_001);
  for (const count of [3, 4]) {
    await rests();
    await clock.advance(1_000);
    await until('a round', () => looks.length === count);
  }
  assert.deepEqual(looks, [
    { at: 0, ageMs: 0, after: '', limit: 5_000 },
    { at: 1_000, ageMs: 0, after: 'p14999', limit: 5_000 },
    { at: 2_000, ageMs: 2_000, after: '', limit: 5_000 },
    { at: 3_000, ageMs: 2_000, after: '', limit: 5_000 },
  ]);
});

test('a payment that hangs stops no sweep [LV3]', async (t) => {
  const { applier, add, answers, looks, clock, tries } = await rig(t, {}, true);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('hangs', answer.promise);
  await add('hangs');
  applier.start();
  await until('its call', () => tries.length > 0);
  await until('two more rounds', () => clock.advance(100).then(() => looks.length > 2), 0);
  assert.deepEqual(tries, ['hangs']);
  answer.resolve({ outcome: 'posted' });
});

test('a hundred thousand payments are in hand at most, and beside them a thousand of each other biller [LV3 LV10]', async (t) => {
  let [biller_id, made] = ['hangs', 0];
  const page = () =>
    Array.from({ length: 5_000 }, () => processing(`p${(made += 1)}`, { biller_id }));
  const query = ({ name }: { name: string }) =>
    Promise.resolve(name === 'kit_unfinished' ? page() : []);
  const database = { query, transaction: () => new Promise(() => undefined) };
  const { applier, sweep, watched } = await rig(t, { database: database as never }, true);
  const inHand = async (): Promise<number | undefined> => {
    void sweep();
    await settle();
    applier.take(page());
    return watched.get('apply_queue')?.();
  };
  for (let round = 1; round <= 12; round += 1)
    assert.equal(await inHand(), Math.min(round * 10_000, 100_000));
  for (biller_id of ['water', 'gas']) await inHand();
  assert.equal(await inHand(), 102_000);
});

test('a stop waits for the payments in hand, and an account system that posts nowhere is refused', async (t) => {
  const { applier, add, answers, told, figures, tries } = await rig(t);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('p', answer.promise);
  applier.take(await add('p'));
  await until('a try', () => tries.length > 0);
  let isOver = false;
  const stopped = applier.stop().then(() => (isOver = true));
  await settle();
  assert.equal(isOver, false);
  answer.resolve({ outcome: 'failed', reason: 'Closed.' });
  await stopped;
  assert.deepEqual([told, figures], [['p failed'], ['failed 1']]);
  const nowhere = { posts: 'nowhere' } as unknown as AccountSystem;
  await assert.rejects(rig(t, { accounts: nowhere }), /in_transaction or in_own_system/);
});
