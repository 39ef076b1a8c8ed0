/**
 * Which payments share a transaction, which are tried alone, and which wait, step by step: the database answers when the test says so,
 * and time moves only with the test. What is at stake: one account, one bad payment or one slow core that holds up every other, a
 * payment that nobody tries again, an outage that is taken for the fault of a payment. neighbours.full.test.ts and apply.test.ts have
 * the same poster on a real server.
 */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { DatabaseUnavailable, type Database, type Transaction } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { PostOutcome, Posting } from './account-system.ts';
import { readRules } from './business-rules.ts';
import { kitMetrics } from './metrics.ts';
import { openTransactionPoster } from './post-in-transaction.ts';
import { TooLate, type Tried } from './poster.ts';
import type { PaymentRow, UnfinishedPayment } from './store.ts';
import { kitDatabase, processing, settle } from './testing.ts';

/** Payments in one transaction at most, before anything was slow. */
const MAX_BATCH = 512;

function payment(id: string, account_id = 'A-1'): UnfinishedPayment {
  return { ...processing(id, { account_id }), claimed_by: null };
}

/** One transaction of the poster, waiting in the account system until the test goes on. */
interface Open {
  readonly ids: readonly string[];
  readonly limits: unknown;
  /** Answers the account system's call: each is posted unless told otherwise. */
  answer(outcomes?: Readonly<Record<string, PostOutcome>>): Promise<void>;
  /** Fails the transaction. */
  fail(error: unknown): Promise<void>;
}

function rig(t: TestContext, more: { billers?: Parameters<typeof readRules>[0] } = {}) {
  const clock = manualClock();
  const open: Open[] = [];
  const announced: string[] = [];
  const postponed: unknown[][] = [];
  /** Payments that ended elsewhere: a lock finds them gone. */
  const gone = new Set<string>();
  const state = {
    errors: 0,
    isUp: true,
    asked: 0,
    endsNothing: false,
    transactions: 0,
    /** What every COMMIT waits for. */
    commit: undefined as Promise<void> | undefined,
  };
  const figures = new Map<string, () => number>();
  const observed: string[] = [];
  const rows = new Map<string, PaymentRow>();
  const calls = new Map<Transaction, (postings: readonly Posting[]) => Promise<PostOutcome[]>>();
  const database = {
    query: () => {
      state.asked += 1;
      return state.isUp ? Promise.resolve([]) : Promise.reject(new Error('down'));
    },
    async transaction<T>(work: (tx: Transaction) => Promise<T>, limits: unknown): Promise<T> {
      state.transactions += 1;
      let ids: readonly string[] = [];
      const tx = {
        query(statement: { name: string }, values: readonly unknown[]): Promise<unknown[]> {
          const [given] = values as [readonly string[]];
          if (statement.name === 'kit_lock_payments') {
            ids = given;
            return Promise.resolve(given.flatMap((id) => (gone.has(id) ? [] : [rows.get(id)])));
          }
          if (statement.name === 'kit_postpone_payments') postponed.push([...values]);
          if (statement.name !== 'kit_end_payments' || state.endsNothing)
            return Promise.resolve([]);
          const statuses = values[1] as readonly PaymentRow['status'][];
          return Promise.resolve(
            given.map((id, index) => ({ ...rows.get(id), status: statuses[index] })),
          );
        },
      } as unknown as Transaction;
      calls.set(tx, (postings) => {
        const answered = Promise.withResolvers<PostOutcome[]>();
        open.push({
          ids,
          limits,
          async answer(outcomes = {}) {
            open.splice(open.indexOf(this), 1);
            answered.resolve(
              postings.map((one) => outcomes[one.platform_payment_id] ?? { outcome: 'posted' }),
            );
            await settle();
          },
          async fail(error) {
            open.splice(open.indexOf(this), 1);
            // Where an error comes from makes no difference to the poster, and a call left open would wait for its deadline.
            answered.reject(error);
            await settle();
          },
        });
        return answered.promise;
      });
      const done = await work(tx);
      await state.commit;
      return done;
    },
  } as unknown as Database;
  const poster = openTransactionPoster({
    database,
    accounts: {
      posts: 'in_transaction',
      findAccount: () => Promise.resolve(undefined),
      post: (postings, tx) => calls.get(tx)?.(postings) ?? Promise.resolve([]),
    },
    rules: readRules(more.billers),
    announce: (ended) =>
      announced.push(...ended.map((row) => `${row.platform_payment_id} ${row.status}`)),
    metrics: {
      ...kitMetrics(undefined),
      postErrors: { inc: () => (state.errors += 1) },
      watch: (name, value) => void figures.set(name, value),
      observeCore: (operation, seconds) => void observed.push(`${operation} ${seconds} s`),
    },
    clock,
  });
  // What a test leaves open would wait for its deadlines.
  t.after(async () => {
    for (let one = open[0]; one !== undefined; one = open[0]) await one.answer();
  });
  return {
    clock,
    open,
    announced,
    observed,
    postponed,
    gone,
    state,
    figures,
    poster,
    /** Posts, and keeps the result for the test to look at. */
    post: (one: UnfinishedPayment, isRepeat = false): { result?: Tried } => {
      rows.set(one.platform_payment_id, one);
      const kept: { result?: Tried } = {};
      void poster.post(one, isRepeat).then((result) => (kept.result = result));
      return kept;
    },
  };
}

/** The transaction that is open, or the one of several. */
function only(open: readonly Open[], at = 0): Open {
  const one = open[at];
  assert(one, 'no transaction is open');
  return one;
}

/** Real errors of PostgreSQL, as the pool hands them on; each is made once. */
const madeErrors = new Map<string, unknown>();
async function errorsOf(t: TestContext, ...codes: string[]): Promise<unknown[]> {
  const missing = codes.filter((code) => !madeErrors.has(code));
  const database = missing.length === 0 ? undefined : await kitDatabase(t);
  for (const code of missing) {
    const text = `DO $$ BEGIN RAISE EXCEPTION 'made' USING ERRCODE = '${code}'; END $$`;
    await database
      ?.transaction((tx) => tx.query(text))
      .catch((error: unknown) => madeErrors.set(code, error));
  }
  return codes.map((code) => {
    assert.ok(madeErrors.has(code), code);
    return madeErrors.get(code);
  });
}

