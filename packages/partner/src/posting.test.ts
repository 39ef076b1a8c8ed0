/**
 * Which payments are tried when: how long they wait beside others that hang, fail or are locked in the kit's transaction, in virtual time
 * (a database in memory with a few connections and locks of accounts, the account system of several billers, and the poster), and who has
 * the places where each is tried alone. The bounds: two seconds beside a locked account or one biller in trouble, ten in any other storm.
 * `npm run bench -- kit-neighbours` has the same on a real server.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Database, Transaction } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { PostOutcome } from './account-system.ts';
import { readRules } from './business-rules.ts';
import { kitMetrics } from './metrics.ts';
import { inTransaction } from './post-in-transaction.ts';
import { Posting, type Tried, type Try, type Way } from './posting.ts';
import type { PaymentRow } from './store.ts';
import { kitDatabase, processing, settle } from '../test/kit.ts';

/** Virtual milliseconds of a step, and of a transaction in which nothing waits. */
const STEP_MS = 10;
/** How long the payments in trouble are in trouble, and how long healthy ones come, unless the world says otherwise. */
const TROUBLE_MS = 10_000;

interface World {
  readonly connections?: number;
  /** Biller and account of the payments that hang or wait for a lock. */
  readonly sick: (index: number) => readonly [biller: string, account: string];
  /** How many there are when the healthy ones begin. */
  readonly count: number;
  /** Whether five more come in each second; default true. */
  readonly more?: boolean;
  readonly healthy?: string;
  readonly troubleMs?: number;
  readonly trouble?: 'hangs' | 'locked' | 'fails';
}

/** One run; returns the waits of the healthy payments in milliseconds, sorted. */
async function run(world: World, lockTimeout: unknown): Promise<number[]> {
  const clock = manualClock();
  const { troubleMs = TROUBLE_MS } = world;
  const rows = new Map<string, PaymentRow>();
  const posted = new Set<string>();
  const isSick = (id: string): boolean => id.startsWith('sick') && clock.monotonic() < troubleMs;
  let free = world.connections ?? 10;
  const waiting: (() => void)[] = [];
  const held = new Set<string>();
  const database = {
    connections: free,
    query: () => Promise.resolve([]),
    async transaction<T>(
      work: (tx: Transaction) => Promise<T>,
      { lockTimeoutMs }: { lockTimeoutMs: number },
    ): Promise<T> {
      if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
      else free -= 1;
      let ended: readonly string[] = [];
      const tx = {
        query(
          statement: string | { name: string },
          [ids, statuses]: [string[], PaymentRow['status'][]],
        ) {
          if (typeof statement === 'string') return Promise.resolve([own]);
          if (statement.name === 'kit_lock_payments') {
            return Promise.resolve(ids.flatMap((id) => (posted.has(id) ? [] : [rows.get(id)])));
          }
          if (statement.name === 'kit_still_processing') return Promise.resolve([]);
          ended = ids;
          return Promise.resolve(
            ids.map((id, index) => ({ ...rows.get(id), status: statuses[index] })),
          );
        },
      } as unknown as Transaction;
      const mine: string[] = [];
      const own = { mine, lockMs: lockTimeoutMs };
      try {
        const result = await work(tx);
        for (const id of ended) {
          assert.ok(!posted.has(id), `${id} is posted twice`);
          posted.add(id);
        }
        return result;
      } finally {
        for (const account of mine) held.delete(account);
        const next = waiting.shift();
        if (next) next();
        else free += 1;
      }
    },
  } as unknown as Database;
  const metrics = kitMetrics(undefined);
  const way = inTransaction({
    database,
    accounts: {
      posts: 'in_transaction',
      findAccount: () => Promise.resolve(undefined),
      async post(payments, tx): Promise<PostOutcome[]> {
        const [own] = await tx.query<{ mine: string[]; lockMs: number }>('mine', []);
        assert(own);
        for (const { account_id, platform_payment_id: id } of payments) {
          if (own.mine.includes(account_id)) continue;
          const since = clock.monotonic();
          while (held.has(account_id) || (world.trouble === 'locked' && isSick(id))) {
            await clock.sleep(STEP_MS);
            if (clock.monotonic() - since >= own.lockMs) throw lockTimeout;
          }
          held.add(account_id);
          own.mine.push(account_id);
        }
        if (payments.some((one) => isSick(one.platform_payment_id))) {
          if (world.trouble === 'fails') throw new Error('it cannot be posted');
          return new Promise(() => undefined);
        }
        await clock.sleep(STEP_MS);
        return payments.map(() => ({ outcome: 'posted' }));
      },
    },
    rules: readRules(undefined),
    announce: () => undefined,
    metrics,
    clock,
  });
  const poster = new Posting(way, { clock, metrics });
  const waits: number[] = [];
  const post = async (id: string, biller_id: string, account_id: string): Promise<void> => {
    const row = { ...processing(id, { account_id }), biller_id };
    rows.set(id, row);
    const began = clock.monotonic();
    let isRepeat = false;
    // As apply.ts does.
    for (let pauseMs = 500; ; pauseMs = Math.min(2_000, pauseMs * 2)) {
      const tried: Tried = await poster.post({ ...row }, isRepeat);
      if (tried.result === 'done') break;
      isRepeat ||= tried.result === 'failed';
      await clock.sleep(pauseMs);
    }
    if (id.startsWith('good')) waits.push(clock.monotonic() - began);
  };
  const all: Promise<void>[] = [];
  let sick = 0;
  const fallIll = (): void => {
    all.push(post(`sick-${sick}`, ...world.sick(sick)));
    sick += 1;
  };
  const healthy = world.healthy ?? 'good';
  // Before the trouble, healthy groups show how long they take.
  for (let n = 0; n < 20; n += 1) {
    all.push(post(`warm-${n}`, healthy, `H-${n % 50}`));
    await step();
  }
  for (let n = 0; n < world.count; n += 1) fallIll();
  for (let n = 0; clock.monotonic() < troubleMs; n += 1) {
    if (n % 2 === 0) all.push(post(`good-${n}`, healthy, `H-${n % 50}`));
    if (world.more !== false && n % 20 === 0) fallIll();
    await step();
  }
  for (let n = 0; posted.size < rows.size && n < 9_000; n += 1) await step();
  assert.equal(posted.size, rows.size, 'all are posted when the trouble is over');
  await Promise.all(all);
  return waits.toSorted((a, b) => a - b);

  async function step(): Promise<void> {
    await clock.advance(STEP_MS);
  }
}

