import assert from 'node:assert/strict';
import test from 'node:test';
import { FAILURE_REASONS } from '@duebridge/contract';
import {
  DatabaseUnavailable,
  silentLog,
  systemClock,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type {
  AccountsInOwnSystem,
  AccountsInTransaction,
  Posting,
  PostOutcome,
} from './account-system.ts';
import { openApplier, type Applier, type ApplierOptions } from './apply.ts';
import { ledger } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { cancelPayment } from './cancel.ts';
import { endPayments, findPayments, insertPayments, type PaymentRow } from './store.ts';
import {
  accepted,
  ended,
  haveAccounts,
  instruction,
  kitDatabase,
  paymentPath,
  startKit,
} from '../test/kit.ts';

/** An applier that runs only when the test calls it. */
function applierOn(database: Database, options: Partial<ApplierOptions> = {}): Applier {
  return openApplier({
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
}

async function statusOf(database: Database, id: string): Promise<string | undefined> {
  return (await findPayments(database, [id])).get(id)?.status;
}

async function owed(database: Database, account_id = 'A-1'): Promise<number> {
  const [row] = await database.query<{ owed: number }>(
    'SELECT amount_due_in_cents AS owed FROM duebridge_partner.account WHERE account_id = $1',
    [account_id],
  );
  return row!.owed;
}

test('payments that a crash left processing are finished once, by the next start [RU3 ST2 KT13]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  await accepted(database, ['left-1', 'left-2', 'left-3']);
  const partner = await startKit(database);
  for (const id of ['left-1', 'left-2', 'left-3']) {
    assert.equal((await ended(partner, id)).body['status'], 'succeeded');
  }
  assert.equal(await owed(database), 100_000 - 300);
});

test('more than a page of payments left by a crash is finished, whatever the order of their ids [RU3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  await accepted(
    database,
    Array.from({ length: 2_300 }, (_, index) => `p-${(index * 7) % 2_300}`),
  );
  const applier = applierOn(database);
  let tried = 0;
  for (let round = 0; round < 3; round += 1) tried += await applier.sweep(0);
  assert.equal(tried, 2_300);
  const [row] = await database.query(
    `SELECT count(*)::int AS n FROM duebridge_partner.payment WHERE status = 'succeeded'`,
  );
  assert.equal(row?.['n'], 2_300);
});

test('two replicas that apply the same payments post each once [ST2 RU2 KT2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const ids = Array.from({ length: 300 }, (_, index) => `p-${index}`);
  const rows = [
    ...(await accepted(database, ids.slice(0, 150))),
    ...(await accepted(database, ids.slice(150), { account_id: 'A-2' })),
  ];
  const endings: string[] = [];
  const announce = (done: readonly PaymentRow[]): void => {
    endings.push(...done.map((row) => row.platform_payment_id));
  };
  const appliers = [applierOn(database, { announce }), applierOn(database, { announce })];
  appliers[0]!.take(rows);
  appliers[1]!.take(rows.toReversed());
  await Promise.all(appliers.map((applier) => applier.stop()));
  assert.deepEqual(endings.sort(), ids.toSorted(), 'each ended at one of the two');
  assert.equal(
    (await database.query(`SELECT 1 FROM duebridge_partner.transfer WHERE kind = 'payment'`))
      .length,
    300,
  );
  assert.deepEqual([await owed(database), await owed(database, 'A-2')], [85_000, 85_000]);
});

test('a crash in the middle of posting leaves neither half done, and the next attempt does both [ST2 PF8 KT6]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const [row] = await accepted(database, ['half']);
  const kitLedger = ledger(database);
  // Together with others, and alone.
  let crashes = 2;
  const accounts: AccountsInTransaction = {
    ...kitLedger,
    async post(payments, tx) {
      const outcomes = await kitLedger.post(payments, tx);
      if (crashes > 0) {
        crashes -= 1;
        // Ends its own database session, as a crash of the process or of the server would.
        await tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
      }
      return outcomes;
    },
  };
  const applier = applierOn(database, { accounts });
  applier.take([row!]);
  await applier.stop();
  assert.equal(await statusOf(database, 'half'), 'processing');
  assert.equal(await owed(database), 100_000);
  assert.deepEqual(
    await database.query(`SELECT 1 FROM duebridge_partner.transfer WHERE kind = 'payment'`),
    [],
  );
  // On a busy machine a try may also run into its time limit, which changes nothing either.
  while ((await statusOf(database, 'half')) === 'processing') {
    await applierOn(database, { accounts }).sweep(0);
  }
  assert.equal(crashes, 0);
  assert.equal(await statusOf(database, 'half'), 'succeeded');
  assert.equal(await owed(database), 99_900);
});