const DONE = { result: 'done' } as const;
const DOWN = new DatabaseUnavailable('cut', 'unknown');

test('payments of one turn share a transaction, and one group follows another, 512 at most [ST2]', async (t) => {
  const { post, open, announced, poster } = rig(t);
  const first = Array.from({ length: MAX_BATCH + 1 }, (_, index) => post(payment(`p${index}`)));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => ids.length),
    [MAX_BATCH],
  );
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 800, lockTimeoutMs: 100 });
  const late = post(payment('late'));
  await settle();
  assert.equal(open.length, 1, 'two groups would meet at the same accounts');
  let isIdle = false;
  void poster.stop().then(() => (isIdle = true));
  await only(open).answer();
  assert.deepEqual(first[0]?.result, { result: 'done' });
  assert.equal(announced.length, MAX_BATCH);
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [[`p${MAX_BATCH}`, 'late']],
  );
  assert.equal(isIdle, false, 'a stop waits for what is under way');
  await only(open).answer();
  assert.deepEqual(late.result, { result: 'done' });
  assert.equal(isIdle, true);
});

test('a slow group is halved, and a full quick one doubles again [LV3]', async (t) => {
  const { post, open, clock } = rig(t);
  const more = (count: number): void => {
    for (let index = 0; index < count; index += 1) post(payment(`p${index}`));
  };
  const take = async (ms: number): Promise<number> => {
    const { length } = only(open).ids;
    await clock.advance(ms);
    await only(open).answer();
    return length;
  };
  more(3 * MAX_BATCH);
  await settle();
  const sizes: number[] = [];
  // Slow: half. Neither slow nor quick: the same. Quick and full: twice as many. Quick, and not full: nothing is known.
  for (const ms of [701, 700, 200, 199, 199]) sizes.push(await take(ms));
  assert.deepEqual(sizes, [512, 256, 256, 256, 256]);
  more(4 * MAX_BATCH);
  await settle();
  for (const ms of [199, 701, 701]) sizes.push(await take(ms));
  assert.deepEqual(sizes.slice(5), [512, 512, 256], 'never more than at first');
  // One that fails slowly is halved as well; one that fails in time says nothing about its size.
  const group = (): Open => only(open.filter(({ ids }) => ids.length > 1));
  assert.equal(group().ids.length, 128);
  await clock.advance(701);
  await group().fail(new Error('a bug'));
  assert.equal(group().ids.length, 64);
  await clock.advance(700);
  await group().fail(new Error('a bug'));
  assert.equal(group().ids.length, 64);
  await clock.advance(199);
  await group().answer();
  assert.equal(group().ids.length, 128, 'twice as many, no more');
});

test('of a group of one that is slow, one is left [LV3]', async (t) => {
  const { post, open, clock, observed } = rig(t);
  for (let count = 0; count < 2; count += 1) {
    post(payment(`p${count}`));
    await settle();
    await clock.advance(701);
    await only(open).answer();
  }
  assert.deepEqual(observed, ['post 0.701 s', 'post 0.701 s']);
  const rest = ['a', 'b', 'c'].map((id) => post(payment(id, `of ${id}`)));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['a']],
  );
  await clock.advance(701);
  await only(open).fail(new Error('a bug'));
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['b'], ['a']],
  );
  for (let count = 0; count < 3; count += 1) await only(open).answer();
  assert.deepEqual(
    rest.map(({ result }) => result?.result),
    ['done', 'done', 'done'],
  );
});

test('the payments of a group that failed are tried alone, two at a time, beside the next group [LV3 ST2]', async (t) => {
  const { post, open, announced, state, poster } = rig(t);
  const failing = ['a', 'b', 'c', 'd'].map((id) => post(payment(id, `of ${id}`)));
  const same = post(payment('a2', 'of a'));
  await settle();
  await only(open).fail(new Error('a bug'));
  assert.equal(state.errors, 1);
  const idsOf = (): string[] => open.map(({ ids }) => ids.join(' '));
  assert.deepEqual(idsOf(), ['a', 'b'], 'two at a time');
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 800, lockTimeoutMs: 20 });
  const neighbour = post(payment('n', 'of n'));
  await settle();
  assert.deepEqual(idsOf(), ['a', 'b', 'n'], 'the next group does not wait');
  await only(open, 2).answer();
  assert.deepEqual(neighbour.result, { result: 'done' });
  // Of one account one payment at a time: its row would be locked.
  await only(open, 1).answer();
  assert.deepEqual(idsOf(), ['a', 'c']);
  await only(open, 1).answer();
  assert.deepEqual(idsOf(), ['a', 'd']);
  const bug = new Error('its fault');
  await only(open).fail(bug);
  assert.deepEqual(idsOf(), ['d', 'a2']);
  let isIdle = false;
  void poster.stop().then(() => (isIdle = true));
  await only(open).answer();
  assert.equal(isIdle, false);
  await only(open).answer();
  assert.equal(isIdle, true);
  assert.deepEqual(
    failing.map(({ result }) => result?.result),
    ['failed', 'done', 'done', 'done'],
  );
  assert.deepEqual(failing[0]?.result, { result: 'failed', error: bug });
  assert.deepEqual(same.result, { result: 'done' });
  assert.equal(state.errors, 2);
  assert.deepEqual(
    announced.toSorted(),
    ['a2', 'b', 'c', 'd', 'n'].map((id) => `${id} succeeded`),
  );
});

