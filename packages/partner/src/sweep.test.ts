/**
 * When the applying end tries which payment again, step by step: rows in memory, an account system that answers as the test says, and
 * time that moves only with the test. What is at stake: a payment that nobody tries again, one that is tried without pause, an outage
 * that is taken for the fault of a payment, a replica that calls itself ready while nothing is applied. apply.test.ts has the same
 * on a real database.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import {
  DatabaseUnavailable,
  silentLog,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { AccountSystem, PostOutcome, Posting } from './account-system.ts';
import { Applier, type ApplierOptions } from './apply.ts';
import { kitMetrics } from './metrics.ts';
import type { PaymentRow } from './store.ts';
import { processing, settle } from '../test/kit.ts';

function payment(id: string): PaymentRow {
  return processing(id, { account_id: `of ${id}` });
}

/** Time moves only with a test, so what waits after a failure would wait forever: in milliseconds. */
const AT_MOST = { timeout: 120_000 };

const AWAY = new DatabaseUnavailable('cut off', 'not_executed');

function rig(t: TestContext, more: Partial<ApplierOptions> = {}, isOwnSystem = false) {
  const clock = manualClock();
  const table = new Map<string, PaymentRow>();
  /** What the account system answers to whom; a promise is waited for, an error is thrown. Others are posted. */
  const answers = new Map<string, PostOutcome | Promise<PostOutcome> | Error>();
  /** Payments that another replica has in a call. */
  const elsewhere = new Set<string>();
  const looks: { at: number; ageMs: unknown; after: unknown; limit: unknown }[] = [];
  const tries: { at: number; ids: string; limitMs: unknown }[] = [];
  const told: string[] = [];
  const lines: string[] = [];
  const figures: string[] = [];
  const watched = new Map<string, () => number>();
  const state = { isAway: false, counts: 0, isUp: true };
  const end = (id: string, status: PaymentRow['status']): PaymentRow[] => {
    const row = table.get(id);
    if (!row) return [];
    table.delete(id);
    const posted_at = status === 'succeeded' ? '2026-01-01T00:00:02.500Z' : null;
    return [{ ...row, status, posted_at }];
  };
  const query = async (
    given: string | { name: string },
    values: readonly unknown[] = [],
  ): Promise<unknown[]> => {
    const name = typeof given === 'string' ? given : given.name;
    const [first] = values;
    if (name === 'kit_unfinished') {
      const [ageMs, after, limit] = values;
      looks.push({ at: clock.monotonic(), ageMs, after, limit });
      if (state.isAway) throw AWAY;
      return [...table.values()]
        .filter((row) => row.platform_payment_id > String(after))
        .toSorted((one, other) => (one.platform_payment_id < other.platform_payment_id ? -1 : 1))
        .slice(0, Number(limit))
        .map((row) => ({ ...row, is_claimed: false }));
    }
    if (name === 'kit_renew_lease') return [first];
    if (name === 'kit_standing') {
      state.counts += 1;
      if (state.isAway) throw AWAY;
      return [{ processing: table.size, processing_oldest_seconds: 7 }];
    }
    if (name === 'kit_end_payments') {
      const [ids, statuses] = values as [string[], PaymentRow['status'][]];
      return ids.flatMap((id, index) => end(id, statuses[index] ?? 'failed'));
    }
    if (name === 'SELECT 1') return state.isUp ? [] : Promise.reject(AWAY);
    if (name === 'kit_lock_payment') {
      const row = table.get(String(first));
      return row ? [row] : [];
    }
    if (name === 'kit_lock_claim') {
      return [{ claimed_by: String(first).startsWith('claimed') ? 'x' : null }];
    }
    return [];
  };
  const database = {
    connections: 10,
    query,
    async transaction<T>(
      work: (tx: Transaction) => Promise<T>,
      limits?: { statementTimeoutMs: number },
    ): Promise<T> {
      let ids: string[] = [];
      const tx = {
        query: (given: string | { name: string }, values: readonly unknown[]) => {
          const name = typeof given === 'string' ? given : given.name;
          const [first] = values as [string[]];
          if (name === 'kit_lock_payments') {
            ids = first;
            const { statementTimeoutMs: limitMs } = limits ?? {};
            tries.push({ at: clock.monotonic(), ids: ids.join(' '), limitMs });
            return Promise.resolve(first.flatMap((id) => table.get(id) ?? []));
          }
          if (name === 'kit_claim_payments') {
            return Promise.resolve(
              first
                .filter((id) => !elsewhere.has(id))
                .map((platform_payment_id) => ({
                  platform_payment_id,
                  is_first: true,
                  is_known: true,
                })),
            );
          }
          return query(given, values);
        },
      } as unknown as Transaction;
      return work(tx);
    },
  } as unknown as Database;
  const accounts = {
    findAccount: () => Promise.resolve(undefined),
    post: (postings: readonly Posting[]) =>
      Promise.all(
        postings.map(async ({ platform_payment_id: id }): Promise<PostOutcome> => {
          const answer = answers.get(id) ?? { outcome: 'posted' };
          if (answer instanceof Error) throw answer;
          return answer;
        }),
      ),
  };
  const applier = new Applier({
    database,
    accounts: isOwnSystem
      ? { posts: 'in_own_system', ...accounts }
      : { posts: 'in_transaction', ...accounts },
    billers: undefined,
    holdMs: 0,
    announce: (rows) => told.push(...rows.map((row) => `${row.platform_payment_id} ${row.status}`)),
    metrics: {
      ...kitMetrics(undefined),
      ended: (status, count) => void figures.push(`${status} ${count}`),
      observePosting: (seconds) => void figures.push(`${seconds} s`),
      standing: () => undefined,
      watch: (name, value) => void watched.set(name, value),
    },
    log: {
      ...silentLog,
      info: (_fields, text) => void lines.push(text),
      warn: (_fields, text) => void lines.push(text),
      error: (_fields, text) => void lines.push(text),
    },
    clock,
    ...more,
  });
  t.after(async () => {
    answers.clear();
    state.isAway = false;
    const stopped = applier.stop();
    await clock.advance(100_000);
    await stopped;
  }, AT_MOST);
  const add = (...ids: string[]): PaymentRow[] =>
    ids.map((id) => {
      const row = payment(id);
      table.set(id, row);
      return row;
    });
  return {
    applier,
    clock,
    table,
    answers,
    looks,
    tries,
    told,
    lines,
    figures,
    elsewhere,
    watched,
    state,
    add,
    /** Sweeps once; how many were due. */
    sweep: async (): Promise<number> => {
      const due = applier.sweep(0);
      await settle();
      return due;
    },
    pass: async (ms: number): Promise<void> => {
      await clock.advance(ms);
      await settle();
    },
  };
}

