/**
 * Days of a platform's money in a real database: payments of several billers are settled, refunded, disputed and returned, batches close and
 * are remitted, and every step may crash before, in or after its commit, or lose the answer of a processor or of a bank.
 *
 * enters: a seed, a number of payments, billers and days.  leaves: what was moved; throws BrokenBook at the first
 *         step after which a cent is not where it should be.
 * holds:  the billers' ledgers are kept here, beside the database, from what was posted: at the end they are compared with what the bank
 *         transferred and what the statements say.
 */
import { silentLog, type Database, type Statement } from '@duebridge/runtime';
import { manualClock, seededRandom, type Cleanup } from '@duebridge/runtime/testing';
import {
  engineRig,
  idleWorker,
  SEAL_KEY,
  writer,
} from '../../packages/platform/test/engine-rig.ts';
import { applyEvent } from '../../packages/platform/src/funding/apply-event.ts';
import { outOfBalance, readBalances, sumBook } from '../../packages/platform/src/money/balances.ts';
import { findFaults } from '../../packages/platform/src/money/check.ts';
import { endTransfer, makeBankFile, openDesk } from '../../packages/platform/src/money/desk.ts';
import { setPayout } from '../../packages/platform/src/money/payouts.ts';
import { repeatRefunds, requestRefund } from '../../packages/platform/src/money/refunds.ts';
import { remit, type RemittanceChannel } from '../../packages/platform/src/money/remittance.ts';
import { linesOf, listRemittances } from '../../packages/platform/src/money/statement.ts';
import { openSealer } from '../../packages/platform/src/partners/seal.ts';
import { firstIdAt } from '../../packages/platform/src/payment-id.ts';
import { closeBatches } from '../../packages/platform/src/reconciliation/batch.ts';
import { endCase, listCases } from '../../packages/platform/src/store/cases.ts';
import { settlePayments } from '../../packages/platform/src/store/terminal.ts';

const DAY_MS = 24 * 3_600_000;
const ME = 'me';
/** Payments that one statement settles, as the engine's records do. */
const AT_ONCE = 500;

/** A cent is not where it should be. */
export class BrokenBook extends Error {
  override readonly name = 'BrokenBook';
}

export interface MoneyWorld {
  readonly seed: number;
  readonly payments: number;
  readonly billers: number;
  readonly days: number;
  /** Of a thousand statements and calls, those that crash. */
  readonly crashes: number;
}

/** What happened. */
export interface MoneyMoved {
  crashes: number;
  refunds: number;
  returns: number;
  steps: number;
  readonly transferred_in_cents: number;
  readonly statements_in_cents: number;
  readonly ledgers_in_cents: number;
  readonly taken_off_in_cents: number;
  readonly owed_in_cents: number;
}

class Crash extends Error {
  override readonly name = 'Crash';
}