test('a payment that failed before is tried beside no other of its kind [LV3]', async (t) => {
  const { post, open } = rig(t);
  // A first try that stands alone takes no place of theirs, neither while it runs nor after it.
  const alone = post(payment('x', 'of x'));
  await settle();
  await only(open).fail(new Error('a bug'));
  const beside = post(payment('y', 'of y'), true);
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['x'], ['y']],
  );
  await only(open).answer();
  await only(open).answer();
  assert.deepEqual([alone.result, beside.result], [{ result: 'done' }, { result: 'done' }]);
  const repeats = ['a', 'b'].map((id) => post(payment(id, `of ${id}`), true));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['a']],
    'half of the lane is left to first tries',
  );
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 800, lockTimeoutMs: 20 });
  await only(open).answer();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['b']],
  );
  await only(open).answer();
  assert.deepEqual(
    repeats.map(({ result }) => result?.result),
    ['done', 'done'],
  );
  const last = post(payment('c', 'of c'), true);
  await settle();
  await only(open).answer();
  assert.deepEqual(last.result, { result: 'done' });
});

/** Fails a payment's three tries with a lock: in a group, alone beside the groups, and alone in its own lane. */
async function meetLock({ open }: { open: Open[] }, locked: unknown): Promise<void> {
  await settle();
  for (let tries = 0; tries < 3; tries += 1) await only(open).fail(locked);
}

test('a locked account rests for longer and longer, and its payments hold up no other [LV3 KT13]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock, state } = rig(t);
  const first = post(payment('p0', 'locked'));
  await settle();
  await only(open).fail(locked);
  assert.equal(first.result, undefined, 'it is tried once more, alone');
  await only(open).fail(locked);
  assert.equal(first.result, undefined, 'and alone where it may wait for the lock');
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 2_000, lockTimeoutMs: 250 });
  await only(open).fail(locked);
  assert.deepEqual(first.result, { result: 'busy' });
  assert.equal(state.asked, 0, 'a lock is no outage');
  // At first half a second, then twice as long each time, five seconds at most.
  let count = 0;
  for (const ms of [500, 1_000, 2_000, 4_000, 5_000, 5_000]) {
    await clock.advance(ms - 1);
    const early = post(payment(`early-${ms}`, 'locked'));
    const other = post(payment(`other-${count++}`, 'free'));
    await settle();
    assert.deepEqual(early.result, { result: 'busy' }, `${ms} ms`);
    await only(open).answer();
    assert.deepEqual(other.result, { result: 'done' });
    await clock.advance(1);
    // By itself, not in a group that would wait for the lock; and meanwhile no second one.
    const due = [
      post(payment(`due-${count}`, 'locked')),
      post(payment(`due-2-${count}`, 'locked')),
    ];
    const beside = post(payment(`beside-${count}`, 'free'));
    await settle();
    assert.deepEqual(
      open.map(({ ids }) => [...ids]),
      [[`beside-${count}`], [`due-${count}`]],
    );
    await only(open).answer();
    assert.deepEqual(beside.result, { result: 'done' });
    await only(open).fail(locked);
    assert.equal(open.length, 0);
    for (const { result } of due) assert.deepEqual(result, { result: 'busy' });
  }
});

test('an account whose lock is gone joins the groups again when it has met none for five seconds [LV3 KT13]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock, gone } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  post(payment('p0', 'locked'));
  await meetLock({ open }, locked);
  await clock.advance(500);
  // One that was canceled meanwhile tells nothing about the lock: the next rest is twice as long.
  gone.add('canceled');
  assert.equal(post(payment('canceled', 'locked')).result, undefined);
  await settle();
  assert.equal(open.length, 0);
  const still = post(payment('still', 'locked'));
  await settle();
  await only(open).fail(locked);
  await clock.advance(999);
  assert.deepEqual(post(payment('resting', 'locked')).result, undefined);
  await settle();
  assert.deepEqual(still.result, { result: 'busy' });
  assert.equal(open.length, 0);
  await clock.advance(1);
  // The lock is gone: one after the other, outside the groups, until it has not come back for a while.
  const free = [post(payment('f1', 'locked')), post(payment('f2', 'locked'))];
  post(payment('n1', 'free'));
  await settle();
  assert.deepEqual(idsOf(), [['n1'], ['f1']]);
  await only(open).answer();
  await only(open).answer();
  assert.deepEqual(idsOf(), [['f2']]);
  await only(open).answer();
  assert.deepEqual(
    free.map(({ result }) => result),
    [{ result: 'done' }, { result: 'done' }],
  );
  // A new lock begins with half a second.
  post(payment('again', 'locked'));
  await settle();
  await only(open).fail(locked);
  await clock.advance(499);
  const early = post(payment('early', 'locked'));
  await settle();
  assert.deepEqual(early.result, { result: 'busy' });
  await clock.advance(1 + 4_999);
  post(payment('apart', 'locked'));
  post(payment('n2', 'free'));
  await settle();
  assert.deepEqual(idsOf(), [['n2'], ['apart']]);
  await only(open).answer();
  await only(open).answer();
  await clock.advance(1);
  post(payment('g1', 'locked'));
  post(payment('g2', 'free'));
  await settle();
  assert.deepEqual(idsOf(), [['g1', 'g2']]);
});

test('what waits in the queue when its account is found locked stays out of the next group [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock, state } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const first = [post(payment('p0', 'locked')), post(payment('p1', 'other'))];
  await settle();
  await only(open).fail(locked);
  // Alone, beside a group of what has come since, without the accounts of the group that failed.
  const doubted = post(payment('p2', 'locked'));
  post(payment('n1', 'free'));
  await settle();
  assert.deepEqual(idsOf(), [['p0'], ['p1'], ['n1']]);
  const queued = ['q1', 'q2', 'q3'].map((id) => post(payment(id, id === 'q2' ? 'free' : 'locked')));
  await settle();
  await only(open).fail(locked);
  await only(open).answer();
  assert.deepEqual(idsOf(), [['n1'], ['p0']]);
  await only(open).answer();
  assert.deepEqual(idsOf(), [['p0'], ['q2']], 'the group is without them');
  await only(open, 1).answer();
  await only(open).fail(locked);
  assert.deepEqual(
    [...first, doubted, ...queued].map(({ result }) => result?.result),
    ['busy', 'done', 'busy', 'busy', 'done', 'busy'],
  );
  // A queue of nothing else begins no group, and its payments wait for their turn.
  await clock.advance(500);
  const before = state.transactions;
  const due = [post(payment('r1', 'locked')), post(payment('r2', 'locked'))];
  await settle();
  assert.equal(state.transactions, before + 1);
  await only(open).answer();
  await only(open).answer();
  for (const { result } of due) assert.deepEqual(result, { result: 'done' });
  // One that failed before waits for the lock in the same place.
  const repeat = post(payment('again', 'locked'), true);
  await settle();
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 10_000, lockTimeoutMs: 250 });
  await only(open).answer();
  assert.deepEqual(repeat.result, { result: 'done' });
});

