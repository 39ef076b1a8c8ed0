/** No payment waits for another: one that is locked, refused, hung, slow or late delays only itself. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, systemClock, type Database } from '@duebridge/runtime';
import type { TestDatabase } from '@duebridge/runtime/testing';
import type {
  AccountsInOwnSystem,
  AccountsInTransaction,
  Posting,
  PostOutcome,
} from './account-system.ts';
import { openApplier, type Applier, type ApplierOptions } from './apply.ts';
import { ledger } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { findPayments } from './store.ts';
import { accepted, haveAccounts, kitDatabase } from './testing.ts';

/** An applier on the database, stopped with it: one that a failed test leaves behind would keep the process alive. */
function applierOn(database: TestDatabase, options: Partial<ApplierOptions> = {}): Applier {
  const applier = openApplier({
    database,
    accounts: ledger(database),
    billers: undefined,
    holdMs: 0,
    announce: () => undefined,
    metrics: kitMetrics(undefined),
    log: silentLog,
    clock: systemClock,
    ...options,
  });
  let stopping: Promise<void> | undefined;
  const stop = applier.stop.bind(applier);
  applier.stop = () => (stopping ??= stop());
  database.closing(() => applier.stop());
  return applier;
}

function idsOf(count: number, prefix = 'p'): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}

async function statusesOf(database: Database, ids: readonly string[]): Promise<string[]> {
  const rows = await findPayments(database, ids);
  return ids.map((id) => rows.get(id)?.status ?? 'absent');
}