/** Runs one. */
export async function runMoney(cleanup: Cleanup, world: MoneyWorld): Promise<MoneyMoved> {
  const { billers, days } = world;
  const random = seededRandom(world.seed);
  const moved = { crashes: 0, refunds: 0, returns: 0, steps: 0 };
  const crash = (): void => {
    if (random() * 1_000 >= world.crashes) return;
    moved.crashes += 1;
    throw new Crash('the process dies here');
  };
  const rig = await engineRig(cleanup);
  const { database: safe } = rig;
  const names = Array.from({ length: billers }, (_, index) => `biller-${index}`);
  await rig.register('agg', 'http://127.0.0.1:9', {
    kind: 'aggregator',
    biller_id: undefined as never,
    biller_names: Object.fromEntries(names.map((name) => [name, name])),
  });
  await idleWorker(safe, ME, [7]);
  const partner = await rig.registry.get('agg');
  if (partner === undefined) throw new Error('the partner was not registered');
  const database = crashing(safe, crash);
  const sealer = openSealer(SEAL_KEY);
  for (const biller_id of names) {
    await setPayout(
      { database: safe, sealer },
      partner,
      {
        biller_id,
        way: 'pain001',
        holder_name: biller_id,
        routing_number: '021000021',
        account_number: '000111222',
      },
      'ada',
    );
  }
  const clock = manualClock(Date.now() - days * DAY_MS);
  const desk = openDesk(safe);
  const channel: RemittanceChannel = {
    async send(order) {
      crash();
      const sent = await desk.send(order);
      crash();
      return sent;
    },
    find: (id) => (crash(), desk.find(id)),
    state: (id, on) => (crash(), desk.state(id, on)),
  };
  const compare = (id: string): Promise<unknown> =>
    safe.query(
      `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences) VALUES ($1, 't', 'statement', 1, 0)`,
      [id],
    );
  const remitting = {
    database,
    registry: rig.registry,
    sealer,
    channel,
    compare,
    clock,
    log: silentLog,
  };
  const refunded = new Map<string, number>();
  const refunding = {
    database,
    secondPersonAboveCents: 1_000_000,
    clock,
    log: silentLog,
    refundPart(_order: unknown, part: { refund_id: string; amount_in_cents: number }) {
      crash();
      refunded.set(part.refund_id, part.amount_in_cents);
      crash();
      return Promise.resolve({ kind: 'refunded' } as const);
    },
  };
  const tried = async (step: () => Promise<unknown>): Promise<boolean> => {
    moved.steps += 1;
    try {
      await step();
      return true;
    } catch (error) {
      // A refusal, as of a second refund, is an answer.
      if (error instanceof Crash) return false;
      if (error instanceof Error && error.name === 'Refusal') return true;
      throw error;
    }
  };
  const holds = async (after: string): Promise<void> => {
    const balances = await readBalances(safe);
    const faults = [
      ...balances
        .filter((one) => outOfBalance(one) !== 0)
        .map((one) => `${one.biller_id} is out of balance`),
      ...(await findFaults(safe, 0, balances)),
    ];
    if (faults.length > 0) throw new BrokenBook(`after ${after}: ${faults.slice(0, 3).join('; ')}`);
  };

  const posted: Posted = { database: safe, billers: names, next: 0 };
  const ledger = new Map<string, number>();
  const captured: { id: string; cents: number }[] = [];
  const refundedOf = new Set<string>();
  for (let day = 0; day < days; day += 1) {
    const now = await nextDay(clock);
    const made = await post(posted, Math.ceil(world.payments / days), now, ledger);
    for (let from = 0; from < made.length; from += AT_ONCE) {
      const some = made.slice(from, from + AT_ONCE);
      const settle = (): Promise<unknown> =>
        settlePayments(
          database,
          { ...writer(ME), at: new Date(now).toISOString() },
          some.map(({ id }) => ({ platform_payment_id: id })),
        );
      while (!(await tried(settle)));
    }
    captured.push(...made);
    await holds(`the settlements of day ${day}`);
    for (let count = Math.round(made.length / 50); count > 0; count -= 1) {
      const one = captured[Math.floor(random() * captured.length)];
      if (one === undefined) break;
      moved.refunds += 1;
      refundedOf.add(one.id);
      const part = random() < 0.5 ? one.cents : Math.ceil(random() * one.cents);
      const refund_id = `refund-${day}-${count}`;
      const request = {
        amount_in_cents: part,
        reason_code: 'other',
        reason: 'r',
        refund_id,
      } as const;
      const ask = () => requestRefund(refunding, one.id, request, 'ada');
      while (!(await tried(ask)));
      // Somebody asks for all of it again, under another id.
      const again = { ...request, amount_in_cents: one.cents, refund_id: `${refund_id}-again` };
      await tried(() => requestRefund(refunding, one.id, again, 'bert'));
    }
    for (let count = Math.round(made.length / 100); count > 0; count -= 1) {
      const one = captured[Math.floor(random() * captured.length)];
      // A bank that takes back what was refunded is a loss that the check names, for a person.
      if (one === undefined || refundedOf.has(one.id)) continue;
      moved.returns += 1;
      const reference = `d-${day}-${count}`;
      const kind = random() < 0.5 ? 'returned' : 'disputed';
      const tell = (outcome?: 'won' | 'lost') => {
        const money = [{ reference, amount_in_cents: one.cents, ...(outcome && { outcome }) }];
        const event_id = `${reference}-${outcome ?? ''}`;
        const event = { event_id, platform_payment_id: one.id, kind, money } as const;
        return applyEvent(database, 'a', event, new Date(clock.now()).toISOString());
      };
      while (!(await tried(tell)));
      if (kind === 'disputed') while (!(await tried(() => tell(random() < 0.5 ? 'won' : 'lost'))));
    }
    await holds(`the returns of day ${day}`);
    for (const { case_id } of await listCases(safe, { state: 'lost' })) {
      const ends = ['recovered', 'charged_to_biller', 'written_off'] as const;
      const disposition = ends[Math.floor(random() * ends.length)] ?? 'written_off';
      const by = { actor: 'ada', at: new Date(clock.now()).toISOString() };
      const on = { database, secondPersonAboveCents: 1e9 };
      await tried(() => endCase(on, case_id, { disposition, reason: 'r' }, by));
    }
    await closeBatches(safe, 'test');
    for (let round = 0; round < 3; round += 1) {
      await tried(() => repeatRefunds(refunding));
      await tried(() => remit(remitting));
      await holds(`round ${round} of day ${day}`);
    }
    await carry(safe, remitting, random);
    await tried(() => remit(remitting));
    await tried(() => sumBook(database, clock.now()));
    await holds(`the bank of day ${day}`);
  }
  // What is under way arrives.
  for (let left = 1; left > 0;) {
    await nextDay(clock);
    await repeatRefunds({ ...refunding, database: safe });
    await carry(safe, remitting, () => 1);
    await remit({ ...remitting, database: safe, channel: desk });
    left =
      (await listRemittances(safe, { state: 'sending' })).length +
      (await listRemittances(safe, { state: 'sent' })).length;
  }
  await holds('the end');
  return { ...moved, ...(await compared(safe, ledger)) };
}

interface Posted {
  readonly database: Database;
  readonly billers: readonly string[];
  next: number;
}