test('locked accounts take no place of payments that are tried alone, and two are tried at once [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const all = ['a', 'b', 'c', 'd', 'e'].map((id) => post(payment(id, `of ${id}`)));
  await settle();
  await only(open).fail(locked);
  assert.deepEqual(idsOf(), [['a'], ['b']]);
  await only(open).fail(locked);
  await only(open).fail(locked);
  assert.deepEqual(idsOf(), [['c'], ['a'], ['d'], ['b']]);
  await only(open, 2).fail(locked);
  assert.deepEqual(idsOf(), [['c'], ['a'], ['b'], ['e']], 'the third waits for its turn');
  await only(open, 3).answer();
  await only(open).answer();
  assert.deepEqual(idsOf(), [['a'], ['b']]);
  await only(open).fail(locked);
  assert.deepEqual(idsOf(), [['b'], ['d']]);
  await only(open).answer();
  await only(open).answer();
  assert.deepEqual(
    all.map(({ result }) => result?.result),
    ['busy', 'done', 'done', 'done', 'done'],
  );
});

test('a group waits for a lock as long as groups take, and longer after it waited in vain [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock } = rig(t);
  let count = 0;
  /** The next group's wait for a lock, in milliseconds; the group takes `ms`. */
  const wait = async (ms: number, fails = false): Promise<unknown> => {
    count += 1;
    post(payment(`p${count}`, `of ${count}`));
    await settle();
    const { limits } = only(open);
    await clock.advance(ms);
    if (fails) {
      await only(open).fail(locked);
      // Alone it finds the lock free.
    }
    await only(open).answer();
    return (limits as { lockTimeoutMs: number }).lockTimeoutMs;
  };
  const waits: unknown[] = [];
  for (const ms of [0, 0, 40, 1, 90, 1]) waits.push(await wait(ms));
  assert.deepEqual(waits, [100, 90, 81, 120, 108, 250]);
  for (let calm = 0; calm < 40; calm += 1) await wait(1);
  assert.equal(await wait(1), 20, 'never less');
  const doubled: unknown[] = [];
  for (let round = 0; round < 6; round += 1) doubled.push(await wait(0, true));
  assert.deepEqual(doubled, [20, 40, 80, 160, 250, 250]);
  // Where accounts turn out to be locked, the group did not wait too short.
  const limitOf = (one: Open): unknown => (one.limits as { lockTimeoutMs: number }).lockTimeoutMs;
  const found: unknown[] = [];
  for (let round = 0; round < 8; round += 1) {
    for (const name of ['x', 'y']) post(payment(`${name}${round}`, `${name} of ${round}`));
    await settle();
    found.push(limitOf(only(open)));
    // The group, each alone, and each in the locked lane.
    for (let tries = 0; tries < 5; tries += 1) await only(open).fail(locked);
    assert.equal(open.length, 0);
  }
  assert.deepEqual(found, [250, 63, 32, 20, 20, 20, 20, 20]);
});

const LATE = new TooLate('posting took longer than it may');

/** A payment to an account of its own. */
function paymentOf(biller_id: string, id: string): UnfinishedPayment {
  return { ...payment(id, `of ${id}`), biller_id };
}

test('a posting may take a few times as long as groups take, and longer only by itself [LV3]', async (t) => {
  const { post, open, clock } = rig(t);
  const limitOf = ({ limits }: Open): unknown =>
    (limits as { statementTimeoutMs: number }).statementTimeoutMs;
  let count = 0;
  /** The deadline of the next group, in milliseconds; the group takes `ms`. */
  const group = async (ms: number): Promise<unknown> => {
    post(payment(`p${(count += 1)}`, `of ${count}`));
    await settle();
    const one = only(open, open.length - 1);
    await clock.advance(ms);
    await one.answer();
    return limitOf(one);
  };
  const limits: unknown[] = [];
  for (let calm = 0; calm < 13; calm += 1) limits.push(await group(1));
  assert.deepEqual(limits.slice(0, 3), [800, 720, 648]);
  assert.deepEqual(limits.slice(-2), [272, 250], 'never less');
  const after: unknown[] = [];
  for (const ms of [20, 40, 1]) after.push(await group(ms));
  assert.deepEqual(after, [250, 480, 800], 'never more');
  for (let calm = 0; calm < 20; calm += 1) await group(1);
  // Too long in a group, and too long alone: tried with more time, outside the groups.
  const one = post(payment('slow', 'slow'));
  await settle();
  await only(open).fail(LATE);
  assert.equal(
    limitOf(only(open)),
    320,
    'twice as patient, unless a payment turns out to be the cause',
  );
  await only(open).fail(LATE);
  assert.equal(limitOf(only(open)), 2_000);
  await group(0);
  const waiting = post(payment('slow-2', 'slow'));
  await settle();
  assert.equal(open.length, 1, 'its account is tried one payment at a time');
  // It is posted in time for a group: the deadline was too short, and follows.
  await clock.advance(90);
  await only(open).answer();
  assert.deepEqual(one.result, DONE);
  assert.deepEqual([limitOf(only(open)), only(open).ids], [2_000, ['slow-2']]);
  await only(open).answer();
  assert.deepEqual(waiting.result, DONE);
  const next = [post(payment('slow-3', 'slow')), post(payment('n', 'of n'))];
  await settle();
  assert.deepEqual([limitOf(only(open)), only(open).ids], [800, ['slow-3', 'n']]);
  await only(open).answer();
  for (const { result } of next) assert.deepEqual(result, DONE);
});