test('a payment that fails is tried again after a pause that doubles to a minute, and logged once as an error [RU3 LV3]', async (t) => {
  const { add, answers, sweep, pass, lines, told } = rig(t);
  add('bad', 'good');
  answers.set('bad', new Error('a bug'));
  assert.equal(await sweep(), 2);
  assert.deepEqual(told, ['good succeeded'], 'its neighbour is not held up');
  for (const seconds of [1, 2, 4, 8, 16, 32, 60, 60]) {
    await pass(seconds * 1_000 - 1);
    assert.equal(await sweep(), 0, `${seconds} s`);
    await pass(1);
    assert.equal(await sweep(), 1, `${seconds} s`);
  }
  assert.deepEqual(lines, [
    'not applied; will be retried',
    ...Array.from({ length: 8 }, () => 'still not applied'),
  ]);
  // It fails at once, so more time would not help it, and its neighbours would wait.
  answers.delete('bad');
  await pass(60_000);
  assert.equal(await sweep(), 1);
  assert.deepEqual(told, ['good succeeded', 'bad succeeded']);
  // Had it to be tried again, it would begin anew.
  add('bad');
  answers.set('bad', new Error('a bug'));
  assert.equal(await sweep(), 1);
  await pass(1_000);
  assert.equal(await sweep(), 1);
});

test('a payment for later is asked for again more and more seldom, unless a time was named [ST1]', async (t) => {
  const { add, answers, sweep, pass, lines, tries } = rig(t);
  add('later', 'dated');
  answers.set('later', { outcome: 'later' });
  answers.set('dated', { outcome: 'later', until: '2026-01-01T00:00:01Z' });
  const last = (): string | undefined => tries.at(-1)?.ids;
  assert.equal(await sweep(), 2);
  await pass(499);
  assert.equal(await sweep(), 0);
  await pass(1);
  // The table says when; here a short pause is enough.
  assert.deepEqual([await sweep(), last()], [1, 'dated']);
  await pass(500);
  assert.deepEqual([await sweep(), last()], [2, 'dated later']);
  for (let half = 0; half < 3; half += 1) {
    await pass(500);
    assert.deepEqual([await sweep(), last()], [1, 'dated'], 'its pause does not grow');
  }
  await pass(500);
  assert.equal(await sweep(), 2);
  assert.deepEqual(lines, []);
});

