/**
 * Remittances over real rows: what a biller is owed for a batch leaves once, by one transfer, whatever happens between a call of the channel
 * and its note, and the book explains every cent after each step.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import test, { type TestContext } from 'node:test';
import type { RemittanceView } from '@duebridge/contract';
import { silentLog } from '@duebridge/runtime';
import { force, manualClock, until } from '@duebridge/runtime/testing';
import { writer, SEAL_KEY } from '../../test/engine-rig.ts';
import { openSealer } from '../partners/seal.ts';
import { closeBatches } from '../reconciliation/batch.ts';
import { insertPayment } from '../store/payments.ts';
import {
  endPayments,
  ground,
  ME,
  MINE,
  operators,
  posted,
  settlePayments,
} from '../../test/standing.ts';
import { bankDayFrom } from './bank-days.ts';
import { checkMoney } from './check.ts';
import { endTransfer, makeBankFile, readBankFile } from './desk.ts';
import { listPayouts, setPayout } from './payouts.ts';
import { payOut, remit, type RemittanceChannel } from './remittance.ts';
import { linesOf, listRemittances, readStatementOf, type StatementLine } from './statement.ts';

const at = '2026-03-01T10:00:05.000Z';
const payer = {
  name: 'Payments Inc',
  routing_number: '011000015',
  account_number: '123456789',
  company_id: '1234567890',
};
const account = {
  way: 'pain001',
  holder_name: 'Acme Water & Sons',
  routing_number: '021000021',
  account_number: '000111222',
} as const;

const byStripe = { way: 'stripe', stripe_account: 'acct_water' };

/** A channel that keeps what it was sent; `on` happens at each call, before it. */
function stripeChannel(on: (call: string) => Promise<unknown> | undefined = () => undefined) {
  const sent = new Map<string, string>();
  const channel: RemittanceChannel = {
    async send({ remittance_id, creditor }) {
      await on(`send ${remittance_id}`);
      if (!('stripe_account' in creditor)) throw new Error('no account at Stripe any more');
      sent.set(remittance_id, creditor.stripe_account);
      await on(`sent ${remittance_id}`);
      return { kind: 'sent' };
    },
    async find(id) {
      await on(`find ${id}`);
      return sent.has(id) ? { kind: 'sent' } : undefined;
    },
    state: (id) => Promise.resolve({ kind: sent.has(id) ? 'paid' : 'under_way' }),
  };
  return { sent, channel };
}

/** The registration of these tests is a test one. */
const TEST_FILE = { way: 'pain001', mode: 'test' } as const;