/** Payments that their billers have posted, in a batch of their own whose window is over; the ledgers know them. */
async function post(
  posted: Posted,
  count: number,
  now: number,
  ledger: Map<string, number>,
): Promise<{ id: string; cents: number }[]> {
  const batch = `batch-${now}`;
  const rows = Array.from({ length: count }, () => {
    posted.next += 1;
    const biller = posted.billers[posted.next % posted.billers.length] ?? '';
    const cents = 100 + ((posted.next * 7_919) % 90_000);
    ledger.set(biller, (ledger.get(biller) ?? 0) + cents);
    const id = `${firstIdAt(now).slice(0, 24)}${String(posted.next).padStart(12, '0')}`;
    return { id, biller, cents };
  });
  await posted.database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ($1, 'agg', $2::timestamptz)`,
      [batch, new Date(now).toISOString()],
    );
    await tx.query(
      `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
              funding_method, status, stage, slot, payment_id, ended_by, initiated_at, posted_at, created_at, accepted_at, ended_at)
       SELECT u.id, 'agg', u.biller, 'A', $1, u.cents, 'a_card', 'succeeded', 'ended', 7, 'P-' || u.id, 'partner', $2, $2, $2, $2, $2
         FROM unnest($3::text[], $4::text[], $5::bigint[]) AS u (id, biller, cents)`,
      [
        batch,
        new Date(now).toISOString(),
        rows.map(({ id }) => id),
        rows.map(({ biller }) => biller),
        rows.map(({ cents }) => cents),
      ],
    );
    await tx.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state) SELECT id, 'a', 'r', 'authorized' FROM unnest($1::text[]) AS id`,
      [rows.map(({ id }) => id)],
    );
  });
  return rows;
}

/** The operator carries a file to the bank, which pays most transfers, sends back some, and some a while later. */
async function carry(
  database: Database,
  desk: Parameters<typeof endTransfer>[0] & Omit<Parameters<typeof makeBankFile>[0], 'payer'>,
  random: () => number,
): Promise<void> {
  const payer = { name: 'P', routing_number: '011000015', account_number: '1', company_id: '1' };
  const file = await makeBankFile(
    { ...desk, database, payer },
    { way: 'pain001', mode: 'test' },
    'ada',
  ).catch(() => undefined);
  const on = { database, clock: desk.clock };
  for (const [, id = ''] of (file?.content ?? '').matchAll(/<Ustrd>duebridge ([^<]+)</g)) {
    const outcome = random() < 0.05 ? 'returned' : 'paid';
    await endTransfer(on, id, { outcome, reference: 'B' }, 'ada');
  }
  for (const { remittance_id } of await listRemittances(database, { state: 'paid' })) {
    if (random() < 0.005) {
      await endTransfer(on, remittance_id, { outcome: 'returned', reference: 'late' }, 'ada').catch(
        () => undefined,
      );
    }
  }
}

async function nextDay(clock: ReturnType<typeof manualClock>): Promise<number> {
  await clock.advance(DAY_MS);
  return clock.now();
}

/** What the bank transferred, what the statements of those transfers make, and what the billers' ledgers have. */
async function compared(database: Database, ledger: ReadonlyMap<string, number>) {
  const paid = await database.query<{ remittance_id: string }>(
    `SELECT remittance_id FROM duebridge_platform.remittances WHERE state = 'paid'`,
  );
  const [bank] = await database.query<{ cents: number }>(
    `SELECT coalesce(sum(amount_in_cents), 0)::bigint AS cents FROM duebridge_platform.bank_transfers WHERE result = 'paid'`,
  );
  let statements = 0;
  for (const remittance of await allRemittances(
    database,
    paid.map(({ remittance_id }) => remittance_id),
  )) {
    for await (const page of linesOf(database, remittance))
      for (const line of page) statements += line.amount_in_cents;
  }
  const [off] = await database.query<{ cents: number }>(
    'SELECT coalesce(sum(amount_in_cents), 0)::bigint AS cents FROM duebridge_platform.deductions',
  );
  const balances = await readBalances(database);
  return {
    transferred_in_cents: bank?.cents ?? 0,
    statements_in_cents: statements,
    ledgers_in_cents: [...ledger.values()].reduce((sum, cents) => sum + cents, 0),
    taken_off_in_cents: off?.cents ?? 0,
    owed_in_cents: balances.reduce((sum, { owed }) => sum + owed, 0),
  };
}

function allRemittances(database: Database, ids: readonly string[]) {
  return database.query<Parameters<typeof linesOf>[1]>(
    'SELECT * FROM duebridge_platform.remittances WHERE remittance_id = ANY($1)',
    [ids],
  );
}

/** The database of a process that may die at any statement. */
function crashing(database: Database, crash: () => void): Database {
  return {
    ...database,
    async query<Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> {
      crash();
      const rows = await database.query<Row>(statement, values);
      crash();
      return rows;
    },
    async transaction(work, options) {
      crash();
      const result = await database.transaction(async (tx) => {
        const done = await work({
          ...tx,
          query: async <Row>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> => {
            crash();
            return tx.query<Row>(statement, values);
          },
        });
        crash();
        return done;
      }, options);
      crash();
      return result;
    },
  };
}
