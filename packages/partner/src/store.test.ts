/**
 * The statements over payments, each called as its stage calls it: store.ts and end-by-hand.ts on a real database. What is at
 * stake: a payment that ends twice or is forgotten, one that two replicas hold, two replicas that deadlock, an operator who reads
 * another payment's line.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { silentLog, type Transaction } from '@duebridge/runtime';
import { claimPayments } from './claims.ts';
import { endByHand } from './end-by-hand.ts';
import { kitMetrics } from './metrics.ts';
import {
  endPayments,
  findEnded,
  findPayments,
  findUnfinished,
  insertPayments,
  lockPayments,
  postponePayments,
  readAudit,
  toRecord,
  writeAudit,
  type AuditLine,
  type NewPayment,
  type PaymentRow,
} from './store.ts';
import { accepted, kitDatabase, untilOneWaits } from '../test/kit.ts';

const database = await kitDatabase({ after });
const on = { database, metrics: kitMetrics(), log: silentLog };
const [HERE, THERE, DEAD] = [1, 2, 3].map(
  (digit) => `00000000-0000-4000-8000-00000000000${digit}`,
) as [string, string, string];
await database.query(
  `INSERT INTO duebridge_partner.replica (replica_id, lease_until)
   VALUES ($1, now()), ($2, now())`,
  [HERE, THERE],
);

const HOUR_MS = 3_600_000;

/** A time by this machine's clock, which is also the server's. */
const inMs = (ms: number): string => new Date(Date.now() + ms).toISOString();

/** Accepts one payment whose acceptance is `ageMs` old; negative: the clock has stepped back since. */
async function aged(platform_payment_id: string, ageMs: number): Promise<string> {
  const [row] = await database.query<{ at: string }>(
    `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents, initiated_at)
     VALUES ($1, 'R-' || $1, 'b', 'acme', 'A-1', 'c', 100, date_trunc('milliseconds', clock_timestamp() - $2::float8 * interval '1 millisecond'))
     RETURNING initiated_at AS at`,
    [platform_payment_id, ageMs],
  );
  assert(row);
  await database.query(`INSERT INTO duebridge_partner.payment_processing VALUES ($1, $2)`, [
    platform_payment_id,
    row.at,
  ]);
  return row.at;
}

/** Which of these payments are in the work list, in order. */
async function working(ids: readonly string[]): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    `SELECT platform_payment_id AS id FROM duebridge_partner.payment_processing
      WHERE platform_payment_id = ANY($1::text[]) ORDER BY 1`,
    [ids],
  );
  return rows.map((row) => row.id);
}

async function linesOf(platform_payment_id: string): Promise<unknown[]> {
  const lines = await readAudit(database, { platform_payment_id }, undefined, 1_000);
  return lines.map(({ actor, event, detail }) => [actor, event, detail]).toReversed();
}

/** Runs `during` while another transaction has done `first`, and that transaction's end afterwards. */
async function meanwhile(
  first: (tx: Transaction) => Promise<unknown>,
  during: () => Promise<unknown>,
  last: (tx: Transaction) => Promise<unknown> = () => Promise.resolve(),
): Promise<void> {
  await database.transaction(async (tx) => {
    await first(tx);
    await during();
    await last(tx);
  });
}

const one: NewPayment = {
  platform_payment_id: 'new-1',
  platform_batch_id: 'batch-1',
  biller_id: 'biller-1',
  account_id: 'account-1',
  client_id: 'client-1',
  amount_in_cents: 1,
};
const two: NewPayment = {
  platform_payment_id: 'new-2',
  platform_batch_id: 'batch-2',
  biller_id: 'biller-2',
  account_id: 'account-2',
  client_id: 'client-2',
  amount_in_cents: 2,
};

test('the rows returned by an insert are those that every later read finds [PF1 PF2 PF7 ST1 KT8]', async () => {
  const made = await insertPayments(database, [two, one]);
  const rows = [...made.values()];
  assert.deepEqual(rows, [...(await findPayments(database, ['new-1', 'new-2'])).values()]);
  assert.deepEqual([...made.keys()], ['new-1', 'new-2']);
  const [first, second] = rows as [PaymentRow, PaymentRow];
  const { client_id: _client, ...shown } = one;
  assert.deepEqual(first, {
    ...shown,
    payment_id: first.payment_id,
    status: 'processing',
    initiated_at: first.initiated_at,
    posted_at: null,
    failure_reason: null,
  });
  assert.match(second.payment_id, /^[0-9a-f-]{36}$/);
  assert.deepEqual(await working(['new-1', 'new-2']), ['new-1', 'new-2']);

  // Put again, with other contents, beside a new one.
  const third = { ...two, platform_payment_id: 'new-3' };
  const again = await insertPayments(database, [{ ...one, amount_in_cents: 9 }, third]);
  assert.deepEqual([...again.keys()], ['new-3']);
  assert.deepEqual((await findPayments(database, ['new-1'])).get('new-1'), first);
  assert.deepEqual(await findPayments(database, ['unheard']), new Map());
});

