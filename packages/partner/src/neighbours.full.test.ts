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
import { accepted, haveAccounts, kitDatabase } from '../test/kit.ts';

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

/** Waits until the payments have this status; fails after two minutes: a machine may be busy. */
async function until(database: Database, ids: readonly string[], status: string): Promise<void> {
  const end = performance.now() + 120_000;
  for (;;) {
    const statuses = await statusesOf(database, ids);
    if (statuses.every((one) => one === status)) return;
    assert.ok(performance.now() < end, `still ${statuses.filter((one) => one !== status).length}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 10);
    });
  }
}

/** Resolves when `holds` returns true; fails after two minutes. */
async function when(holds: () => boolean, what: string): Promise<void> {
  const end = performance.now() + 120_000;
  while (!holds()) {
    assert.ok(performance.now() < end, what);
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
}

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