test('a payment that takes too long for a group stays outside, and one that hangs fails [LV3]', async (t) => {
  const { post, open, clock } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  for (const [ms, end] of [
    [799, 'group'],
    [800, 'alone'],
    [0, 'hung'],
  ] as const) {
    // Two groups that took too long, one soon after the other, would be another matter.
    await clock.advance(5_000);
    const account = `of ${end}`;
    const one = post(payment(`${end}-1`, account));
    await settle();
    await only(open).fail(LATE);
    await only(open).fail(LATE);
    await clock.advance(ms);
    if (end === 'hung') await only(open).fail(LATE);
    else await only(open).answer();
    assert.deepEqual(one.result, end === 'hung' ? { result: 'failed', error: LATE } : DONE);
    post(payment(`${end}-2`, account));
    post(payment(`${end}-n`, `${account}-n`));
    await settle();
    assert.deepEqual(
      idsOf(),
      end === 'group' ? [['group-2', 'group-n']] : [[`${end}-n`], [`${end}-2`]],
    );
    for (let left = open.length; left > 0; left -= 1) await only(open).answer();
  }
  // A repeat has ten seconds, and neither a payment canceled meanwhile nor one that never took long says anything.
  const repeat = post(payment('hung-3', 'of hung'), true);
  await settle();
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 10_000, lockTimeoutMs: 250 });
  await only(open).answer();
  assert.deepEqual(repeat.result, DONE);
  await clock.advance(4_999);
  post(payment('hung-4', 'of hung'));
  await settle();
  assert.deepEqual(only(open).limits, { statementTimeoutMs: 2_000, lockTimeoutMs: 250 });
  await only(open).answer();
  await clock.advance(1);
  post(payment('hung-5', 'of hung'));
  await settle();
  assert.equal(
    (only(open).limits as { statementTimeoutMs: number }).statementTimeoutMs < 2_000,
    true,
  );
});

test('after a group that took too long, a biller is in no other before one of its payments is posted alone [LV3]', async (t) => {
  const { post, open, gone } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const hung = ['s1', 's2'].map((id) => post(paymentOf('sick', id)));
  const good = ['g0', 'g1'].map((id) => post(paymentOf('good', id)));
  await settle();
  assert.deepEqual(idsOf(), [['s1', 's2', 'g0', 'g1']]);
  // One that was canceled meanwhile says nothing.
  gone.add('g0');
  await only(open).fail(LATE);
  // Its payments came first, and the others wait for none of them.
  assert.deepEqual(idsOf(), [['s1'], ['g1']]);
  const doubted = ['s3', 'g3'].map((id) =>
    post(paymentOf(id.startsWith('s') ? 'sick' : 'good', id)),
  );
  const other = post(paymentOf('other', 'o1'));
  await settle();
  assert.deepEqual(idsOf(), [['s1'], ['g1'], ['o1']], 'nothing is known against a third');
  await only(open, 2).answer();
  assert.deepEqual(other.result, DONE);
  await only(open, 1).answer();
  assert.deepEqual(idsOf(), [['s1'], ['g3']]);
  const more = [post(paymentOf('good', 'g4')), post(paymentOf('sick', 's4'))];
  await settle();
  assert.deepEqual(idsOf(), [['s1'], ['g3'], ['g4']], 'good was posted, sick was not');
  await only(open, 1).answer();
  await only(open, 1).answer();
  // Nobody else waits: both places are theirs.
  assert.deepEqual(idsOf(), [['s1'], ['s2']]);
  await only(open).answer();
  post(paymentOf('sick', 's5'));
  await settle();
  assert.deepEqual(idsOf(), [['s2'], ['s3'], ['s5']], 'it has healed');
  for (let left = open.length; left > 0; left = open.length) await only(open).answer();
  assert.deepEqual(
    [...hung, ...good, ...doubted, ...more].map(({ result }) => result),
    Array.from({ length: 8 }, () => DONE),
  );
});

test('a biller whose postings hang leaves a place to others, and stays out of their lane while they do [LV3]', async (t) => {
  const { post, open, clock } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const hung = ['s1', 's2', 's3'].map((id) => post(paymentOf('sick', id)));
  post(paymentOf('good', 'g1'));
  await settle();
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), [['s1'], ['g1']]);
  await only(open, 1).answer();
  assert.deepEqual(idsOf(), [['s1'], ['s2']]);
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), [['s2'], ['s1']], 'from now on, one place of each lane');
  // One that hung is no more than one account; two are the biller, which leaves the lane.
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), [['s1']]);
  post(paymentOf('sick', 's4'));
  const beside = post(paymentOf('good', 'g2'));
  await settle();
  assert.deepEqual(idsOf(), [['s1'], ['g2']]);
  await only(open, 1).answer();
  assert.deepEqual(beside.result, DONE);
  await only(open).fail(LATE);
  assert.deepEqual(hung[0]?.result, { result: 'failed', error: LATE });
  assert.deepEqual(idsOf(), [['s2']]);
  // While they hang it goes on, five seconds from each.
  await clock.advance(4_999);
  for (let tries = 0; tries < 3; tries += 1) await only(open).fail(LATE);
  assert.equal(hung[2]?.result?.result, 'failed');
  await clock.advance(4_999);
  // One that did not hang itself says nothing about those that did.
  for (const id of ['s5', 's6']) {
    const apart = post(paymentOf('sick', id));
    await settle();
    assert.deepEqual(idsOf(), [[id]]);
    assert.deepEqual(only(open).limits, { statementTimeoutMs: 2_000, lockTimeoutMs: 250 });
    await only(open).answer();
    assert.deepEqual(apart.result, DONE);
  }
  await clock.advance(1);
  post(paymentOf('sick', 's7'));
  post(paymentOf('good', 'g3'));
  await settle();
  assert.deepEqual(idsOf(), [['s7', 'g3']], 'none has hung for five seconds');
});