test('a payment ends once, with its times in order and its reason only when it failed [ST2 ST3 ST4 PF5 PF8 RU2 KT5 KT7]', async () => {
  const ids = ['end-past', 'end-now', 'end-future', 'end-failed', 'end-canceled', 'end-open'];
  const begun = new Map<string, string>();
  for (const id of ids) begun.set(id, await aged(id, HOUR_MS));
  begun.set('end-ahead', await aged('end-ahead', -HOUR_MS));
  const half = inMs(-HOUR_MS / 2);
  const success = { status: 'succeeded', failure_reason: null } as const;
  const rows = await endPayments(database, [
    { platform_payment_id: 'end-past', ...success, posted_at: half },
    { platform_payment_id: 'end-now', ...success },
    { platform_payment_id: 'end-future', ...success, posted_at: inMs(HOUR_MS) },
    { platform_payment_id: 'end-ahead', ...success, posted_at: half },
    { platform_payment_id: 'end-failed', status: 'failed', failure_reason: 'No.', posted_at: half },
    { platform_payment_id: 'end-canceled', status: 'canceled', failure_reason: null },
  ]);
  const all = [...ids, 'end-ahead'];
  const stored = await findPayments(database, all);
  assert.deepEqual(
    new Map(rows.map((row) => [row.platform_payment_id, row])),
    new Map([...stored].filter(([id]) => id !== 'end-open')),
  );
  const of = (id: string): PaymentRow => stored.get(id) ?? assert.fail(id);
  assert.equal(of('end-past').posted_at, half);
  // The clock of the biller's system is ahead: by ours it was posted now.
  const now = [of('end-now'), of('end-future')].map((row) => Date.parse(row.posted_at ?? ''));
  for (const at of now) assert.ok(Math.abs(at - Date.now()) < HOUR_MS / 4, String(at));
  assert.equal(of('end-ahead').posted_at, begun.get('end-ahead'));
  assert.deepEqual(toRecord(of('end-failed')), {
    payment_id: 'R-end-failed',
    platform_payment_id: 'end-failed',
    platform_batch_id: 'b',
    biller_id: 'acme',
    account_id: 'A-1',
    status: 'failed',
    amount_in_cents: 100,
    initiated_at: begun.get('end-failed'),
    posted_at: null,
    failure_reason: 'No.',
  });
  assert.equal('failure_reason' in toRecord(of('end-past')), false);
  assert.equal(of('end-canceled').posted_at, null);
  const disorder = await database.query(
    `SELECT 1 FROM duebridge_partner.payment WHERE ended_at < initiated_at OR ended_at < posted_at
        OR (platform_payment_id LIKE 'end-%' AND initiated_at < now() AND ended_at < now() - interval '15 minutes')`,
  );
  assert.deepEqual(disorder, []);
  assert.deepEqual(await working(all), ['end-open']);
  // What its own system did on its own is told in the audit.
  assert.deepEqual(await linesOf('end-canceled'), [['account system', 'canceled', {}]]);
  for (const id of all.filter((each) => each !== 'end-canceled'))
    assert.deepEqual(await linesOf(id), []);

  // Ended again, with other results: nothing changes.
  const otherwise = all
    .filter((id) => id !== 'end-open')
    .map((platform_payment_id) => ({
      platform_payment_id,
      status: 'canceled' as const,
      failure_reason: null,
    }));
  assert.deepEqual(await endPayments(database, otherwise), []);
  assert.deepEqual(await findPayments(database, all), stored);
  assert.equal((await linesOf('end-canceled')).length, 1);
  const alone = await findEnded(database, ['end-past', 'end-open']);
  assert.deepEqual(alone, [of('end-past')]);
  const ended = (await findEnded(database, all)).map((row) => row.platform_payment_id);
  assert.deepEqual(ended.toSorted(), all.filter((id) => id !== 'end-open').toSorted());
});