/** A partner with payments of $7.00 each, and rounds of remittances some days later. */
async function rigOf(t: TestContext, channel?: RemittanceChannel) {
  const rig = await ground(t);
  const { database } = rig;
  await operators(rig, 'ada', 'bert');
  const sealer = openSealer(SEAL_KEY);
  // Later than every bank day on which what is made now is due.
  const clock = manualClock(Date.now() + 7 * 24 * 3_600_000);
  const partner = await rig.registry.get('acme');
  assert.ok(partner);
  const compared: string[] = [];
  const remitting = {
    database,
    registry: rig.registry,
    sealer,
    channel,
    secondPersonAboveCents: 1_000,
    async compare(id: string) {
      if (id.startsWith('gone-')) throw new Error('the partner cannot be reached');
      compared.push(id);
      await database.query(
        `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences) VALUES ($1, 't', 'statement', 1, 0)`,
        [id],
      );
    },
    clock,
    log: silentLog,
  };
  let batches = 0;
  const openBatch = async (): Promise<string> => {
    batches += 1;
    await database.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ($1, 'acme', now() + make_interval(days => $2))`,
      [`batch-${batches}`, batches],
    );
    return `batch-${batches}`;
  };
  let batch = await openBatch();
  const paid = async (settles = true, biller_id = 'acme'): Promise<string> => {
    const { platform_payment_id } = await insertPayment(database, {
      partner_id: 'acme',
      biller_id,
      account_id: 'A-1',
      platform_batch_id: batch,
      amount_in_cents: 700,
      funding_method: 'sandbox_bank',
      slot: MINE,
      stage: 'dispatching',
      actor: 'test',
    });
    const ending = posted(at);
    const end = { platform_payment_id, from: 'dispatching', by: 'partner', ending } as const;
    assert.deepEqual(await endPayments(database, writer(ME), [end]), [true]);
    if (settles) await settlePayments(database, writer(ME), [{ platform_payment_id }]);
    return platform_payment_id;
  };
  /** Ends the window of the open batch, closes it, and compares it. */
  const close = async (): Promise<void> => {
    await force(
      database,
      `UPDATE duebridge_platform.batches SET cutoff_at = now() - make_interval(days => 100 - $1) WHERE closed_at IS NULL`,
      [batches],
    );
    assert.equal((await closeBatches(database, 'test')).length, 1);
    batch = await openBatch();
    await remit(remitting);
  };
  return {
    ...rig,
    sealer,
    clock,
    compared,
    remitting,
    paid,
    round: () => remit(remitting),
    close,
    /** A round after a batch with one payment. */
    async remitted(): Promise<void> {
      await paid();
      await close();
      await remit(remitting);
    },
    payout: (more: object = {}) =>
      setPayout(remitting, partner, { ...account, held: false, ...more }, 'ada').then(
        () => undefined,
      ),
    newest: async (state?: string) =>
      (await listRemittances(database, { limit: 1, ...(state && { state }) }))[0] ?? assert.fail(),
    statement: async (id: string, form: 'csv' | 'camt054') =>
      (await Readable.from(await readStatementOf(database, id, form)).toArray()).join(''),
    lines: async (one: RemittanceView) =>
      ((await Readable.from(linesOf(database, one)).toArray()) as StatementLine[][]).flat(),
    async remittances() {
      return (await listRemittances(database, {})).map((one) => [one.state, one.net_in_cents]);
    },
    /** Every cent is where it should be. */
    holds: async (): Promise<void> => {
      assert.deepEqual((await checkMoney(database, Date.now(), 1)).faults, []);
    },
    async balance() {
      const [one] = (await checkMoney(database, Date.now(), 1)).balances;
      return { owed: one?.owed, remitting: one?.remitting, paid: one?.paid };
    },
  };
}

test('a batch is compared, remitted once, put into a file, and paid; its statement adds up [PL17]', async (t) => {
  const rig = await rigOf(t);
  const { round, holds } = rig;
  const ids = [await rig.paid(), await rig.paid()];
  assert.deepEqual(await round(), [], 'the window is open: nothing is to be remitted');
  await rig.close();
  assert.equal(rig.compared.length, 1);
  // Two replicas in the same hour.
  await Promise.all([round(), round()]);
  assert.deepEqual(await rig.remittances(), [['due', 1_400]]);
  await holds();
  await round();
  assert.deepEqual(await rig.remittances(), [['due', 1_400]], 'no account: it waits');
  await rig.payout({ held: true });
  await round();
  assert.deepEqual(await rig.remittances(), [['due', 1_400]], 'held');
  await rig.payout();
  await Promise.all([round(), round()]);
  await holds();
  assert.deepEqual(await rig.balance(), { owed: 0, remitting: 1_400, paid: 0 });
  const desk = { ...rig.remitting, payer };
  // Money of a test registration does not exist: the bank never hears of it.
  await assert.rejects(makeBankFile(desk, { way: 'pain001' }, 'ada'), { code: 'CONFLICT' });
  const file = await makeBankFile(desk, TEST_FILE, 'ada');
  assert.deepEqual([file.transfers, file.amount_in_cents], [1, 1_400]);
  assert.match(file.content, /Acme Water &amp; Sons/);
  assert.equal((await readBankFile(desk, file.file_id, 'bert')).content, file.content);
  await assert.rejects(makeBankFile(desk, TEST_FILE, 'ada'), { code: 'CONFLICT' });
  await assert.rejects(makeBankFile({ ...desk, payer: undefined }, TEST_FILE, 'ada'), {
    code: 'CONFLICT',
  });
  const said = { outcome: 'paid', reference: 'BANK-1' } as const;
  const end = () => endTransfer(rig.remitting, file.file_id, said, 'ada');
  assert.deepEqual(await end(), { outcome: 'done', transfers: 1 });
  await assert.rejects(end(), { code: 'NOT_FOUND' });
  await round();
  await round();
  await holds();
  assert.deepEqual(await rig.balance(), { owed: 0, remitting: 0, paid: 1_400 });
  const one = await rig.newest('paid');
  assert.deepEqual([one.reference, one.payments, one.file_id], ['BANK-1', 2, file.file_id]);
  const csv = await rig.statement(one.remittance_id, 'csv');
  const rows = csv.trimEnd().split('\r\n');
  assert.equal(rows.length, 4);
  for (const id of ids) assert.ok(csv.includes(`payment,${id},P,A-1,700,`));
  assert.match(rows.at(-1) ?? '', new RegExp(`^total,,,,1400,.*,${one.remittance_id}$`));
  const xml = await rig.statement(one.remittance_id, 'camt054');
  assert.equal([...xml.matchAll(/<TxDtls>/g)].length, 2);
  // A statement that does not add up is not delivered to its end.
  const short = rig.lines({ ...one, net_in_cents: 1_399 });
  await assert.rejects(short, /adds up to 1400, not to 1399/);
});

test('a batch waits for its captures and its differences', async (t) => {
  const rig = await rigOf(t);
  const { database, round } = rig;
  await rig.paid();
  const late = await rig.paid(false);
  await rig.close();
  await database.query(
    `INSERT INTO duebridge_platform.differences (difference_id, platform_batch_id, partner_id, platform_payment_id, kind)
     VALUES (gen_random_uuid(), $1, 'acme', $2, 'status')`,
    [rig.compared[0], late],
  );
  assert.match((await round())[0]?.why ?? '', /open differences/);
  await database.query(
    `UPDATE duebridge_platform.differences SET resolved_at = now(), resolved_by = 'a', resolution = 'r'`,
  );
  assert.match((await round())[0]?.why ?? '', /are \$14\.00, of which the book has \$7\.00/);
  await settlePayments(database, writer(ME), [{ platform_payment_id: late }]);
  assert.deepEqual(await round(), []);
  assert.deepEqual(await rig.remittances(), [['due', 1_400]]);
});

test('a payment that an earlier version answered itself, in a test, is in no remittance and in no statement', async (t) => {
  const rig = await rigOf(t);
  await rig.paid();
  const answeredHere = await rig.paid(false);
  await force(
    rig.database,
    `UPDATE duebridge_platform.payments SET payment_id = 'test-' || platform_payment_id, settled_at = now() WHERE platform_payment_id = $1`,
    [answeredHere],
  );
  await rig.close();
  assert.deepEqual(await rig.round(), []);
  assert.deepEqual(await rig.remittances(), [['due', 700]]);
  await rig.holds();
  assert.deepEqual(
    (await rig.lines(await rig.newest())).map((line) => line.amount_in_cents),
    [700],
  );
});

test('a transfer whose answer was lost is looked up by its id, and never sent again', async (t) => {
  const calls: string[] = [];
  let lost: 'send' | 'sent' | undefined = 'sent';
  const { channel } = stripeChannel((call) => {
    if (!call.startsWith('sent')) calls.push(call);
    return call.startsWith(`${lost} `) ? Promise.reject(new Error('lost')) : undefined;
  });
  const rig = await rigOf(t, channel);
  await rig.payout(byStripe);
  await rig.remitted();
  const first = (await rig.newest()).remittance_id;
  assert.deepEqual(calls, [`send ${first}`]);
  assert.deepEqual(await rig.remittances(), [['sending', 700]]);
  await rig.holds();
  await rig.round();
  assert.deepEqual(calls, [`send ${first}`, `find ${first}`]);
  assert.deepEqual(await rig.remittances(), [['sent', 700]]);
  // Lost before it arrived: asked, and only then sent again, under the same id.
  lost = 'send';
  await rig.remitted();
  const second = (await rig.newest()).remittance_id;
  await rig.round();
  lost = undefined;
  await rig.round();
  assert.deepEqual(calls.slice(2), [
    `send ${second}`,
    `find ${second}`,
    `send ${second}`,
    `find ${second}`,
    `send ${second}`,
  ]);
  await rig.holds();
});

test('a hold and another account reach a transfer that waits for a file', async (t) => {
  const rig = await rigOf(t);
  const { round } = rig;
  const desk = { ...rig.remitting, payer };
  await rig.payout();
  await rig.remitted();
  await rig.payout({ held: true });
  await assert.rejects(makeBankFile(desk, TEST_FILE, 'ada'), /No transfer of test mode waits/);
  const one = await rig.newest('sent');
  const end = (outcome: 'paid' | 'returned') =>
    endTransfer(rig.remitting, one.remittance_id, { outcome, reference: 'another account' }, 'ada');
  // No bank has seen it.
  await assert.rejects(end('paid'), /is in no file/);
  assert.equal((await end('returned')).outcome, 'done');
  await assert.rejects(end('paid'), { code: 'NOT_FOUND' });
  await round();
  await rig.paid();
  await rig.close();
  await rig.payout();
  await round();
  // It waits for a file already.
  await rig.payout({ account_number: '999888777' });
  const file = await makeBankFile(desk, TEST_FILE, 'ada');
  assert.equal(file.amount_in_cents, 1_400);
  assert.match(file.content, /999888777/);
  await rig.holds();
});

test('36 NACHA files are made on one day, and the next on another', async (t) => {
  const rig = await rigOf(t);
  const order = { way: 'nacha', mode: 'test' } as const;
  const make = () => makeBankFile({ ...rig.remitting, payer }, order, 'ada');
  await rig.payout({ way: 'nacha' });
  await rig.database.query(
    `INSERT INTO duebridge_platform.bank_files (file_id, way, made_at, made_by, transfers, amount_in_cents, sha256, sealed)
     SELECT 'other-' || n, 'nacha', $1, 'bert', 1, 1, '', '' FROM generate_series(1, 36) AS n`,
    [new Date(rig.clock.now()).toISOString()],
  );
  await rig.remitted();
  await assert.rejects(make(), /36 NACHA files a day/);
  rig.clock.advance(24 * 3_600_000);
  assert.equal((await make()).content[33], 'A');
});

test('a transfer that is on its way to the channel is not sent while its biller is held', async (t) => {
  let lost = true;
  const { sent, channel } = stripeChannel(() =>
    lost ? Promise.reject(new Error('the request was lost')) : undefined,
  );
  const rig = await rigOf(t, channel);
  await rig.payout(byStripe);
  await rig.remitted();
  lost = false;
  await rig.payout({ ...byStripe, held: true });
  await rig.round();
  assert.deepEqual([sent.size, await rig.remittances()], [0, [['sending', 700]]]);
  await rig.payout({ ...byStripe, stripe_account: 'acct_another' });
  await rig.round();
  assert.deepEqual(
    [[...sent.values()], await rig.remittances()],
    [['acct_another'], [['sent', 700]]],
  );
});

test('what waits for people hides nothing that comes after it', async (t) => {
  const rig = await rigOf(t, stripeChannel().channel);
  const { database } = rig;
  await rig.payout(byStripe);
  await rig.paid();
  // 500 batches with open differences, as many whose partner is gone, and 2,000 transfers under way, all of them older.
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at, closed_at, statement)
       SELECT kind || n, 'acme', now() - make_interval(days => since + n), now(), '{}'
         FROM (VALUES ('old-', 1000), ('gone-', 2000)) AS k (kind, since), generate_series(1, 500) AS n`,
    );
    await tx.query(
      `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences)
       SELECT 'old-' || n, 't', 'statement', 1, 1 FROM generate_series(1, 500) AS n`,
    );
    await tx.query(
      `INSERT INTO duebridge_platform.differences (difference_id, platform_batch_id, partner_id, platform_payment_id, kind)
       SELECT gen_random_uuid(), 'old-' || n, 'acme', 'p', 'status' FROM generate_series(1, 500) AS n`,
    );
    await tx.query(
      `INSERT INTO duebridge_platform.remittances (remittance_id, platform_batch_id, partner_id, biller_id, payments, gross_in_cents,
              deducted_in_cents, carried_in_cents, net_in_cents, sha256, due_on, state, way)
       SELECT '0-' || n, 'sent-' || n, 'acme', 'acme', 1, 1, 0, 0, 1, '', now(), 'sent', 'stripe' FROM generate_series(1, 2000) AS n`,
    );
  });
  await rig.close();
  // Which of 501 and of 2,001 a round leaves out is chance.
  await until('it is paid', async () => {
    const waiting = await rig.round();
    assert.equal(waiting.filter(({ why }) => why === 'it has open differences').length, 500);
    return (await listRemittances(database, { state: 'paid' }))[0]?.net_in_cents === 700;
  });
});

