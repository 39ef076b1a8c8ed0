/**
 * Days of a platform's money in a real database: payments of several billers are settled, refunded, disputed and returned, batches close and
 * are remitted, and every step may crash before, in or after its commit, or lose the answer of a processor or of a bank.
 *
 * enters: a seed, a number of payments, billers and days.  leaves: what was moved; throws BrokenBook at the first
 *         step after which a cent is not where it should be.
 * holds:  the billers' ledgers are kept here, beside the database, from what was posted: at the end they are compared with what the bank
 *         transferred and what the statements say.
 */
import type { Database, Statement } from '@duebridge/runtime';
import { manualClock, seededRandom, type Cleanup } from '@duebridge/runtime/testing';
import { engineRig, idleWorker, writer } from '../../packages/platform/test/engine-rig.ts';
import { outOfBalance, readBalances, sumBook } from '../../packages/platform/src/money/balances.ts';
import { findFaults } from '../../packages/platform/src/money/check.ts';
import { listRemittances } from '../../packages/platform/src/money/statement.ts';
import { firstIdAt } from '../../packages/platform/src/payment-id.ts';
import { settlePayments } from '../../packages/platform/test/standing.ts';
import type { Violation } from './checkers.ts';
import { Office } from './office.ts';

const DAY_MS = 24 * 3_600_000;
const ME = 'me';
/** Payments that one statement settles, as the engine's records do. */
const AT_ONCE = 500;

/** What the office does when the payments of a day are settled. */
const AFTERWARDS = [
  'endCases',
  'closeBatches',
  'remit',
  'remit',
  'repeatRefunds',
  'carry',
  'remit',
] as const;

/** A cent is not where it should be. */
class BrokenBook extends Error {
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

/** What happened, counted, and what does not add up at the end. */
export interface MoneyMoved {
  readonly moved: Readonly<Record<string, number>>;
  readonly violations: readonly Violation[];
}

class Crash extends Error {
  override readonly name = 'Crash';
}

/** Runs one. Throws BrokenBook, or an Error that no step may meet. */
export async function runMoney(cleanup: Cleanup, world: MoneyWorld): Promise<MoneyMoved> {
  const { billers, days } = world;
  const random = seededRandom(world.seed);
  const moved: Record<string, number> = {};
  const happened = (what: string): void => {
    moved[what] = (moved[what] ?? 0) + 1;
  };
  const crash = (): void => {
    if (random() * 1_000 >= world.crashes) return;
    happened('crash');
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
  const clock = manualClock(Date.now() - days * DAY_MS);
  const tools = { database: crashing(safe, crash), clock };
  const captured: { id: string; cents: number }[] = [];
  const office = new Office(
    {
      registry: rig.registry,
      look: (statement, values) => safe.query(statement, values),
      sleep: () => Promise.resolve(),
      captured: () => Promise.resolve(captured),
      happened,
      bug: (what) => {
        throw new Error(what);
      },
    },
    random,
  );
  await office.pays(safe, partner, names);
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
  for (let day = 0; day < days; day += 1) {
    await clock.advance(DAY_MS);
    const made = await post(posted, Math.ceil(world.payments / days), clock.now(), ledger);
    await settled(tools.database, made, clock.now());
    captured.push(...made);
    await holds(`the settlements of day ${day}`);
    const acts = [
      ...Array.from({ length: Math.round(made.length / 50) }, () => 'refund' as const),
      ...Array.from({ length: Math.round(made.length / 100) }, () => 'takeBack' as const),
      ...AFTERWARDS,
    ];
    for (const [step, act] of acts.entries()) {
      await office.tried(office[act](tools));
      if (step % 10 === 0) await holds(`step ${step} of day ${day}`);
    }
    await office.tried(sumBook(tools.database, clock.now()));
    await holds(`the bank of day ${day}`);
  }
  // What is under way arrives.
  office.isHealed = true;
  const steady = { database: safe, clock };
  for (let left = 1; left > 0;) {
    await clock.advance(DAY_MS);
    for (const act of AFTERWARDS) await office[act](steady);
    left =
      (await listRemittances(safe, { state: 'sending' })).length +
      (await listRemittances(safe, { state: 'sent' })).length;
  }
  await holds('the end');
  return { moved, violations: await office.violations(ledger) };
}

/** The funds of these payments are taken, whatever crashes. */
async function settled(
  database: Database,
  made: readonly { readonly id: string }[],
  now: number,
): Promise<void> {
  for (let from = 0; from < made.length;) {
    const some = made.slice(from, from + AT_ONCE).map(({ id }) => ({ platform_payment_id: id }));
    const by = { ...writer(ME), at: new Date(now).toISOString() };
    try {
      await settlePayments(database, by, some);
      from += AT_ONCE;
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
    }
  }
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
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state) SELECT id, 'simulated', 'r', 'authorized' FROM unnest($1::text[]) AS id`,
      [rows.map(({ id }) => id)],
    );
  });
  return rows;
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