/** How long the slowest healthy payment may wait: beside one thing in trouble, and in a storm. */
const [ONE, STORM] = [2_000, 10_000];

const worlds: Readonly<Record<string, World & { most: number }>> = {
  'forty payments of another biller hang': {
    sick: (index) => ['sick', `S-${index}`],
    count: 40,
    most: ONE,
  },
  'payments of another biller fail': {
    sick: (index) => ['sick', `S-${index}`],
    count: 40,
    trouble: 'fails',
    most: ONE,
  },
  'forty payments of another biller hang and there are three connections': {
    sick: (index) => ['sick', `S-${index}`],
    connections: 3,
    count: 40,
    most: ONE,
  },
  'ten accounts are locked': {
    sick: (index) => ['good', `S-${index % 10}`],
    count: 40,
    trouble: 'locked',
    most: ONE,
  },
  'the payments of one account of the only biller hang': {
    sick: () => ['good', 'S'],
    count: 40,
    most: ONE,
  },
  'forty payments of five other billers hang': {
    sick: (index) => [`sick-${index % 5}`, `S-${index}`],
    count: 40,
    most: STORM,
  },
  'two hundred payments of twenty other billers hang': {
    sick: (index) => [`sick-${index % 20}`, `S-${index}`],
    count: 200,
    troubleMs: 20_000,
    most: STORM,
  },
  'a hundred accounts of the only biller are locked': {
    sick: (index) => ['good', `S-${index % 100}`],
    count: 100,
    troubleMs: 20_000,
    trouble: 'locked',
    most: STORM,
  },
  'four hundred accounts of the only biller are locked': {
    sick: (index) => ['good', `S-${index % 400}`],
    count: 400,
    troubleMs: 30_000,
    trouble: 'locked',
    most: STORM,
  },
  'forty accounts of the only biller hang, and more and more': {
    sick: (index) => ['good', `S-${index}`],
    count: 40,
    most: STORM,
  },
};

test('beside payments that hang, fail or are locked no other waits for two seconds, or ten in a storm, and all are posted, once, when it is over [ST2 LV3 KT2 KT13]', async (t) => {
  const database = await kitDatabase(t);
  const lockTimeout = await database
    .transaction((tx) =>
      tx.query(`DO $$ BEGIN RAISE EXCEPTION 'made' USING ERRCODE = '55P03'; END $$`),
    )
    .catch((error: unknown) => error);
  for (const [name, world] of Object.entries(worlds)) {
    const waits = await run(world, lockTimeout);
    const slowest = waits.at(-1) ?? Number.NaN;
    t.diagnostic(`${name}: the slowest of ${waits.length} waited ${slowest} ms`);
    assert.ok(slowest <= world.most, `${name}: ${slowest} ms`);
  }
  // With one connection that a posting holds there is none for others. Still all are posted.
  const alone = worlds['forty payments of another biller hang'];
  assert(alone);
  await run({ ...alone, connections: 1, count: 4, more: false }, lockTimeout);
});