test('a payment that cannot be posted delays no other [ST2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const rows = await accepted(database, ['good-1', 'poison', 'good-2', 'good-3']);
  const kitLedger = ledger(database);
  const accounts: AccountsInTransaction = {
    ...kitLedger,
    post(payments: readonly Posting[], tx: Transaction) {
      if (payments.some(({ platform_payment_id }) => platform_payment_id === 'poison')) {
        throw new Error('a bug that only one payment meets');
      }
      return kitLedger.post(payments, tx);
    },
  };
  const applier = applierOn(database, { accounts });
  applier.take(rows);
  await applier.stop();
  for (const id of ['good-1', 'good-2', 'good-3']) {
    assert.equal(await statusOf(database, id), 'succeeded');
  }
  assert.equal(await statusOf(database, 'poison'), 'processing');
});

test('a payment answered with later is asked for again and then ends [ST1 ST2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const [row] = await accepted(database, ['nightly']);
  const kitLedger = ledger(database);
  let isNight = false;
  const accounts: AccountsInTransaction = {
    ...kitLedger,
    post: (payments, tx) =>
      isNight
        ? kitLedger.post(payments, tx)
        : Promise.resolve(payments.map(() => ({ outcome: 'later' }) as const)),
  };
  const evening = applierOn(database, { accounts });
  evening.take([row!]);
  await evening.stop();
  assert.equal(await statusOf(database, 'nightly'), 'processing');
  isNight = true;
  await applierOn(database, { accounts }).sweep(0);
  assert.equal(await statusOf(database, 'nightly'), 'succeeded');
});

test('a cancel races the posting: there is one terminal status, and the ledger agrees with it [ST4 RU2 KT5 F94]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const ids = Array.from({ length: 60 }, (_, index) => `race-${index}`);
  const rows = await accepted(database, ids);
  const applier = applierOn(database);
  const cancels = ids.map((id, index) =>
    index % 2 === 0
      ? cancelPayment(database, id, 'operator', 'race')
      : new Promise((resolve) => {
          setImmediate(resolve);
        }).then(() => cancelPayment(database, id, 'operator', 'race')),
  );
  applier.take(rows);
  const outcomes = await Promise.all(cancels);
  await applier.stop();
  const stored = await findPayments(database, ids);
  ids.forEach((id, index) => {
    const expected = outcomes[index]?.outcome === 'canceled' ? 'canceled' : 'succeeded';
    assert.equal(stored.get(id)?.status, expected, id);
  });
  const posted = [...stored.values()].filter(({ status }) => status === 'succeeded').length;
  assert.equal(await owed(database), 100_000 - posted * 100);
  const audits = await database.query(
    `SELECT 1 FROM duebridge_partner.payment_audit WHERE event = 'canceled'`,
  );
  assert.equal(audits.length, ids.length - posted);
});

test('a cancel races the acceptance: the payment is not found yet or canceled, never too late [ST4 ST1]', async (t) => {
  const database = await kitDatabase(t);
  for (let round = 0; round < 150; round += 1) {
    const platform_payment_id = `race-${round}`;
    const insert = insertPayments(database, [
      {
        platform_payment_id,
        platform_batch_id: 'batch-1',
        biller_id: 'acme',
        account_id: 'A-1',
        client_id: 'static-key',
        amount_in_cents: 100,
      },
    ]);
    for (let outcome = 'not_found'; outcome !== 'canceled';) {
      ({ outcome } = await cancelPayment(database, platform_payment_id, 'operator', 'race'));
      assert.ok(outcome === 'not_found' || outcome === 'canceled', outcome);
    }
    await insert;
  }
});