test('a biller of which one payment hung a while ago, and another does now, stays in the groups [LV3]', async (t) => {
  const { post, open, clock } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  post(paymentOf('good', 'g'));
  await settle();
  await only(open).answer();
  for (const id of ['s1', 's2']) {
    const one = post(paymentOf('sick', id));
    await settle();
    for (let tries = 0; tries < 3; tries += 1) await only(open).fail(LATE);
    assert.equal(one.result?.result, 'failed');
    // The next is tried alone, and clears the biller.
    post(paymentOf('sick', `after-${id}`));
    await settle();
    await only(open).answer();
    post(paymentOf('sick', `with-${id}`));
    post(paymentOf('good', `beside-${id}`));
    await settle();
    assert.deepEqual(idsOf(), [[`with-${id}`, `beside-${id}`]]);
    await only(open).answer();
    await clock.advance(5_000);
  }
});

test('what took long and is posted after all clears its biller; what was canceled, or failed for another reason, says nothing [LV3]', async (t) => {
  const { post, open, clock, gone } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const fall = async (...ids: string[]): Promise<void> => {
    for (const id of ids) post(paymentOf('b', id));
    await settle();
    await only(open).fail(LATE);
    for (const id of ids) await only(open.filter((one) => one.ids[0] === id)).fail(LATE);
  };
  /** Whether a new payment of the biller, and one to that account, share a transaction with another biller's. */
  let count = 0;
  const joins = async (account: string): Promise<boolean> => {
    count += 1;
    post({ ...paymentOf('b', `new-${count}`), account_id: account });
    post(paymentOf('good', `good-${count}`));
    await settle();
    const joined = open.some(({ ids }) => ids.length === 2);
    for (let left = open.length; left > 0; left = open.length) await only(open).answer();
    return joined;
  };
  post(paymentOf('good', 'first'));
  await settle();
  await only(open).answer();
  // Two of the biller are in the patient lane. The first is posted in time.
  await fall('x1', 'x2');
  assert.deepEqual(idsOf(), [['x1']]);
  await only(open).answer();
  await only(open).answer();
  assert.equal(await joins('of x1'), true);
  // One that is posted too late for a group counts neither for its biller nor against it.
  await clock.advance(5_000);
  await fall('y1');
  await clock.advance(800);
  await only(open).answer();
  assert.equal(await joins('of another'), true);
  assert.equal(await joins('of y1'), false);
  await clock.advance(5_000);
  // But while such ones come, a biller of which two took long stays apart.
  await fall('z1', 'z2');
  await only(open).fail(LATE);
  await clock.advance(4_999);
  await only(open).answer();
  await clock.advance(4_999);
  assert.equal(await joins('of another'), false);
  await clock.advance(5_000);
  // One that was canceled before it had more time.
  await fall('c1', 'c2');
  gone.add('c2');
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), []);
  // The first is posted alone and ends the doubt. Two have taken long all the same.
  for (let tries = 0; tries < 2; tries += 1) assert.equal(await joins('of another'), false);
  await clock.advance(5_000);
  // Errors that are no waits.
  for (const id of ['e1', 'e2']) {
    post(paymentOf('b', id));
    await settle();
    await only(open).fail(new Error('a bug'));
    await only(open).fail(new Error('a bug'));
  }
  assert.equal(await joins('of e1'), true);
  // An account stays apart for five seconds from when it hung last.
  await fall('h1');
  await clock.advance(4_000);
  await only(open).fail(LATE);
  await clock.advance(4_999);
  assert.equal(await joins('of another'), false, 'in doubt');
  assert.equal(await joins('of another'), true);
  assert.equal(await joins('of h1'), false);
  await clock.advance(1);
  assert.equal(await joins('of h1'), true);
});

test('billers of which none has hung come first, and a lock says nothing about billers [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open } = rig(t);
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  for (const [biller, id] of [
    ['sick', 's1'],
    ['good', 'g1'],
    ['sick', 's2'],
    ['other', 'o1'],
  ] as const) {
    post(paymentOf(biller, id));
  }
  await settle();
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), [['s1'], ['g1']]);
  await only(open).fail(LATE);
  assert.deepEqual(idsOf(), [['g1'], ['o1'], ['s1']]);
  for (let left = open.length; left > 0; left = open.length) await only(open).answer();
  post(paymentOf('good', 'g2'));
  post(paymentOf('other', 'o2'));
  await settle();
  await only(open).fail(locked);
  post(paymentOf('good', 'g3'));
  await settle();
  assert.deepEqual(idsOf(), [['g2'], ['o2'], ['g3']]);
  // In a group, where the limit is not that of one tried alone.
  post(paymentOf('other', 'o3'));
  await only(open, 2).answer();
  assert.deepEqual(idsOf(), [['g2'], ['o2'], ['o3']]);
});

test('the only biller stays in the groups, without the accounts that hang [LV3]', async (t) => {
  const { post, open } = rig(t);
  const hung = ['a', 'b'].map((id) => post(payment(id, `of ${id}`)));
  post(payment('g1', 'of g1'));
  await settle();
  await only(open).fail(LATE);
  post(payment('n', 'of n'));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['a'], ['b'], ['n']],
  );
  await only(open, 2).answer();
  await only(open).fail(LATE);
  assert.deepEqual(
    open.map(({ ids }) => ids[0]),
    ['b', 'g1', 'a'],
  );
  await only(open).fail(LATE);
  assert.deepEqual(
    open.map(({ ids }) => ids[0]),
    ['g1', 'a'],
    'of those that took long, one at a time',
  );
  await only(open).answer();
  await only(open).fail(LATE);
  await only(open).fail(LATE);
  for (const { result } of hung) assert.equal(result?.result, 'failed');
  for (const id of ['g1', 'g2', 'a']) post(payment(`${id}-2`, `of ${id}`));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['g1-2', 'g2-2'], ['a-2']],
  );
});

/** Posts one payment, whose group takes too long; it is then tried alone. */
async function hang({ post, open }: ReturnType<typeof rig>, id: string): Promise<void> {
  post(payment(id, `of ${id}`));
  await settle();
  await only(open).fail(LATE);
}