test('a payment is found to be applied when it is due, and no other is [RU3 KT13 EE7 F87]', async () => {
  const query = {
    ageMs: 60_000,
    replica_id: HERE,
    after: 'due-',
    limit: 100,
  };
  const find = async (differences: Partial<typeof query> = {}): Promise<string[]> =>
    (await findUnfinished(database, { ...query, ...differences }))
      .map((row) => row.platform_payment_id)
      .filter((id) => id.startsWith('due-'));
  await aged('due-b-old', HOUR_MS);
  await aged('due-a-old', HOUR_MS);
  await aged('due-young', 1_000);
  // Accepted before the clock stepped back by an hour, or by a second.
  await aged('due-ahead', -HOUR_MS);
  await aged('due-little-ahead', -1_000);
  await aged('due-ended', HOUR_MS);
  await endPayments(database, [
    { platform_payment_id: 'due-ended', status: 'failed', failure_reason: 'no' },
  ]);
  assert.deepEqual(await find(), ['due-a-old', 'due-ahead', 'due-b-old']);
  assert.deepEqual(await find({ limit: 2 }), ['due-a-old', 'due-ahead']);
  assert.deepEqual(await find({ after: 'due-ahead' }), ['due-b-old']);

  // The account system said when to ask again.
  const place = (): Promise<unknown[]> =>
    database.query(
      `SELECT ctid FROM duebridge_partner.payment_processing WHERE platform_payment_id = 'due-b-old'`,
    );
  const tomorrow = inMs(24 * HOUR_MS);
  await postponePayments(database, [
    { platform_payment_id: 'due-a-old', until: inMs(-1_000), frees: null },
    { platform_payment_id: 'due-b-old', until: tomorrow, frees: null },
  ]);
  assert.deepEqual(await find(), ['due-a-old', 'due-ahead']);
  const before = await place();
  await postponePayments(database, [
    { platform_payment_id: 'due-b-old', until: tomorrow, frees: null },
  ]);
  assert.deepEqual(await place(), before, 'the same time again costs no write');
  await postponePayments(database, [
    { platform_payment_id: 'due-b-old', until: inMs(-1_000), frees: null },
  ]);
  assert.deepEqual(await find(), ['due-a-old', 'due-ahead', 'due-b-old']);

  // Handed to the biller's system: by this replica, by another that lives, by one that died.
  for (const [id, by] of [
    ['due-a-old', HERE],
    ['due-ahead', THERE],
    ['due-b-old', DEAD],
  ] as const) {
    await database.transaction((tx) => claimPayments(tx, [id], by));
  }
  const found = await findUnfinished(database, query);
  assert.deepEqual(
    found
      .filter((row) => row.platform_payment_id.startsWith('due-'))
      .map((row) => [row.platform_payment_id, row.is_claimed]),
    [
      ['due-a-old', true],
      ['due-b-old', true],
    ],
  );
});

test('the audit keeps a hundred mismatches of one payment, and all that its caller cannot cause [LI1]', async () => {
  await accepted(database, ['loud', 'calm']);
  const line = (
    platform_payment_id: string,
    event: AuditLine['event'],
    number: number,
  ): AuditLine => ({ platform_payment_id, actor: 'client c', event, detail: { number } });
  const many = Array.from({ length: 99 }, (_, number) => line('loud', 'mismatch', number));
  await writeAudit(database, many);
  await writeAudit(database, [line('loud', 'mismatch', 99)]);
  await writeAudit(database, [
    line('loud', 'mismatch', 100),
    line('loud', 'settled', 102),
    line('calm', 'mismatch', 103),
  ]);
  const lines = await linesOf('loud');
  assert.equal(lines.length, 101);
  assert.deepEqual(lines[0], ['client c', 'mismatch', { number: 0 }]);
  assert.deepEqual(lines.slice(99), [
    ['client c', 'mismatch', { number: 99 }],
    ['client c', 'settled', { number: 102 }],
  ]);
  assert.deepEqual(await linesOf('calm'), [['client c', 'mismatch', { number: 103 }]]);
});

test('a cancel waits for the posting in progress, and for the claim in progress [ST4 KT5]', async () => {
  await accepted(database, ['wait-posting', 'wait-claim']);
  let outcome: ReturnType<typeof endByHand> | undefined;
  const cancel = async (id: string): Promise<void> => {
    const end = { platform_payment_id: id, status: 'canceled', failure_reason: null } as const;
    outcome = endByHand(on, end, { actor: 'ann', event: 'canceled', reason: 'x' });
    await untilOneWaits(database);
  };
  await meanwhile(
    (tx) => lockPayments(tx, ['wait-posting']),
    () => cancel('wait-posting'),
    (tx) =>
      endPayments(tx, [
        { platform_payment_id: 'wait-posting', status: 'succeeded', failure_reason: null },
      ]),
  );
  assert.equal((await outcome)?.outcome, 'was_ended');
  await meanwhile(
    (tx) => claimPayments(tx, ['wait-claim'], THERE),
    () => cancel('wait-claim'),
  );
  assert.equal((await outcome)?.outcome, 'is_claimed');
  assert.deepEqual(await linesOf('wait-claim'), []);
});