test('a canceled payment is never posted, and stays canceled when it is put again [ST4 RU2 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const partner = await startKit(database, { holdMs: 600_000 });
  await partner.call('PUT', paymentPath('c'), { body: instruction() });
  const waiting = ended(partner, 'c');
  const { outcome } = await partner.app.partnerKit.cancel('c', 'operator', 'asked by the customer');
  assert.equal(outcome, 'canceled');
  const end = await waiting;
  assert.deepEqual([end.body['status'], end.body['posted_at']], ['canceled', null]);
  const again = await partner.call('PUT', paymentPath('c'), { body: instruction() });
  assert.deepEqual(again.body, end.body);
  await applierOn(database).sweep(0);
  assert.equal(await owed(database), 100_000);
});

test('nothing is posted during the cancel window, everything after it [ST4 ST2]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const [row] = await accepted(database, ['held']);
  const applier = applierOn(database, { holdMs: 600_000 });
  applier.take([row!]);
  assert.equal(await applier.sweep(0), 0);
  await database.query(
    `UPDATE duebridge_partner.payment_processing SET initiated_at = initiated_at - interval '11 minutes'`,
  );
  assert.equal(await applier.sweep(0), 1);
  assert.equal(await statusOf(database, 'held'), 'succeeded');
});

test('the rules of a biller: unknown biller, amount above its maximum or the account’s, below its minimum [FR1 ST3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(
    database,
    {},
    { account_id: 'limited', min_amount_in_cents: 200, max_amount_in_cents: 500 },
  );
  const billers = [{ biller_id: 'acme', max_amount_in_cents: 1_000 }];
  const rows = [
    ...(await accepted(database, ['stranger'], { biller_id: 'other' })),
    ...(await accepted(database, ['above'], { amount_in_cents: 1_001 })),
    ...(await accepted(database, ['at'], { amount_in_cents: 1_000 })),
    ...(await accepted(database, ['over'], { account_id: 'limited', amount_in_cents: 501 })),
    ...(await accepted(database, ['under'], { account_id: 'limited', amount_in_cents: 199 })),
    ...(await accepted(database, ['edge'], { account_id: 'limited', amount_in_cents: 500 })),
  ];
  const applier = applierOn(database, { billers });
  applier.take(rows);
  await applier.stop();
  const stored = await findPayments(
    database,
    rows.map((row) => row.platform_payment_id),
  );
  const reasons = Object.fromEntries([...stored].map(([id, row]) => [id, row.failure_reason]));
  assert.match(reasons['under'] ?? '', /minimum/);
  assert.deepEqual(
    { ...reasons, under: null },
    {
      stranger: FAILURE_REASONS.account,
      above: FAILURE_REASONS.maximum,
      at: null,
      over: FAILURE_REASONS.maximum,
      under: null,
      edge: null,
    },
  );
  assert.deepEqual([await owed(database), await owed(database, 'limited')], [99_000, 99_500]);
});

test('a duplicate payment fails if the biller wants that; an idempotent retry never does [FR1 RU5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database, {}, { account_id: 'A-2' });
  const billers = [{ biller_id: 'acme', duplicate_window_seconds: 600 }];
  const partner = await startKit(database, { billers });
  const put = async (id: string, cents: number, account = 'A-1'): Promise<unknown> => {
    const path = paymentPath(id, account);
    await partner.call('PUT', path, { body: instruction(cents) });
    const { body } = await ended(partner, id, path);
    return body['failure_reason'] ?? body['status'];
  };
  assert.equal(await put('first', 500), 'succeeded');
  assert.equal(await put('first', 500), 'succeeded');
  assert.equal(await put('second', 500), FAILURE_REASONS.duplicate);
  assert.equal(await put('other-amount', 501), 'succeeded');
  assert.equal(await put('other-account', 500, 'A-2'), 'succeeded');
  assert.equal(await put('first', 500), 'succeeded');
});

test('equal payments are both posted if the biller wants no detection [FR1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const rows = await accepted(database, ['one', 'two']);
  const applier = applierOn(database, { billers: [{ biller_id: 'acme' }] });
  applier.take(rows);
  await applier.stop();
  assert.equal(await owed(database), 99_800);
});

test('of equal payments in flight at several replicas exactly one is posted [FR1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const billers = [{ biller_id: 'acme', duplicate_window_seconds: 600 }];
  for (let round = 0; round < 15; round += 1) {
    const cents = 100 + round;
    const ids = [`a-${round}`, `b-${round}`, `c-${round}`];
    // Accepted and applied in parallel, so that one may be decided before another is visible.
    await Promise.all(
      ids.map(async (id) => {
        const rows = await accepted(database, [id], { amount_in_cents: cents });
        const applier = applierOn(database, { billers });
        applier.take(rows);
        await applier.stop();
      }),
    );
    const statuses = [...(await findPayments(database, ids)).values()].map(({ status }) => status);
    assert.deepEqual(statuses.sort(), ['failed', 'failed', 'succeeded'], `round ${round}`);
  }
});

