/** Which payments the rules of a biller refuse: by its limits, as duplicates, and where two replicas decide at once. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { FAILURE_REASONS } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';
import type { BillerRules } from './account-system.ts';
import { readRules, refusals } from './business-rules.ts';
import type { PaymentRow } from './store.ts';
import { kitDatabase, processing, untilOneWaits } from '../test/kit.ts';

const NOON = Date.UTC(2026, 2, 1, 12);
const at = (seconds: number): string => new Date(NOON + seconds * 1_000).toISOString();

/** Stores payments as they stand; each was begun unless it was only accepted. */
async function stored(
  database: Database,
  payments: readonly PaymentRow[],
  begun = false,
): Promise<void> {
  for (const one of payments) {
    const isOver = one.status !== 'processing';
    await database.query(
      `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id,
              amount_in_cents, status, initiated_at, posted_at, ended_at, failure_reason)
       VALUES ($1, $1, 'b', $2, $3, 'c', $4, $5, $6::timestamptz, CASE WHEN $5 = 'succeeded' THEN $6::timestamptz END,
               CASE WHEN $7 THEN $6::timestamptz END, CASE WHEN $5 = 'failed' THEN 'no' END)`,
      [
        one.platform_payment_id,
        one.biller_id,
        one.account_id,
        one.amount_in_cents,
        one.status,
        one.initiated_at,
        isOver,
      ],
    );
    if (isOver) continue;
    await database.query(
      `INSERT INTO duebridge_partner.payment_processing (platform_payment_id, initiated_at, claimed_at)
       VALUES ($1, $2, CASE WHEN $3 THEN clock_timestamp() END)`,
      [one.platform_payment_id, one.initiated_at, begun],
    );
  }
}

/** The reasons for which payments are refused, by id. */
async function refused(
  database: Pick<Database, 'transaction'>,
  billers: readonly BillerRules[] | undefined,
  payments: readonly PaymentRow[],
): Promise<Record<string, string | null>> {
  const ends = await database.transaction((tx) => refusals(tx, readRules(billers), payments));
  for (const [id, end] of ends) {
    assert.deepEqual(end, { ...end, platform_payment_id: id, status: 'failed', posted_at: null });
  }
  return Object.fromEntries([...ends].map(([id, end]) => [id, end.failure_reason]));
}

test('a payment beyond a limit of its biller, or to a biller that is not served, fails; the limits themselves are paid [FR1]', async () => {
  const asksNothing: Pick<Database, 'transaction'> = {
    transaction: (work) =>
      work({ query: () => assert.fail('limits need no look at the tables') } as never),
  };
  const billers = [
    { biller_id: 'acme', min_amount_in_cents: 100, max_amount_in_cents: 500 },
    { biller_id: 'water' },
  ];
  const pay = (id: string, amount_in_cents: number, biller_id = 'acme'): PaymentRow =>
    processing(id, { amount_in_cents, biller_id });
  const payments = [
    pay('below', 99),
    pay('least', 100),
    pay('most', 500),
    pay('above', 501),
    pay('free', 1, 'water'),
    pay('unserved', 200, 'gas'),
  ];
  assert.deepEqual(await refused(asksNothing, billers, payments), {
    below: 'The amount is below the minimum that the biller allows.',
    above: FAILURE_REASONS.maximum,
    unserved: FAILURE_REASONS.account,
  });
  assert.deepEqual(await refused(asksNothing, undefined, payments), {}, 'no biller has rules');
});