test('what came back, what is below the minimum and what is taken off goes into the next remittance', async (t) => {
  const rig = await rigOf(t);
  const { database } = rig;
  await rig.payout({ way: 'by_hand', minimum_in_cents: 1_000 });
  await rig.remitted();
  assert.deepEqual(await rig.remittances(), [['carried', 700]]);
  await rig.holds();
  await rig.paid();
  const taken = await rig.paid();
  await database.query(
    `INSERT INTO duebridge_platform.deductions (deduction_id, platform_payment_id, partner_id, biller_id, kind, amount_in_cents, reason)
     VALUES ('d-1', $1, 'acme', 'acme', 'refund', 300, 'charged twice')`,
    [taken],
  );
  await database.query(
    `INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id)
     VALUES ('d-1', 'refund', now()::date, 'owed', 'refunding', 300, 'acme', 'acme')`,
  );
  await rig.holds();
  await rig.close();
  await rig.round();
  assert.deepEqual(await rig.remittances(), [
    ['sent', 1_800],
    ['carried', 700],
  ]);
  await rig.holds();
  const second = await rig.newest('sent');
  // By hand: two persons, with the same words.
  const end = (reference: string, who: string) =>
    endTransfer(rig.remitting, second.remittance_id, { outcome: 'returned', reference }, who);
  assert.equal((await end('account closed', 'ada')).outcome, 'second_person_needed');
  await assert.rejects(end('account closed', 'ada'), { code: 'CONFLICT' });
  assert.equal((await end('another', 'bert')).outcome, 'second_person_needed');
  assert.equal((await end('another', 'ada')).outcome, 'done');
  await rig.round();
  await rig.holds();
  assert.deepEqual((await rig.balance()).owed, 1_800);
  await rig.remitted();
  assert.deepEqual((await rig.remittances())[0], ['sent', 2_500]);
  await rig.holds();
  assert.deepEqual(
    (await rig.lines(await rig.newest('sent'))).map((one) => [one.kind, one.amount_in_cents]),
    [
      ['payment', 700],
      ['carried', 1_800],
    ],
  );
});