test('an outage is logged when it begins and when it is over, and its payments resume at once [RU3 LV8]', async (t) => {
  const { add, answers, sweep, pass, lines, state, told } = rig(t);
  add('a', 'b');
  answers.set('a', AWAY);
  answers.set('b', AWAY);
  state.isUp = false;
  assert.equal(await sweep(), 2);
  for (let count = 0; count < 3; count += 1) {
    await pass(499);
    assert.equal(await sweep(), 0);
    await pass(1);
    assert.equal(await sweep(), 2);
  }
  assert.deepEqual(lines, ['payments cannot be applied; retrying']);
  answers.clear();
  await pass(500);
  assert.equal(await sweep(), 2);
  assert.deepEqual(lines.slice(1), ['posting of payments resumed']);
  assert.equal(told.length, 2);
});

test('a payment that was accepted is applied at once, once, unless it may still be canceled [RU3 ST4]', async (t) => {
  const { applier, add, answers, tries, watched, told, figures } = rig(t);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('slow', answer.promise);
  const rows = add('slow');
  applier.take(rows);
  applier.take(rows);
  await settle();
  assert.deepEqual(
    tries.map(({ ids }) => ids),
    ['slow'],
  );
  assert.equal(watched.get('apply_queue')?.(), 1);
  assert.equal(await applier.sweep(0), 0, 'it is in hand');
  answer.resolve({ outcome: 'posted' });
  await settle();
  assert.equal(watched.get('apply_queue')?.(), 0);
  assert.deepEqual([told, figures], [['slow succeeded'], ['succeeded 1', '2.5 s']]);

  const held = rig(t, { holdMs: 60_000 });
  held.applier.take(held.add('held'));
  await settle();
  assert.equal(held.tries.length, 0);
  await applier.stop();
  applier.take(add('late'));
  await settle();
  assert.equal(tries.length, 1, 'a replica that stops takes no more');
});

test('the table is swept whole at the start, page by page, then for what has been left behind [RU3 KT13]', async (t) => {
  const { applier, add, clock, looks, pass, told } = rig(t);
  add(...Array.from({ length: 5_001 }, (_, index) => `p${10_000 + index}`));
  applier.start();
  for (let turn = 0; told.length < 5_000 && turn < 200; turn += 1) await settle();
  assert.equal(told.length, 5_000);
  assert.equal(clock.sleeping, 2, 'until the next page, and until the next count');
  await pass(999);
  assert.equal(looks.length, 1);
  await pass(1);
  assert.equal(told.length, 5_001);
  await pass(2_000);
  assert.deepEqual(looks, [
    { at: 0, ageMs: 0, after: '', limit: 5_000 },
    { at: 1_000, ageMs: 0, after: 'p14999', limit: 5_000 },
    { at: 2_000, ageMs: 2_000, after: '', limit: 5_000 },
    { at: 3_000, ageMs: 2_000, after: '', limit: 5_000 },
  ]);
});

test('a payment that hangs stops no sweep [LV3]', async (t) => {
  const { applier, add, answers, looks, pass } = rig(t, {}, true);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('hangs', answer.promise);
  add('hangs');
  applier.start();
  // A second for the payment, and a second of pause.
  await pass(1_999);
  assert.equal(looks.length, 1);
  await pass(1);
  assert.equal(looks.length, 2);
  answer.resolve({ outcome: 'posted' });
});

test('a stop waits for the payments in hand, and an account system that posts nowhere is refused', async (t) => {
  const { applier, add, answers, told, figures } = rig(t);
  const answer = Promise.withResolvers<PostOutcome>();
  answers.set('p', answer.promise);
  applier.start();
  await settle();
  applier.take(add('p'));
  await settle();
  let isOver = false;
  const stopped = applier.stop().then(() => (isOver = true));
  await settle();
  assert.equal(isOver, false);
  answer.resolve({ outcome: 'failed', reason: 'Closed.' });
  await stopped;
  assert.deepEqual([told, figures], [['p failed'], ['failed 1']]);
  assert.throws(
    () => rig(t, { accounts: { posts: 'nowhere' } as unknown as AccountSystem }),
    /in_transaction or in_own_system/,
  );
});