test('a duplicate is an equal payment within the window that was posted, is being posted or was there first [FR1]', async (t) => {
  const database = await kitDatabase(t);
  const billers = [{ biller_id: 'acme', duplicate_window_seconds: 60 }, { biller_id: 'water' }];
  // Each case has an account of its own: another payment, and whether it makes the one of noon a duplicate.
  const cases: Readonly<Record<string, [Partial<PaymentRow>, isDuplicate: boolean]>> = {
    'posted a window ago': [{ status: 'succeeded', initiated_at: at(-60) }, true],
    'posted longer ago': [{ status: 'succeeded', initiated_at: at(-60.001) }, false],
    'accepted later, and posted already': [{ status: 'succeeded', initiated_at: at(60) }, true],
    'accepted after the window': [{ status: 'succeeded', initiated_at: at(60.001) }, false],
    'of another amount': [{ status: 'succeeded', amount_in_cents: 101 }, false],
    'of another account': [{ status: 'succeeded', account_id: 'else' }, false],
    'of another biller': [{ status: 'succeeded', biller_id: 'water' }, false],
    failed: [{ status: 'failed', initiated_at: at(-1) }, false],
    canceled: [{ status: 'canceled', initiated_at: at(-1) }, false],
    'waiting, and there first': [{ initiated_at: at(-60) }, true],
    'waiting, and there too long': [{ initiated_at: at(-60.001) }, false],
    'waiting since later': [{ initiated_at: at(0.001) }, false],
    'waiting since the same moment, the lower id': [{ platform_payment_id: 'a' }, true],
    'waiting since the same moment, the higher id': [{ platform_payment_id: 'z' }, false],
  };
  const asked: PaymentRow[] = [];
  for (const [name, [other]] of Object.entries(cases)) {
    const own = processing(`own ${name}`, { account_id: name, initiated_at: at(0) });
    asked.push(own);
    const { platform_payment_id: prefix = 'other' } = other;
    const platform_payment_id = `${prefix} ${name}`;
    await stored(database, [own, { ...own, ...other, platform_payment_id }]);
  }
  // One that another system has begun to post may be posted in the end, whenever it was accepted.
  const begun = processing('own begun', { account_id: 'begun', initiated_at: at(0) });
  await stored(database, [begun]);
  await stored(database, [{ ...begun, platform_payment_id: 'x', initiated_at: at(30) }], true);
  assert.deepEqual(
    Object.keys(await refused(database, billers, [...asked, begun])).toSorted(),
    [
      ...Object.entries(cases).flatMap(([name, [, isDuplicate]]) => (isDuplicate ? name : [])),
      'begun',
    ]
      .map((name) => `own ${name}`)
      .toSorted(),
  );
  // One that is tried again, because its outcome was lost, is no duplicate of itself.
  const again = processing('again', { account_id: 'again', initiated_at: at(0) });
  await stored(database, [again], true);
  assert.deepEqual(await refused(database, billers, [again]), {});
  // A biller without a window wants both.
  const [one, two] = ['one', 'two'].map((id) => processing(id, { biller_id: 'water' }));
  await stored(database, [one!, { ...two!, status: 'succeeded' }]);
  assert.deepEqual(await refused(database, billers, [one!]), {});
});

test('a payment has the reason of its limit, and a duplicate that of a duplicate, in one batch [FR1]', async (t) => {
  const database = await kitDatabase(t);
  const billers = [
    { biller_id: 'acme', max_amount_in_cents: 500, duplicate_window_seconds: 60 },
    { biller_id: 'gas', duplicate_window_seconds: 1 },
  ];
  const [first, again, large] = [
    processing('first', { initiated_at: at(0) }),
    processing('second', { initiated_at: at(1) }),
    processing('large', { initiated_at: at(0), amount_in_cents: 501 }),
  ];
  // Each biller has its own window.
  const gas = [0, 1, 2.5].map((seconds) =>
    processing(`gas ${seconds}`, { biller_id: 'gas', initiated_at: at(seconds) }),
  );
  const payments = [first, again, large, ...gas];
  await stored(database, payments);
  assert.deepEqual(await refused(database, billers, payments), {
    second: FAILURE_REASONS.duplicate,
    'gas 1': FAILURE_REASONS.duplicate,
    large: FAILURE_REASONS.maximum,
  });
});

test('equal payments at two replicas are decided one after the other, others at once, and no order deadlocks [FR1]', async (t) => {
  const database = await kitDatabase(t);
  const rules = readRules(
    ['acme', 'water'].map((biller_id) => ({ biller_id, duplicate_window_seconds: 60 })),
  );
  const payments = Array.from({ length: 20 }, (_, index) =>
    processing(`p-${index}`, { account_id: `A-${index}` }),
  );
  await stored(database, payments);
  // Where locks of one batch are taken in one order, whoever waits for the first holds none of the others.
  const [lowest] = await database.query<{ account_id: string }>(
    `SELECT account_id FROM duebridge_partner.payment
      ORDER BY hashtextextended(biller_id || ':' || account_id || ':' || amount_in_cents, 0) LIMIT 1`,
  );
  const first = payments.find((one) => one.account_id === lowest?.account_id);
  assert.ok(first);
  let waiting: Promise<unknown> | undefined;
  let isDone = false;
  await database.transaction(async (tx) => {
    await refusals(tx, rules, [first]);
    const others = payments.filter((one) => one !== first);
    others.push({ ...first, biller_id: 'water' });
    await database.transaction(async (beside) => {
      await beside.query(`SET LOCAL lock_timeout = '5s'`);
      await refusals(beside, rules, others);
    });
    waiting = database
      .transaction((beside) => refusals(beside, rules, payments))
      .then(() => (isDone = true));
    await untilOneWaits(database);
    const held = await database.query(
      `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    assert.deepEqual([held.length, isDone], [1, false], 'a lock too many, or none');
  });
  await waiting;
  assert.ok(isDone);
});
