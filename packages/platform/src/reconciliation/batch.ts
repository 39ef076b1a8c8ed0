/**
 * Batches: one platform_batch_id per partner and window (PF3, decision 26).
 *
 * enters: payments as they are made.  leaves: after the cut-off, when every payment of the batch has ended, a statement that is
 * written once: count and cents per status, and a SHA-256 over the sorted lines. next: reconcile.ts.
 */
import { createHash } from 'node:crypto';
import {
  conflict,
  PAYMENT_STATUSES,
  Refusal,
  type BatchStatement,
  type BatchComparison,
  type BatchView,
  type ListedBatch,
  type PaymentStatus,
} from '@duebridge/contract';
import { sql, type Database, type Transaction } from '@duebridge/runtime';
import type { Partner } from '../partners/registry.ts';
import type { Queryable } from '../store/payments.ts';

/** The end of the batch window that holds `now`: the next cut-off of the partner, in milliseconds since 1970. Pure. */
export function cutoffAfter(
  partner: Pick<Partner, 'batch_time_zone' | 'batch_cutoff'>,
  now: number,
): number {
  const [hour = 0, minute = 0] = partner.batch_cutoff.split(':').map(Number);
  const today = shownIn(partner.batch_time_zone, now);
  const [year, month, date] = [today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate()];
  // Days of the calendar: where clocks change, 24 hours later may be the day after tomorrow.
  for (let day = 0; day <= 2; day += 1) {
    const wall = Date.UTC(year, month, date + day, hour, minute);
    const at = instantOf(partner.batch_time_zone, wall);
    if (at > now) return at;
  }
  throw new RangeError('no cut-off within two days');
}

/**
 * The day of a window, by the partner's calendar: that of its last moment, so that a window which ends at midnight is the day before,
 * whose payments it holds. YYYY-MM-DD. Pure.
 */
export function windowDay(partner: Pick<Partner, 'batch_time_zone'>, cutoff: number): string {
  return shownIn(partner.batch_time_zone, cutoff - 1)
    .toISOString()
    .slice(0, 10);
}

/** What clocks of the zone show, as an instant whose clocks in UTC show the same. */
const shownIn = (zone: string, at: number): Date => new Date(at + offsetMs(zone, at));