test('after two groups that took too long all are tried alone, four at once, until none did for five seconds [LV3]', async (t) => {
  const world = rig(t);
  const { post, open, clock } = world;
  const idsOf = (): string[][] => open.map(({ ids }) => [...ids]);
  const limit = (at: number): unknown =>
    (only(open, at).limits as { statementTimeoutMs: number }).statementTimeoutMs;
  const finish = async (but?: string): Promise<void> => {
    const due = (): Open[] => open.filter(({ ids }) => ids[0] !== but);
    for (let [one] = due(); one !== undefined; [one] = due()) await one.answer();
  };
  /** Whether payments share a transaction. */
  let count = 0;
  const shares = async (but?: string): Promise<boolean> => {
    count += 1;
    for (const id of ['m', 'n']) post(payment(`${id}${count}`, `of ${id}${count}`));
    await settle();
    const shared = open.some(({ ids }) => ids.length > 1);
    await finish(but);
    return shared;
  };
  // Groups take 30 ms: they wait 90 ms for a lock.
  post(payment('first', 'of first'));
  await settle();
  await clock.advance(30);
  await only(open).answer();
  await hang(world, 'h1');
  await finish();
  assert.equal(await shares(), true, 'one such group is chance');
  await hang(world, 'h2');
  assert.deepEqual(idsOf(), [['h2']]);
  assert.equal(limit(0), 400, 'half of what a group had before it');
  for (const id of ['a', 'b', 'c', 'd', 'e']) post(payment(id, `of ${id}`));
  await settle();
  assert.deepEqual(idsOf(), [['h2'], ['a'], ['b'], ['c']]);
  await only(open).fail(LATE);
  assert.deepEqual(
    idsOf(),
    [['a'], ['b'], ['c'], ['d'], ['h2']],
    'it has more time in another lane',
  );
  await only(open, 4).fail(LATE);
  await clock.advance(4_999);
  await finish();
  assert.equal(await shares(), false);
  // One that hangs alone prolongs it, from then on, and not by hanging in the other lane too.
  await hang(world, 'h3');
  await clock.advance(4_999);
  assert.equal(await shares('h3'), false);
  await only(open).fail(LATE);
  await clock.advance(1);
  assert.equal(await shares(), true);
  // Then two groups count again, not one.
  await hang(world, 'h4');
  await finish();
  assert.equal(await shares(), true);
  await hang(world, 'h5');
  await finish();
  assert.equal(await shares(), false);
  // One that is posted after all, with more time: not the payment hung, but everything is slow, and groups are quicker.
  await hang(world, 'h6');
  assert.equal(limit(0), 2_000);
  await finish();
  assert.equal(await shares(), true);
  await hang(world, 'h7');
  await finish();
  assert.equal(await shares(), true, 'none counts any more that hung before');
});

test('payments that would have to wait long to be tried alone share a transaction after all [LV3]', async (t) => {
  const world = rig(t);
  const { post, open } = world;
  // However short groups are, a busy machine may stop for an eighth of a second.
  for (let n = 0; n < 20; n += 1) {
    post(payment(`quick-${n}`));
    await settle();
    await only(open).answer();
  }
  await hang(world, 'h1');
  await only(open).answer();
  await hang(world, 'h2');
  await only(open).answer();
  const all = Array.from({ length: 4 + 64 + 2 }, (_, index) =>
    post(payment(`p${index}`, `of p${index}`)),
  );
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['p64', 'p65', 'p66', 'p67', 'p68', 'p69'], ['p0'], ['p1'], ['p2'], ['p3']],
  );
  assert.deepEqual(only(open, 1).limits, { statementTimeoutMs: 125, lockTimeoutMs: 20 });
  for (let left = open.length; left > 0; left = open.length) await only(open).answer();
  assert.deepEqual(
    all.map(({ result }) => result),
    all.map(() => DONE),
  );
  // One biller has half of the places while another waits.
  for (const id of ['x1', 'x2', 'x3']) post(payment(id, `of ${id}`));
  post(paymentOf('other', 'y'));
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['x1'], ['x2'], ['y']],
  );
});

test('an account that holds up groups again and again stays out of them for twice as long each time, a minute at most [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock } = rig(t);
  let count = 0;
  /** A job locks the account for a moment: a group waits in vain, then the payment alone, and not where it waits for longer. */
  const meet = async (): Promise<void> => {
    const one = post(payment(`met-${(count += 1)}`, 'busy'));
    await settle();
    await only(open).fail(locked);
    await only(open).fail(locked);
    await only(open).answer();
    assert.deepEqual(one.result, DONE);
  };
  const joins = async (): Promise<boolean> => {
    count += 1;
    for (const account of ['busy', 'free']) post(payment(`${account}-${count}`, account));
    await settle();
    const groups = open.length;
    for (let left = groups; left > 0; left = open.length) await only(open).answer();
    return groups === 1;
  };
  for (const ms of [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]) {
    await meet();
    await clock.advance(ms - 1);
    assert.equal(await joins(), false, `${ms} ms`);
    await clock.advance(1);
    assert.equal(await joins(), true, `${ms} ms`);
  }
  // After as long a time in the groups, it is taken for another one.
  await clock.advance(60_000);
  await meet();
  await clock.advance(5_000);
  assert.equal(await joins(), true);
});

test('accounts that were locked long ago are forgotten, one that still is locked is not [LV3]', async (t) => {
  const [locked] = await errorsOf(t, '55P03');
  const { post, open, clock, figures } = rig(t);
  const block = async (...accounts: string[]): Promise<void> => {
    const results = accounts.map((account) => post(payment(`of ${account}`, account)));
    await settle();
    for (let one = open[0]; one !== undefined; one = open[0]) await one.fail(locked);
    for (const { result } of results) assert.deepEqual(result, { result: 'busy' });
  };
  await block(...Array.from({ length: MAX_BATCH + 1 }, (_, index) => `old-${index}`));
  await clock.advance(5_499);
  await block('new');
  const kept = [post(payment('k', 'old-6')), post(payment('s', 'new')), post(payment('n', 'free'))];
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['n'], ['k']],
    'however many there are',
  );
  assert.equal(figures.get('locked_accounts')?.(), MAX_BATCH + 2);
  assert.deepEqual(kept[1]?.result, { result: 'busy' });
  await only(open).answer();
  await only(open).answer();
  await clock.advance(1);
  const last = [
    post(payment('g1', 'old-7')),
    post(payment('g2', 'new')),
    post(payment('g3', 'old-8')),
  ];
  await settle();
  assert.deepEqual(
    open.map(({ ids }) => [...ids]),
    [['g1', 'g3']],
    'they share a transaction again',
  );
  assert.equal(figures.get('locked_accounts')?.(), 1);
  await only(open).answer();
  assert.deepEqual(
    last.map(({ result }) => result?.result),
    ['done', 'busy', 'done'],
  );
});