test('a failed or canceled payment does not make a later one a duplicate [FR1]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const billers = [{ biller_id: 'acme', duplicate_window_seconds: 600 }];
  await accepted(database, ['canceled', 'failed']);
  await cancelPayment(database, 'canceled', 'operator', 'test');
  await endPayments(database, [
    { platform_payment_id: 'failed', status: 'failed', failure_reason: 'no' },
  ]);
  const applier = applierOn(database, { billers });
  applier.take(await accepted(database, ['third']));
  await applier.stop();
  assert.equal(await statusOf(database, 'third'), 'succeeded');
});

/** An external account system: a map that posts each id once. */
function ownSystem(behave?: (payments: readonly Posting[]) => void | Promise<void>): {
  accounts: AccountsInOwnSystem;
  posted: Map<string, number>;
  calls: string[][];
} {
  const posted = new Map<string, number>();
  const calls: string[][] = [];
  return {
    posted,
    calls,
    accounts: {
      posts: 'in_own_system',
      findAccount: () =>
        Promise.resolve({ biller_id: 'acme', account_id: 'A-1', status: 'active' }),
      async post(payments) {
        calls.push(payments.map((payment) => payment.platform_payment_id));
        for (const payment of payments)
          posted.set(payment.platform_payment_id, payment.amount_in_cents);
        await behave?.(payments);
        return payments.map(({ account_id }): PostOutcome =>
          account_id === 'A-1'
            ? { outcome: 'posted' }
            : { outcome: 'failed', reason: 'No such account.' },
        );
      },
    },
  };
}

test('accounts in another system: the outcome of the call ends the payment [ST2 ST3]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts, posted } = ownSystem();
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['good']));
  applier.take(await accepted(database, ['bad'], { account_id: 'A-2' }));
  await applier.stop();
  assert.deepEqual(
    [await statusOf(database, 'good'), await statusOf(database, 'bad')],
    ['succeeded', 'failed'],
  );
  assert.equal(posted.get('good'), 100);
});

test('accounts in another system: no cancel succeeds during a call or after its answer was lost [ST4]', async (t) => {
  const database = await kitDatabase(t);
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<void>();
  const { accounts, calls } = ownSystem(() => {
    asked.resolve();
    return answer.promise;
  });
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['p']));
  await asked.promise;
  assert.equal((await applier.cancel('p', 'operator', 'x')).outcome, 'too_late');
  answer.reject(new Error('the connection was lost'));
  await applier.stop();
  assert.equal(await statusOf(database, 'p'), 'processing');
  assert.equal((await applier.cancel('p', 'operator', 'x')).outcome, 'too_late');
  // Another replica waits until the claim has expired, then asks with the same id.
  const next = ownSystem();
  const other = applierOn(database, { accounts: next.accounts });
  await other.sweep(0);
  await other.stop();
  assert.deepEqual(next.calls, []);
  await database.query('DELETE FROM duebridge_partner.replica');
  const third = applierOn(database, { accounts: next.accounts });
  await third.sweep(0);
  await third.stop();
  assert.deepEqual(next.calls, [['p']]);
  assert.ok(calls.every((ids) => ids.join() === 'p'));
  assert.equal(await statusOf(database, 'p'), 'succeeded');
});

test('accounts in another system: one payment that it fails on delays no other [ST2]', async (t) => {
  const database = await kitDatabase(t);
  const { accounts } = ownSystem((payments) => {
    if (payments.some(({ platform_payment_id: id }) => id === 'poison'))
      throw new Error('bad record');
  });
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['a', 'poison', 'z']));
  await applier.stop();
  assert.deepEqual(await Promise.all(['a', 'poison', 'z'].map((id) => statusOf(database, id))), [
    'succeeded',
    'processing',
    'succeeded',
  ]);
});