test('bank days leave out weekends and the holidays of the Federal Reserve', () => {
  const cases = {
    '2026-03-06': '2026-03-06',
    '2026-03-07': '2026-03-09',
    '2026-01-19': '2026-01-20',
    '2026-05-25': '2026-05-26',
    // The Fourth of July is a Saturday: the Friday before is a bank day.
    '2026-07-03': '2026-07-03',
    '2026-11-26': '2026-11-27',
    '2026-12-25': '2026-12-28',
    // On a Sunday: kept on the Monday.
    '2028-01-01': '2028-01-03',
    '2027-07-04': '2027-07-06',
  };
  for (const [day, bankDay] of Object.entries(cases)) assert.equal(bankDayFrom(day), bankDay, day);
});

test('a new account ends no hold, and what is handed out by hand says that it is held', async (t) => {
  const rig = await rigOf(t);
  await rig.payout({ way: 'by_hand', held: true, minimum_in_cents: 300, bears_refunds: false });
  await rig.payout({
    way: 'by_hand',
    account_number: '99998888',
    held: undefined,
    minimum_in_cents: undefined,
    bears_refunds: undefined,
  });
  const [kept] = await listPayouts(rig.remitting, 'acme');
  assert.deepEqual(
    [kept?.held, kept?.minimum_in_cents, kept?.bears_refunds, kept?.account],
    [true, 300, false, '…8888'],
  );
  await rig.paid();
  await rig.close();
  await rig.payout({ way: 'by_hand', held: false });
  await rig.round();
  const shown = async () =>
    (await listRemittances(rig.database, {})).map((one) => [one.state, one.held]);
  assert.deepEqual(await shown(), [['sent', false]]);
  await rig.payout({ way: 'by_hand', held: true });
  assert.deepEqual(await shown(), [['sent', true]]);
});