test('an outage of the database is the fault of no payment; an error of its own is [LV8 PL5]', async (t) => {
  const codes = ['57014', '25P03', '40001', '40P01', '55P03'];
  const errors = await errorsOf(t, ...codes);
  const { post, open, state, clock } = rig(t);
  const group = [post(payment('a', 'of a')), post(payment('b', 'of b'))];
  await settle();
  state.isUp = false;
  await only(open).fail(DOWN);
  assert.deepEqual(
    group.map(({ result }) => result),
    [
      { result: 'outage', error: DOWN },
      { result: 'outage', error: DOWN },
    ],
  );
  assert.equal(open.length, 0, 'nothing is tried while the database is away');
  const alone = post(payment('c', 'of c'), true);
  await settle();
  await only(open).fail(DOWN);
  assert.deepEqual(alone.result, { result: 'outage', error: DOWN });
  // The database answers: the session alone was lost, so each is tried by itself.
  state.isUp = true;
  const lost = post(payment('d', 'of d'));
  await settle();
  await only(open).fail(DOWN);
  assert.equal(lost.result, undefined);
  await only(open).fail(DOWN);
  assert.deepEqual(lost.result, { result: 'failed', error: DOWN });
  // What ends a statement of ours says nothing about the database, which need not be asked.
  state.asked = 0;
  state.isUp = false;
  for (const [index, error] of [...errors, new Error('a bug')].entries()) {
    await clock.advance(5_000);
    const one = post(payment(`e${index}`, `of e${index}`));
    await settle();
    await only(open).fail(error);
    await only(open).fail(error);
    // After a wait it is tried once more, with more time.
    if (['55P03', '57014', '25P03'].includes(codes[index] ?? '')) await only(open).fail(error);
    assert.equal(one.result?.result, codes[index] === '55P03' ? 'busy' : 'failed', codes[index]);
  }
  assert.equal(state.asked, 0);
});

test('a stop gives back what waits behind a COMMIT that hangs, begins none of it, and does not wait for it [LV3 PL5]', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { open, post, poster, state } = rig(t);
  const commit = Promise.withResolvers<void>();
  state.commit = commit.promise;
  t.after(() => commit.resolve());
  post(payment('1', 'A-1'));
  post(payment('2', 'A-2'), true);
  await settle();
  await only(open).answer();
  await only(open).answer();
  // A group and a repeated try hang; one of each kind waits behind them.
  const next = post(payment('3', 'A-3'));
  const repeat = post(payment('4', 'A-4'), true);
  let isStopped = false;
  void poster.stop().then(() => (isStopped = true));
  await settle();
  t.mock.timers.tick(3_999);
  await settle();
  assert.deepEqual([next.result, repeat.result, isStopped], [undefined, undefined, false]);
  t.mock.timers.tick(1);
  await settle();
  assert.deepEqual([next.result, repeat.result], [{ result: 'busy' }, { result: 'busy' }]);
  t.mock.timers.tick(999);
  await settle();
  assert.deepEqual([isStopped, state.transactions], [false, 2]);
  t.mock.timers.tick(1);
  await settle();
  assert.equal(isStopped, true);
  const late = post(payment('5', 'A-5'));
  await settle();
  assert.deepEqual([late.result, state.transactions], [{ result: 'busy' }, 2]);
});

test('a poster with nothing to do stops at once [LV3]', async (t) => {
  const { poster } = rig(t);
  let isStopped = false;
  void poster.stop().then(() => (isStopped = true));
  await settle();
  assert.equal(isStopped, true);
});

test('what the rules refuse fails without a call, what comes later stays, what ended elsewhere is left [FR1 ST1 KT6]', async (t) => {
  const { post, open, announced, observed, postponed, gone } = rig(t, {
    billers: [{ biller_id: 'acme', max_amount_in_cents: 100 }],
  });
  const until = '2026-01-02T00:00:00.000Z';
  const [ok, later, dated, elsewhere] = ['ok', 'later', 'dated', 'elsewhere'].map((id) =>
    post(payment(id)),
  );
  gone.add('elsewhere');
  const dear = post({ ...payment('dear'), amount_in_cents: 101 });
  await settle();
  await only(open).answer({
    later: { outcome: 'later' },
    dated: { outcome: 'later', until },
  });
  assert.deepEqual(
    [ok, later, dated, elsewhere, dear].map((one) => one?.result),
    [
      { result: 'done' },
      { result: 'later', until: null },
      { result: 'later', until },
      { result: 'done' },
      { result: 'done' },
    ],
  );
  assert.deepEqual(announced.toSorted(), ['dear failed', 'ok succeeded']);
  assert.deepEqual(postponed, [[['dated'], [until]]]);
  // Nothing is left to post: the account system is not called at all.
  const refused = post({ ...payment('dear-2'), amount_in_cents: 101 });
  await settle();
  assert.deepEqual([refused.result, open.length], [{ result: 'done' }, 0]);
  assert.equal(observed.length, 1, 'what is not called has no duration');
});

test('a posting whose payment could not be ended is rolled back, never left half done [KT6]', async (t) => {
  const { post, open, state, announced } = rig(t);
  const one = post(payment('a'));
  await settle();
  state.endsNothing = true;
  await only(open).answer();
  await only(open).answer();
  assert.equal(one.result?.result, 'failed');
  assert.deepEqual(announced, []);
});