test('an account system that returns no failure reason, or too few outcomes, has a bug and ends nothing [PF5]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  const rows = await accepted(database, ['p']);
  for (const outcomes of [[], [{ outcome: 'failed', reason: ' ' } as const]]) {
    const accounts: AccountsInTransaction = {
      ...ledger(database),
      post: () => Promise.resolve(outcomes),
    };
    const applier = applierOn(database, { accounts });
    applier.take(rows);
    await applier.stop();
    assert.equal(await statusOf(database, 'p'), 'processing');
  }
});

test('a long failure reason is truncated to the limit of the wire [PF5]', async (t) => {
  const database = await kitDatabase(t);
  const accounts: AccountsInTransaction = {
    ...ledger(database),
    post: () => Promise.resolve([{ outcome: 'failed', reason: `${'x'.repeat(499)}💰` } as const]),
  };
  const applier = applierOn(database, { accounts });
  applier.take(await accepted(database, ['p']));
  await applier.stop();
  const reason = (await findPayments(database, ['p'])).get('p')?.failure_reason ?? '';
  assert.ok(reason.length <= 500 && reason.startsWith('x'.repeat(499)) && reason.isWellFormed());
});

test('a database clock that steps back never puts posted_at before initiated_at [PF7 PF8 KT7]', async (t) => {
  const database = await kitDatabase(t);
  // As if the payment had been accepted before the clock was set back by an hour.
  await database.query(
    `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents, initiated_at)
     VALUES ('ahead', gen_random_uuid(), 'b', 'acme', 'A-1', 'c', 1, date_trunc('milliseconds', clock_timestamp()) + interval '1 hour')`,
  );
  const [row] = await endPayments(database, [
    { platform_payment_id: 'ahead', status: 'succeeded', failure_reason: null },
  ]);
  assert.equal(row?.posted_at, row?.initiated_at);
});

test('during a database outage the sweep pauses between attempts, and it continues afterwards [RU3]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  // More than a page, so that the database fails in the middle of a sweep.
  await accepted(
    database,
    Array.from({ length: 1_200 }, (_, index) => `p-${index}`),
  );
  const clock = manualClock();
  let isAway = false;
  let looks = 0;
  const failing: Database = {
    ...database,
    query: async (statement, values) => {
      if (typeof statement !== 'string' && statement.name === 'kit_unfinished') {
        looks += 1;
        isAway ||= looks === 2;
        await turn();
        if (isAway) throw new DatabaseUnavailable('away', 'not_executed');
      }
      return database.query(statement, values);
    },
  };
  const applier = applierOn(failing, { accounts: ledger(database), clock });
  applier.start();
  const isTooEarly = (): boolean => looks < 2;
  for (let turns = 0; isTooEarly() && turns < 10_000; turns += 1) {
    await clock.advance(0);
    await turn();
  }
  assert.equal(looks, 2);
  await clock.advance(0);
  assert.equal(looks, 2, 'it looked again without a pause');
  isAway = false;
  looks = 2;
  await clock.advance(60_000);
  const until = performance.now() + 120_000;
  let left = 1;
  while (left > 0 && performance.now() < until) {
    left = (await database.query('SELECT 1 FROM duebridge_partner.payment_processing LIMIT 1'))
      .length;
    await clock.advance(1_000);
  }
  await applier.stop();
  assert.equal(left, 0);
});

/** One turn of the event loop, in which sockets and timers run. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, 1);
  });
}

test('a clock that steps back by an hour keeps no payment processing for that hour [RU3 EE7 F87]', async (t) => {
  const database = await kitDatabase(t);
  await haveAccounts(database);
  // Accepted just before the clock step, and left behind by a crash.
  await database.query(
    `WITH made AS (
       INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents,
                            initiated_at)
       VALUES ('ahead', gen_random_uuid(), 'b', 'acme', 'A-1', 'static-key', 100,
               date_trunc('milliseconds', clock_timestamp() + interval '1 hour'))
       RETURNING platform_payment_id, initiated_at)
     INSERT INTO duebridge_partner.payment_processing SELECT platform_payment_id, initiated_at FROM made`,
  );
  assert.equal(
    await applierOn(database, { holdMs: 60_000 }).sweep(),
    0,
    'its time to be canceled in is not over',
  );
  assert.equal(await applierOn(database).sweep(), 1);
  const row = (await findPayments(database, ['ahead'])).get('ahead');
  assert.equal(row?.status, 'succeeded');
  assert.equal(row.posted_at, row.initiated_at);
});