/** The instant at which clocks of the zone show what `wall` shows in UTC. A time that daylight saving skips becomes one after the gap. */
function instantOf(zone: string, wall: number): number {
  const first = wall - offsetMs(zone, wall);
  const second = wall - offsetMs(zone, first);
  const shown = [second, first].find((at) => at + offsetMs(zone, at) === wall);
  return shown ?? Math.max(first, second);
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** How far the clocks of a zone are ahead of UTC. */
function offsetMs(zone: string, at: number): number {
  const format =
    formats.get(zone) ??
    new Intl.DateTimeFormat('en-US', { timeZone: zone, timeZoneName: 'longOffset' });
  formats.set(zone, format);
  const text = format.format(at);
  const [, sign, hours, minutes, seconds = 0] = /GMT([+-])(\d+):(\d+)(?::(\d+))?$/.exec(text) ?? [];
  if (sign === undefined) return 0;
  const ms = ((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1_000;
  return sign === '-' ? -ms : ms;
}

const findWindow = sql(`
   SELECT platform_batch_id FROM duebridge_platform.batches WHERE partner_id = $1 AND cutoff_at = $2`);
const openWindow = sql(`
   INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ($1, $2, $3)
   ON CONFLICT DO NOTHING`);

/**
 * The id of the open batch for a payment made at `now` (milliseconds since 1970). Opens it, committed, if this is the window's first
 * payment. Takes no transaction: on a sharded database, one that opens a batch and then inserts into it deadlocks with itself.
 */
export async function batchFor(database: Database, partner: Partner, now: number): Promise<string> {
  const cutoff = new Date(cutoffAfter(partner, now)).toISOString();
  const find = async (): Promise<string | undefined> => {
    const [row] = await database.query<{ platform_batch_id: string }>(findWindow, [
      partner.partner_id,
      cutoff,
    ]);
    return row?.platform_batch_id;
  };
  const found = await find();
  if (found !== undefined) return found;
  // An id that is taken is that of a batch which was ended before the window's time (closeBatchNow) or, once in
  // 2^48, of another partner: the next one is tried.
  for (let ended = 0; ended < MAX_ENDED_EARLY; ended += 1) {
    // The day is for people to read; the rest, 48 bits, makes the id unique over all partners: it is short because each payment has it. It follows
    // from the window: a database that has lost the row gives the same id again, under which the partner has the window's first payments.
    const window = [partner.partner_id, partner.created_at, cutoff, ...(ended > 0 ? [ended] : [])];
    const digest = createHash('sha256').update(JSON.stringify(window)).digest().readUIntBE(0, 6);
    const id = `${windowDay(partner, Date.parse(cutoff))}-${digest.toString(36).padStart(10, '0')}`;
    await database.query(openWindow, [id, partner.partner_id, cutoff]);
    // Another process may have opened it first; at READ COMMITTED the separate read sees its row.
    const opened = await find();
    if (opened !== undefined) return opened;
  }
  throw conflict(
    `${MAX_ENDED_EARLY} batches of this window were ended early: wait for the next window`,
  );
}

/** Batches of one window that somebody may end before its time, in test mode. */
const MAX_ENDED_EARLY = 1_000;

/**
 * Condition on `payments p`: a PUT may have left. What ended before that (funds declined, withdrawn) was never at the partner. No
 * statement counts it; otherwise two correct sides would never agree.
 */
export const REACHED_THE_PARTNER = `p.stage NOT IN ('created', 'authorized') AND NOT (p.stage = 'ended' AND p.accepted_at IS NULL)`;

const LINES = `SELECT p.platform_payment_id, p.status, p.amount_in_cents FROM duebridge_platform.payments p
        WHERE p.platform_batch_id = $1 AND ${REACHED_THE_PARTNER} ORDER BY p.platform_payment_id COLLATE "C"`;

/** Lines of one fetch: a few milliseconds of the event loop. */
const LINES_AT_ONCE = 5_000;
/** Time limit of one statement while lines are read: the first fetch sorts the batch, about 4 s for a million lines. */
const LINES_TIMEOUT_MS = 300_000;

/** The statement of a batch as of one moment, read page by page. */
export function readStatement(
  database: Database,
  platform_batch_id: string,
): Promise<BatchStatement> {
  return withLines(database, platform_batch_id, (pages) => statementOf(platform_batch_id, pages));
}

/**
 * Gives the lines of a batch as of one moment, in the order of their ids, to `work`: page by page, so that a batch of millions needs no
 * memory. They are the payments that may have reached the partner.
 */
export function withLines<T>(
  database: Database,
  platform_batch_id: string,
  work: (pages: AsyncIterable<StatementLine[]>) => Promise<T>,
): Promise<T> {
  return database.transaction((tx) => work(linesIn(tx, platform_batch_id)), {
    statementTimeoutMs: LINES_TIMEOUT_MS,
  });
}

/** A cursor sorts the lines once, however many pages they fill, and all pages are of one snapshot. */
async function* linesIn(
  tx: Transaction,
  platform_batch_id: string,
): AsyncGenerator<StatementLine[]> {
  await tx.query(`DECLARE batch_lines NO SCROLL CURSOR FOR ${LINES}`, [platform_batch_id]);
  for (;;) {
    const page = await tx.query<StatementLine>(`FETCH ${LINES_AT_ONCE} FROM batch_lines`);
    yield page;
    if (page.length < LINES_AT_ONCE) break;
  }
  await tx.query('CLOSE batch_lines');
}

/** One payment as a statement counts it. */
export interface StatementLine {
  readonly platform_payment_id: string;
  readonly status: PaymentStatus;
  readonly amount_in_cents: number;
}

/** The statement of these lines, which come in the order of their ids, by byte. Holds sums and a hash: a batch of millions needs no memory. */
export async function statementOf(
  platform_batch_id: string,
  pages: AsyncIterable<readonly StatementLine[]> | Iterable<readonly StatementLine[]>,
): Promise<BatchStatement> {
  const hash = createHash('sha256');
  const totals = new Map<PaymentStatus, { count: number; amount_in_cents: number }>();
  let count = 0;
  for await (const page of pages) {
    for (const { platform_payment_id, status, amount_in_cents } of page) {
      hash.update(`${platform_payment_id},${status},${amount_in_cents}\n`);
      count += 1;
      const total = totals.get(status) ?? { count: 0, amount_in_cents: 0 };
      total.count += 1;
      total.amount_in_cents += amount_in_cents;
      totals.set(status, total);
    }
  }
  return {
    platform_batch_id,
    count,
    totals: PAYMENT_STATUSES.flatMap((status) => {
      const total = totals.get(status);
      return total === undefined ? [] : [{ status, ...total }];
    }),
    sha256: hash.digest('hex'),
  };
}

const BATCH_COLUMNS = 'platform_batch_id, partner_id, opened_at, cutoff_at, closed_at, statement';

const lastComparison = sql(`
   SELECT compared_at, actor, method, compared, differences, partner_statement FROM duebridge_platform.comparisons
    WHERE platform_batch_id = $1 ORDER BY compared_at DESC, comparison_id DESC LIMIT 1`);

/** A batch with its statement: the written one, or the one of this moment while it is open. Throws Refusal BATCH_NOT_FOUND. */
export async function getBatch(database: Database, platform_batch_id: string): Promise<BatchView> {
  const [row] = await database.query<Omit<ListedBatch, 'differences'>>(
    sql(`SELECT ${BATCH_COLUMNS} FROM duebridge_platform.batches WHERE platform_batch_id = $1`),
    [platform_batch_id],
  );
  if (row === undefined) throw new Refusal('BATCH_NOT_FOUND');
  const statement = row.statement ?? (await readStatement(database, platform_batch_id));
  const [comparison = null] = await database.query<BatchComparison>(lastComparison, [
    platform_batch_id,
  ]);
  return { ...row, statement, comparison };
}

/** Batches, latest cut-off first, at most 100. Reads no payment, so an open batch, whose statement is not written, has null there. */
export function listBatches(on: Queryable, partner_id?: string): Promise<ListedBatch[]> {
  return on.query<ListedBatch>(
    sql(`
       SELECT ${BATCH_COLUMNS},
              (SELECT differences FROM duebridge_platform.comparisons c WHERE c.platform_batch_id = b.platform_batch_id
                ORDER BY compared_at DESC, comparison_id DESC LIMIT 1) AS differences
         FROM duebridge_platform.batches b WHERE $1::text IS NULL OR partner_id = $1
        ORDER BY cutoff_at DESC, partner_id LIMIT 100`),
    [partner_id ?? null],
  );
}

/**
 * Closes one batch now, by an operator. In test mode its window ends with it, so that nobody waits for the cut-off to see what follows.
 * Throws Refusal BATCH_NOT_FOUND, or CONFLICT when the window of a live one is open, a payment has not ended, or it is closed already:
 * the statement of a batch is written once.
 */
export async function closeBatchNow(
  database: Database,
  platform_batch_id: string,
  reason: string,
  actor: string,
): Promise<BatchView> {
  const before = await getBatch(database, platform_batch_id);
  if (await closeBatch(database, platform_batch_id, actor, reason)) {
    return getBatch(database, platform_batch_id);
  }
  if (before.closed_at !== null) throw conflict('The batch is closed already');
  // By the database's clock, by which it is closed.
  const open = await database.query(
    sql(`
       SELECT 1 FROM duebridge_platform.batches b JOIN duebridge_platform.partners p USING (partner_id)
        WHERE b.platform_batch_id = $1 AND b.cutoff_at > now() AND p.mode = 'live'`),
    [platform_batch_id],
  );
  if (open.length > 0) throw conflict(`The window of the batch is open until ${before.cutoff_at}`);
  throw conflict('A payment of the batch has not ended: end it first');
}

const dueStatement = sql(`
   SELECT b.platform_batch_id FROM duebridge_platform.batches b
    WHERE b.closed_at IS NULL AND b.cutoff_at <= now() ORDER BY b.platform_batch_id`);

/**
 * Closes batches whose cut-off has passed and whose payments have all ended: each in one transaction that holds the batch, so that
 * no payment joins while it is counted. Any number of replicas may do so at once. Returns the ids of those closed here; stops early when
 * `signal` aborts.
 */
export async function closeBatches(
  database: Database,
  actor: string,
  signal?: AbortSignal,
): Promise<string[]> {
  const closed: string[] = [];
  // Those of 5,000 partners in one evening are a few hundred kilobytes.
  for (const { platform_batch_id } of await database.query<{ platform_batch_id: string }>(
    dueStatement,
  )) {
    if (signal?.aborted === true) break;
    // First outside the transaction, so that a batch that waits for a payment in review is not locked every round.
    if (await isOpen(database, platform_batch_id)) continue;
    if (await closeBatch(database, platform_batch_id, actor)) closed.push(platform_batch_id);
  }
  return closed;
}

/** Whether a payment of the batch is still open. Reads the index of unsettled payments only, however large the batch is. */
async function isOpen(on: Queryable, platform_batch_id: string): Promise<boolean> {
  return (await on.query(openPayment, [platform_batch_id])).length > 0;
}

const openPayment = sql(`
   SELECT 1 FROM duebridge_platform.payments 
    WHERE platform_batch_id = $1 AND platform_batch_id <> '' AND settled_at IS NULL AND status = 'processing' LIMIT 1`);

/** Closes a batch. With a `reason`, a person ends the window of a test registration's batch before its time. */
function closeBatch(
  database: Database,
  platform_batch_id: string,
  actor: string,
  reason: string | null = null,
): Promise<boolean> {
  return database.transaction(
    async (tx) => {
      const held = await tx.query(
        sql(`
           SELECT 1 FROM duebridge_platform.batches b WHERE platform_batch_id = $1 AND closed_at IS NULL
              AND (cutoff_at <= now() OR ($2 AND EXISTS (SELECT 1 FROM duebridge_platform.partners p
                                                          WHERE p.partner_id = b.partner_id AND p.mode = 'test'))) FOR UPDATE`),
        [platform_batch_id, reason !== null],
      );
      if (held.length === 0) return false;
      // A payment may have joined since then: not sent yet and so in no line, but about to reach the partner under this batch's id.
      if (await isOpen(tx, platform_batch_id)) return false;
      const statement = await statementOf(platform_batch_id, linesIn(tx, platform_batch_id));
      await tx.query(
        sql(`
           WITH closed AS (
           UPDATE duebridge_platform.batches SET closed_at = now(), cutoff_at = least(cutoff_at, now()), statement = $2 WHERE platform_batch_id = $1 RETURNING partner_id
         )
         INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
         SELECT $3, 'batch_closed', partner_id, jsonb_strip_nulls(jsonb_build_object('platform_batch_id', $1::text, 'count', $4::int, 'reason', $5::text))
           FROM closed`),
        [platform_batch_id, JSON.stringify(statement), actor, statement.count, reason],
      );
      return true;
    },
    { statementTimeoutMs: LINES_TIMEOUT_MS },
  );
}