/** A poster of some places, whose tries return when the test says so; `post` and `end` give the accounts that are tried then. */
function held(places: number, together?: Way['together']) {
  const clock = manualClock();
  const figures = new Map<string, () => number>();
  const open: { one: Try; end: (tried: Tried) => void }[] = [];
  const way: Way = {
    places,
    repeats: places,
    alone: (one) => new Promise((end) => open.push({ one, end })),
    ...(together && { together }),
  };
  const metrics = {
    ...kitMetrics(undefined),
    watch: (name: string, value: () => number) => void figures.set(name, value),
  };
  const poster = new Posting(way, { clock, metrics });
  let count = 0;
  const begun = async (): Promise<string[]> => {
    const before = open.length;
    await settle();
    return open
      .slice(before)
      .map(({ one: { payment } }) => `${payment.biller_id}/${payment.account_id}`);
  };
  return {
    clock,
    figures,
    post: (...accounts: string[]): Promise<string[]> => {
      for (const account of accounts) {
        const [biller_id = '', account_id = ''] = account.split('/');
        void poster.post(processing(`p-${(count += 1)}`, { biller_id, account_id }), false);
      }
      return begun();
    },
    /** All open tries are beyond their deadline. */
    late: (): Promise<string[]> => {
      for (const { one } of open) if (!one.isLate) one.late();
      return begun();
    },
    /** The first open try ends. */
    end: (result: 'done' | 'locked' = 'done'): Promise<string[]> => {
      open.shift()?.end({ result });
      return begun();
    },
  };
}

const many = (biller: string, count: number): string[] =>
  Array.from({ length: count }, (_, account) => `${biller}/${account}`);

test('billers that hang leave half of what is free to others; calls beyond their deadline have no place [ST2 LV3]', async () => {
  const { post, late, figures } = held(8);
  const shares: number[] = [];
  for (const biller of ['a', 'b', 'c', 'd', 'e'])
    shares.push((await post(...many(biller, 99))).length);
  assert.deepEqual(shares, [4, 2, 1, 1, 0]);
  const next = await late();
  assert.deepEqual(next.map((one) => one.charAt(0)).toSorted(), [
    'a',
    'a',
    'b',
    'b',
    'c',
    'd',
    'e',
  ]);
  assert.deepEqual([figures.get('calls_open')?.(), figures.get('calls_late')?.()], [15, 8]);
  assert.deepEqual(await post('f/1'), ['f/1'], 'one place was left for another biller');
  for (let round = 0; round < 99; round += 1) await late();
  const most = 5 * (4 * 8 + 4) + 1;
  const lateOf = figures.get('calls_late')?.() ?? Infinity;
  assert.ok(lateOf <= most, `a biller that ignores its signals has no more late calls: ${lateOf}`);
  assert.deepEqual(await post('g/1'), ['g/1']);
});

test('an account has one place, and none beside a late call; billers and accounts take turns [ST2 LV3]', async () => {
  const { post, late, end } = held(2);
  assert.deepEqual(await post('a/1', 'a/1', 'a/2', 'b/1', 'b/1'), ['a/1', 'b/1']);
  await post('c/1');
  assert.deepEqual(await end(), ['a/2'], 'a/1 had its turn');
  assert.deepEqual(await end(), ['b/1']);
  assert.deepEqual(await end(), ['c/1'], 'a had its turn');
  assert.deepEqual(await end(), ['a/1']);
  await end();
  assert.deepEqual(await post('b/1', 'b/1', 'b/2'), ['b/1']);
  assert.deepEqual(await late(), ['b/2'], 'b/1 waits for the late call of its account');
});

test('with one place nothing can be left to others: they wait for the deadline [LV3]', async () => {
  const { post, late } = held(1);
  assert.deepEqual(await post('a/1', 'b/1'), ['a/1']);
  assert.deepEqual(await late(), ['b/1']);
});

test('an account that was locked is suspected for a minute, also when another replica posts what waits for it [LV7]', async () => {
  const { clock, post, end, figures } = held(2, (payments) =>
    Promise.resolve(payments.map(() => ({ result: 'locked' }))),
  );
  assert.deepEqual(await post('a/1'), ['a/1']);
  await end('locked');
  assert.equal(figures.get('locked_accounts')?.(), 1);
  await clock.advance(60_000);
  assert.equal(figures.get('locked_accounts')?.(), 0);
  assert.deepEqual(await post('a/1'), ['a/1']);
  await end();
  assert.equal(figures.get('locked_accounts')?.(), 0, 'it was posted');
});