test('a biller whose way changes is paid once, by the way of the first try [PL17]', async (t) => {
  let fails = false;
  const { sent, channel } = stripeChannel(() =>
    fails ? Promise.reject(new Error('low balance')) : undefined,
  );
  const rig = await rigOf(t, channel);
  await rig.payout();
  await rig.remitted();
  await rig.payout(byStripe);
  await rig.round();
  const one = await rig.newest();
  assert.deepEqual([one.state, sent.size], ['sent', 0]);
  const end = (id: string, who: string) =>
    endTransfer(rig.remitting, id, { outcome: 'returned', reference: 'none' }, who);
  await end(one.remittance_id, 'ada');

  // The other way round: what was to be sent by Stripe waits until two persons say that Stripe has nothing.
  await rig.paid();
  await rig.close();
  fails = true;
  await rig.round();
  fails = false;
  await rig.payout();
  const waits = await rig.round();
  assert.match(waits[0]?.why ?? '', /no account at Stripe/);
  const next = await rig.newest('sending');
  const say = (who: string) => end(next.remittance_id, who);
  // Another replica may have begun to send it before the way changed; and while the way is Stripe it is tried again.
  await assert.rejects(say('ada'), { code: 'CONFLICT' });
  const longAgo = () =>
    rig.database.query(
      `UPDATE duebridge_platform.payouts SET updated_at = now() - interval '3 minutes'`,
    );
  await rig.payout({ ...byStripe, held: true });
  await longAgo();
  await rig.payout({ ...byStripe, held: false });
  await longAgo();
  await assert.rejects(say('ada'), { code: 'CONFLICT' });
  await rig.payout();
  await longAgo();
  assert.equal((await say('ada')).outcome, 'second_person_needed');
  assert.equal((await say('bert')).outcome, 'done');
  await rig.holds();
  assert.deepEqual(await rig.balance(), { owed: 1_400, remitting: 0, paid: 0 });
});