/** Waits until the payments have this status; fails after a minute: a machine may be busy. */
async function until(database: Database, ids: readonly string[], status: string): Promise<void> {
  const end = performance.now() + 60_000;
  for (;;) {
    const statuses = await statusesOf(database, ids);
    if (statuses.every((one) => one === status)) return;
    assert.ok(performance.now() < end, `still ${statuses.filter((one) => one !== status).length}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
}

/** Resolves when `holds` returns true; fails after 20 seconds. */
async function when(holds: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 20_000;
  while (!holds()) {
    assert.ok(performance.now() < end, what);
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
}

test('an account row that another session keeps locked delays no payment of another account [ST2 RU3 LV3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'locked' });
  const applier = applierOn(database);
  applier.start();
  const release = Promise.withResolvers<void>();
  const holding = Promise.withResolvers<void>();
  const holder = database.transaction(async (tx) => {
    await tx.query(
      `SELECT 1 FROM duebridge_partner.account WHERE account_id = 'locked' FOR UPDATE`,
    );
    holding.resolve();
    await release.promise;
  });
  await holding.promise;
  const locked = await accepted(database, idsOf(40, 'locked'), { account_id: 'locked' });
  try {
    applier.take(locked);
    // Among them, and after them while the lock is held.
    for (let wave = 0; wave < 4; wave += 1) {
      const ids = idsOf(25, `good-${wave}`);
      const rows = await accepted(database, ids);
      const began = performance.now();
      applier.take(wave === 0 ? [...locked, ...rows] : rows);
      await until(database, ids, 'succeeded');
      t.diagnostic(`wave ${wave}: ${Math.round(performance.now() - began)} ms`);
    }
    // Nothing waited for the lock: it is still held.
    assert.deepEqual(
      new Set(await statusesOf(database, idsOf(40, 'locked'))),
      new Set(['processing']),
    );
  } finally {
    release.resolve();
    await holder;
  }
  await until(database, idsOf(40, 'locked'), 'succeeded');
  await applier.stop();
});

test('an account that a batch job locks again and again gets its turn, and its job meets no deadlock [ST2 LV3 KT13]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'busy-1' }, { account_id: 'busy-2' });
  const applier = applierOn(database);
  applier.start();
  // The job holds each account for longer than a group waits, and takes the two in the other order than a posting does.
  const over = new AbortController();
  let tries = 0;
  let rounds = 0;
  const job = (async () => {
    while (!over.signal.aborted) {
      await database.transaction(async (tx) => {
        tries += 1;
        for (const account_id of ['busy-2', 'busy-1']) {
          await tx.query('SELECT FROM duebridge_partner.account WHERE account_id = $1 FOR UPDATE', [
            account_id,
          ]);
          await pause(60);
        }
      });
      rounds += 1;
    }
  })();
  try {
    for (let wave = 0; wave < 5; wave += 1) {
      const ids = idsOf(3, `busy-${wave}`);
      const rows = [
        ...(await accepted(database, ids, { account_id: 'busy-1' })),
        ...(await accepted(database, [`both-${wave}`], { account_id: 'busy-2' })),
        ...(await accepted(database, idsOf(5, `good-${wave}`))),
      ];
      applier.take(rows);
      // While the job goes on.
      await until(database, [...ids, `both-${wave}`, ...idsOf(5, `good-${wave}`)], 'succeeded');
    }
  } finally {
    over.abort();
    await job;
    await applier.stop();
  }
  assert.equal(tries, rounds, 'no transaction of the job was the victim of a deadlock');
});

const wrongs: Readonly<Record<string, () => readonly PostOutcome[]>> = {
  'an assertion': () => assert.fail('a bug that only one payment meets'),
  'an empty reason': () => [{ outcome: 'failed', reason: ' ' }],
  'too few outcomes': () => [],
  'no outcome': () => [{ outcome: 'perhaps' } as unknown as PostOutcome],
  'an impossible time': () => [{ outcome: 'posted', posted_at: 'yesterday' }],
};
for (const [name, wrong] of Object.entries(wrongs)) {
  test(`${name} from the account system for one payment: its twenty neighbours are posted [ST2 PF5]`, async (t) => {
    const database = await kitDatabase(t);
    await haveAccounts(database);
    const kitLedger = ledger(database);
    const accounts: AccountsInTransaction = {
      ...kitLedger,
      post: (payments, tx) =>
        payments.some(({ platform_payment_id: id }) => id === 'p-7')
          ? Promise.resolve(
              payments.length === 1
                ? wrong()
                : payments.flatMap(({ platform_payment_id: id }): PostOutcome[] =>
                    id === 'p-7' ? [...wrong()] : [{ outcome: 'posted' }],
                  ),
            )
          : kitLedger.post(payments, tx),
    };
    const applier = applierOn(database, { accounts });
    applier.take(await accepted(database, idsOf(21)));
    await applier.stop();
    const statuses = await statusesOf(database, idsOf(21));
    assert.equal(statuses.filter((status) => status === 'succeeded').length, 20);
    assert.equal(statuses[7], 'processing');
    const posted = await database.query(
      `SELECT 1 FROM duebridge_partner.transfer WHERE kind = 'payment'`,
    );
    assert.equal(posted.length, 20, 'the ledger agrees with the payments');
  });
}

test('a posting in the kit’s transaction that never returns delays only itself, and no stop [ST2 LV5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const kitLedger = ledger(database);
  const accounts: AccountsInTransaction = {
    ...kitLedger,
    post: (payments, tx) =>
      payments.some(({ biller_id }) => biller_id === 'sick')
        ? new Promise(() => undefined)
        : kitLedger.post(payments, tx),
  };
  const applier = applierOn(database, { accounts });
  applier.take([
    ...(await accepted(database, idsOf(40, 'hung'), { biller_id: 'sick' })),
    ...(await accepted(database, idsOf(20))),
  ]);
  await until(database, idsOf(20), 'succeeded');
  const [hung] = await statusesOf(database, ['hung-0']);
  assert.equal(hung, 'processing');
  const began = performance.now();
  await applier.stop();
  // Forty that hang for two seconds each, one after the other, would take more than a minute.
  assert.ok(performance.now() - began < 20_000);
});

/** An external account system with scripted answers that records its calls. */
function core(
  behave: (payment: Posting, signal: AbortSignal) => Promise<PostOutcome> | PostOutcome,
  more: Partial<AccountsInOwnSystem> = {},
): { accounts: AccountsInOwnSystem; asked: string[]; sizes: number[]; most: () => number } {
  const asked: string[] = [];
  const sizes: number[] = [];
  let now = 0;
  let most = 0;
  return {
    asked,
    sizes,
    most: () => most,
    accounts: {
      posts: 'in_own_system',
      findAccount: () => Promise.resolve(undefined),
      async post(payments, signal) {
        asked.push(...payments.map((payment) => payment.platform_payment_id));
        sizes.push(payments.length);
        now += 1;
        most = Math.max(most, now);
        try {
          const outcomes: PostOutcome[] = [];
          for (const payment of payments) outcomes.push(await behave(payment, signal));
          return outcomes;
        } finally {
          now -= 1;
        }
      },
      ...more,
    },
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

test('a core called one by one posts all payments, each once, within its concurrency [ST2]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts, asked, sizes, most } = core(async () => {
    await pause(5);
    return { outcome: 'posted' };
  });
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, idsOf(60)));
  await until(database, idsOf(60), 'succeeded');
  await applier.stop();
  assert.deepEqual(asked.toSorted(), idsOf(60).toSorted());
  assert.deepEqual(new Set(sizes), new Set([1]));
  assert.ok(most() <= 8, String(most()));
});

test('a slow core gets too large a batch: late answers count, batches halve, all are posted once [ST2]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts, asked, sizes } = core(
    async () => {
      await pause(20);
      return { outcome: 'posted' };
    },
    // 32 take 640 ms, more than twice the deadline.
    { calls: { batch: 32, concurrency: 1, deadlineMs: 300 } },
  );
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, idsOf(64)));
  await until(database, idsOf(64), 'succeeded');
  await applier.stop();
  assert.deepEqual(asked.toSorted(), idsOf(64).toSorted(), 'each was asked for once');
  assert.equal(sizes[0], 32);
  assert.ok(Math.min(...sizes) <= 16, sizes.join());
});

test('while a call runs, however late, its payment is in no other call at any replica, and its answer counts [PF2 ST2 F85]', async (t) => {
  const database = await kitDatabase(t);
  const answer = Promise.withResolvers<PostOutcome>();
  const { accounts, asked } = core(
    ({ platform_payment_id: id }) => (id === 'slow-0' ? answer.promise : { outcome: 'posted' }),
    { calls: { deadlineMs: 100, concurrency: 1 } },
  );
  const replicas = [applierOn(database, { accounts }), applierOn(database, { accounts })];
  for (const replica of replicas) replica.start();
  const rows = await accepted(database, ['slow-0', ...idsOf(10)]);
  for (const replica of replicas) replica.take(rows);
  await until(database, idsOf(10), 'succeeded');
  // Longer than the deadline, the age of a sweep and several retries.
  await pause(4_500);
  assert.deepEqual(
    asked.filter((id) => id === 'slow-0'),
    ['slow-0'],
  );
  answer.resolve({ outcome: 'posted', posted_at: '2020-01-01T00:00:00+02:00' });
  await until(database, ['slow-0'], 'succeeded');
  for (const replica of replicas) await replica.stop();
  assert.equal(asked.length, 11);
  const row = (await findPayments(database, ['slow-0'])).get('slow-0');
  assert.equal(row?.posted_at, row?.initiated_at, 'never before it was accepted');
});

test('a call that never returns delays only its payment, and not a stop [ST2 LV5]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts } = core(
    ({ platform_payment_id: id }) =>
      id.startsWith('hung') ? new Promise(() => undefined) : { outcome: 'posted' },
    { calls: { deadlineMs: 200, concurrency: 2 } },
  );
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, idsOf(6, 'hung')));
  applier.take(await accepted(database, idsOf(20)));
  await until(database, idsOf(20), 'succeeded');
  const began = performance.now();
  await applier.stop();
  assert.ok(performance.now() - began < 15_000);
});

/** A core that answers at once, except for what hangs until it is let go. */
function hangingCore(hangs: (payment: Posting) => boolean, calls: AccountsInOwnSystem['calls']) {
  const released = Promise.withResolvers<PostOutcome>();
  const made = core(
    (payment) => (hangs(payment) ? released.promise : { outcome: 'posted' }),
    calls === undefined ? {} : { calls },
  );
  return { ...made, release: () => released.resolve({ outcome: 'posted' }) };
}

const hanging: Readonly<Record<string, { sick: object; healthy: object }>> = {
  'a biller whose core hangs leaves places to other billers': {
    sick: { biller_id: 'sick' },
    healthy: { biller_id: 'healthy' },
  },
  'an account whose calls hang leaves places to other accounts': {
    sick: { account_id: 'sick' },
    healthy: { account_id: 'healthy' },
  },
};
for (const [title, { sick, healthy }] of Object.entries(hanging)) {
  test(`${title}, before the first deadline and when calls are late for good [ST2 LV3]`, async (t) => {
    const database = await kitDatabase(t);
    for (const [round, calls] of [{}, { deadlineMs: 20, giveUpMs: 600_000 }].entries()) {
      const { accounts, asked, release } = hangingCore(
        ({ platform_payment_id: id }) => id.startsWith('hung'),
        calls,
      );
      const applier = applierOn(database, { accounts });
      database.closing(() => {
        release();
        return applier.stop();
      });
      const hung = idsOf(100, `hung-${round}`);
      applier.take(await accepted(database, idsOf(1, `first-${round}`), healthy));
      applier.take(await accepted(database, hung, sick));
      // As many as it ever gets: the second time until late calls count against it too.
      await when(() => asked.filter((id) => id.startsWith('hung')).length >= 4, 'calls hang');
      if (round === 1) await pause(400);
      const good = idsOf(40, `good-${round}`);
      applier.take(await accepted(database, good, healthy));
      await until(database, good, 'succeeded');
      const statuses = new Set(await statusesOf(database, hung));
      assert.deepEqual(statuses, new Set(['processing']), 'they hang still');
      release();
      if (round === 0) await until(database, hung, 'succeeded');
      await applier.stop();
    }
  });
}

test('hundreds of payments of one biller wait by themselves: one of another biller is next [ST2 LV3]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts, asked } = core(async () => {
    await pause(1);
    return { outcome: 'posted' };
  });
  const applier = applierOn(database, { accounts });
  const many = await accepted(database, idsOf(300), { biller_id: 'busy' });
  const other = await accepted(database, ['other'], { biller_id: 'other' });
  applier.take(many);
  await when(() => asked.length >= 10, 'the busy biller is called');
  const before = asked.length;
  applier.take(other);
  await when(() => asked.includes('other'), 'its turn comes');
  // Eight calls at once were about to be made.
  assert.ok(asked.indexOf('other') <= before + 16, `${asked.indexOf('other')} of ${before}`);
  await until(database, ['other', ...idsOf(300)], 'succeeded');
  await applier.stop();
});

test('after a crash the outcome is looked up, and only payments unknown to the core are posted [PF2 ST2 ST3]', async (t) => {
  const database = await kitDatabase(t);
  // A replica that claimed three payments and lost its lease in the middle of its calls.
  const answer = Promise.withResolvers<PostOutcome>();
  const stalled = core(() => answer.promise, { calls: { concurrency: 3 } });
  const died = applierOn(database, { accounts: stalled.accounts });
  const ids = ['booked', 'refused', 'unheard'];
  died.take(await accepted(database, ids));
  await when(() => stalled.asked.length === 3, 'all were asked for');
  await database.query(
    `UPDATE duebridge_partner.replica SET lease_until = now() - interval '1 second'`,
  );

  const looked: string[] = [];
  const next = core(() => ({ outcome: 'posted' }), {
    lookup(id) {
      looked.push(id);
      const known: Record<string, PostOutcome> = {
        booked: { outcome: 'posted' },
        refused: { outcome: 'failed', reason: 'No such account.' },
      };
      return Promise.resolve(known[id]);
    },
  });
  const heir = applierOn(database, { accounts: next.accounts });
  await heir.sweep(0);
  await heir.stop();
  assert.deepEqual(looked.toSorted(), ids);
  assert.deepEqual(next.asked, ['unheard']);
  assert.deepEqual(await statusesOf(database, ids), ['succeeded', 'failed', 'succeeded']);
  // The replica was not dead. Answers that it receives now change nothing, and contradictions are recorded.
  answer.resolve({ outcome: 'posted' });
  await died.stop();
  assert.deepEqual(await statusesOf(database, ids), ['succeeded', 'failed', 'succeeded']);
  const audit = await database.query(
    `SELECT platform_payment_id AS id, detail FROM duebridge_partner.payment_audit WHERE event = 'contradicted'`,
  );
  assert.deepEqual(audit, [{ id: 'refused', detail: { status: 'succeeded' } }]);
});

test('a failed lookup posts nothing: the outcome stays unknown and is looked up again [PF2]', async (t) => {
  const database = await kitDatabase(t);
  let isDown = true;
  let posts = 0;
  const { accounts } = core(
    () => {
      posts += 1;
      throw new Error('the connection was lost after the request had left');
    },
    {
      lookup: () =>
        isDown ? Promise.reject(new Error('down')) : Promise.resolve({ outcome: 'posted' }),
    },
  );
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['p']));
  await when(() => posts === 1, 'posted once');
  applier.start();
  await pause(2_500);
  isDown = false;
  await until(database, ['p'], 'succeeded');
  await applier.stop();
  assert.equal(posts, 1);
});

/** The versions of a table's rows: a write makes another one. PostgreSQL's statistics come up to seconds after the write that they count. */
function versionsOf(
  database: Database,
  table: 'payment' | 'payment_processing',
): Promise<object[]> {
  return database.query(
    `SELECT platform_payment_id AS id, tableoid::text, ctid::text, xmin::text FROM duebridge_partner.${table} ORDER BY 1`,
  );
}

test('"later" costs no write per request, may name the next time, and still allows a cancel [ST1 ST4]', async (t) => {
  const database = await kitDatabase(t);
  const answers = new Map<string, PostOutcome>([
    ['again', { outcome: 'later' }],
    ['tomorrow', { outcome: 'later', until: new Date(Date.now() + 86_400_000).toISOString() }],
    ['taken', { outcome: 'later', cancelable: false }],
  ]);
  const { accounts, asked } = core(({ platform_payment_id: id }) => answers.get(id)!);
  const [one, other] = [applierOn(database, { accounts }), applierOn(database, { accounts })];
  const ids = [...answers.keys()];
  const rows = await accepted(database, ids);
  one.start();
  one.take(rows);
  await when(() => new Set(asked).size === 3, 'all were asked for');
  await when(() => asked.filter((id) => id === 'again').length === 2, 'asked again');
  const versions = (): Promise<object[][]> =>
    Promise.all([versionsOf(database, 'payment'), versionsOf(database, 'payment_processing')]);
  const before = await versions();
  assert.deepEqual([before[0]?.length, before[1]?.length], [3, 3]);
  await when(() => asked.filter((id) => id === 'again').length === 3, 'and again');
  assert.deepEqual(await versions(), before);
  assert.equal(asked.filter((id) => id === 'tomorrow').length, 1, 'not before its time');

  // At the replica that receives the request, and at another one.
  assert.equal((await one.cancel('tomorrow', 'operator', 'x')).outcome, 'canceled');
  assert.equal((await other.cancel('again', 'operator', 'x')).outcome, 'canceled');
  assert.equal((await other.cancel('taken', 'operator', 'x')).outcome, 'too_late');
  assert.equal((await one.cancel('taken', 'operator', 'x')).outcome, 'too_late');
  assert.deepEqual(await statusesOf(database, ids), ['canceled', 'canceled', 'processing']);
  await Promise.all([one.stop(), other.stop()]);
  const audit = await database.query(
    `SELECT platform_payment_id AS id FROM duebridge_partner.payment_audit WHERE event = 'canceled' AND actor = 'operator' ORDER BY 1`,
  );
  assert.deepEqual(audit, [{ id: 'again' }, { id: 'tomorrow' }]);
});

test('an account system may cancel a payment, and may set the time at which it posted [ST4 PF8]', async (t) => {
  const database = await kitDatabase(t);
  const soon = new Date(Date.now() + 3_600_000).toISOString();
  const { accounts } = core(({ platform_payment_id: id }) =>
    id === 'stopped' ? { outcome: 'canceled' } : { outcome: 'posted', posted_at: soon },
  );
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['stopped', 'ahead']));
  await applier.stop();
  const rows = await findPayments(database, ['stopped', 'ahead']);
  assert.equal(rows.get('stopped')?.status, 'canceled');
  assert.ok(
    (rows.get('ahead')?.posted_at ?? '') < soon,
    'a clock that is ahead posts nothing in the future',
  );
});