test('a transfer that was paid and came back is owed again; above the limit two persons say so', async (t) => {
  const rig = await rigOf(t, stripeChannel().channel);
  const back = async (who: string) => {
    const said = { outcome: 'returned', reference: 'closed' } as const;
    return endTransfer(rig.remitting, (await rig.newest('paid')).remittance_id, said, who);
  };
  await rig.payout(byStripe);
  await rig.remitted();
  await rig.round();
  assert.deepEqual(await rig.remittances(), [['paid', 700]]);
  assert.equal((await back('ada')).outcome, 'done');
  await rig.holds();
  assert.deepEqual(await rig.balance(), { owed: 700, remitting: 0, paid: 0 });
  assert.deepEqual(
    (await listPayouts(rig.remitting, 'acme')).map((each) => [each.way, each.account]),
    [['stripe', '…ater']],
  );
  await assert.rejects(rig.payout({ way: 'stripe' }), { code: 'INVALID_REQUEST' });

  await rig.payout();
  await rig.remitted();
  const { file_id } = await makeBankFile({ ...rig.remitting, payer }, TEST_FILE, 'ada');
  await endTransfer(rig.remitting, file_id, { outcome: 'paid', reference: 'BANK-1' }, 'ada');
  assert.deepEqual(await rig.balance(), { owed: 0, remitting: 0, paid: 1_400 });
  assert.equal((await back('ada')).outcome, 'second_person_needed');
  await assert.rejects(back('ada'), { code: 'CONFLICT' });
  assert.equal((await back('bert')).outcome, 'done');
  await rig.holds();
  assert.deepEqual(await rig.balance(), { owed: 1_400, remitting: 0, paid: 0 });
});

test('a biller that has left is paid what it is still owed, once its batches are remitted', async (t) => {
  const rig = await rigOf(t);
  const said = { reason: 'has left', actor: 'ada', now: rig.clock.now() };
  const rest = () => payOut(rig.database, { partner_id: 'acme' }, 'acme', said);
  await rig.payout({ minimum_in_cents: 1_000 });
  await rig.paid();
  await assert.rejects(rest(), /is not remitted yet/);
  await rig.close();
  await rig.round();
  assert.deepEqual(await rig.remittances(), [['carried', 700]]);
  // Today's batch of an aggregator is always open, with payments of its other billers.
  await rig.paid(true, 'another');
  const id = await rest();
  await assert.rejects(rest(), /owed nothing/);
  await rig.round();
  await rig.holds();
  assert.deepEqual((await rig.remittances())[0], ['sent', 700]);
  assert.equal((await rig.newest()).remittance_id, id);
  const below = await listRemittances(rig.database, { cursor: id });
  assert.deepEqual([(await rig.remittances()).length, below.length], [2, 1]);
  assert.match(await rig.statement(id, 'csv'), /^carried,,,,700,rest-.*\r\ntotal,,,,700,/m);
});

test('a transfer that comes into a file while it is said to be returned is not owed again', async (t) => {
  const rig = await rigOf(t);
  const { database } = rig;
  await rig.payout();
  await rig.remitted();
  const { remittance_id } = await rig.newest();
  const word = { outcome: 'returned', reference: 'another way' } as const;
  const end = () => endTransfer(rig.remitting, remittance_id, word, 'bert');
  let said: Promise<unknown> | undefined;
  const transaction: typeof database.transaction = (work) =>
    database.transaction(async (tx) => {
      const file = await work(tx);
      said ??= assert.rejects(end(), { code: 'CONFLICT', message: /at the same moment/ });
      await until('the word waits for the file', async () => {
        const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return (await database.query(waits)).length > 0;
      });
      return file;
    });
  const desk = { ...rig.remitting, database: { ...database, transaction }, payer };
  await makeBankFile(desk, TEST_FILE, 'ada');
  await said;
  assert.deepEqual(await rig.balance(), { owed: 0, remitting: 700, paid: 0 });
  // The bank refuses it: that is another word.
  assert.equal((await end()).outcome, 'done');
  await rig.holds();
});
