/**
 * Statements of batches (decision 26): what a batch contains according to this side, in a form that one comparison with the other
 * side's checks.
 * A batch may hold millions of payments and whoever has the read scope may ask, so statements are limited: few concurrently,
 * each one page at a time. PostgreSQL formats the lines; here they are only hashed, so that a page costs the event loop a
 * millisecond.
 */
import { createHash } from 'node:crypto';
import {
  PAYMENT_STATUSES,
  Refusal,
  wholeCents,
  type BatchStatement,
  type KitBatch,
  type PaymentStatus,
} from '@duebridge/contract';
import { groupCommit, type Database, type Transaction } from '@duebridge/runtime';

/** Rows in one page: 60 bytes each, so that neither side holds more than a few hundred kilobytes. */
const PAGE_ROWS = 5_000;
/** Concurrent statements: each uses a connection of the pool and a core of the database. */
const MAX_AT_ONCE = 2;
/** PostgreSQL's time limit to sort and format one, in milliseconds: a minute is enough for about ten million payments. */
const STATEMENT_TIMEOUT_MS = 60_000;
/** Maximum statements in the queue; further requests are told to retry. */
const MAX_WAITING = 50;

// A cursor: the rows are sorted once, however many pages they fill.
const openCursor = `DECLARE batch_pages NO SCROLL CURSOR FOR
  SELECT string_agg(line, '' ORDER BY platform_payment_id) AS lines
    FROM (SELECT platform_payment_id, format(E'%s,%s,%s\\n', platform_payment_id, status, amount_in_cents) AS line,
                 (row_number() OVER (ORDER BY platform_payment_id) - 1) / ${PAGE_ROWS} AS page
            FROM duebridge_partner.payment WHERE platform_batch_id = $1) AS numbered
   GROUP BY page ORDER BY page`;

const totalsText = `SELECT status, count(*) AS count, sum(amount_in_cents)::bigint AS amount_in_cents
   FROM duebridge_partner.payment WHERE platform_batch_id = $1 GROUP BY status`;

interface Total {
  readonly status: PaymentStatus;
  readonly count: number;
  readonly amount_in_cents: number;
}

/** Reads statements, a few concurrently. */
export interface Statements {
  /**
   * The statement of a batch as of one moment after the call, or undefined when it has no payment. Refuses with SERVICE_UNAVAILABLE
   * when too many wait.
   */
  read(platform_batch_id: string): Promise<BatchStatement | undefined>;
}

/** Creates the reader. */
export function openStatements(database: Database): Statements {
  const queue = groupCommit<string, BatchStatement | undefined>({
    flush: (list) => Promise.all(list.map((batch) => batchStatement(database, batch))),
    maxBatch: 1,
    maxQueued: MAX_WAITING,
    concurrency: MAX_AT_ONCE,
  });
  return { read: (batch) => queue.add(batch) };
}

/**
 * The statement of a batch, or undefined when it has no payment. All of it is as of one moment. The ids are in byte order (collation "C"), as the hash requires.
 */
export function batchStatement(
  database: Database,
  platform_batch_id: string,
): Promise<BatchStatement | undefined> {
  return database.transaction(
    async (tx) => {
      const values = [platform_batch_id];
      const totals = await tx.query<Total>(totalsText, values);
      if (totals.length === 0) return undefined;
      const hash = createHash('sha256');
      for await (const lines of pagesOf(tx, values)) hash.update(lines);
      return {
        platform_batch_id,
        count: totals.reduce((sum, total) => sum + total.count, 0),
        totals: PAYMENT_STATUSES.flatMap((status) => {
          const total = totals.find((one) => one.status === status);
          return total ? [{ ...total, amount_in_cents: wholeCents(total.amount_in_cents) }] : [];
        }),
        sha256: hash.digest('hex'),
      };
    },
    { isolation: 'repeatable read', statementTimeoutMs: STATEMENT_TIMEOUT_MS },
  );
}

/** The lines of a batch, a page at a time, in the order of the ids. */
async function* pagesOf(tx: Transaction, values: readonly unknown[]): AsyncGenerator<string> {
  await tx.query(openCursor, [...values]);
  for (;;) {
    const [page] = await tx.query<{ lines: string }>('FETCH 1 FROM batch_pages');
    if (!page) return;
    yield page.lines;
  }
}

// For the operator of the kit ------------------------------------------------------------------------------------------------

// Finds distinct ids by skipping through their index: reading every payment to list a page of batches would take seconds.
const batchesText = `WITH RECURSIVE id AS (
    (SELECT platform_batch_id FROM duebridge_partner.payment WHERE ($1::text IS NULL OR platform_batch_id < $1)
      ORDER BY platform_batch_id DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT payment.platform_batch_id FROM duebridge_partner.payment
             WHERE payment.platform_batch_id < id.platform_batch_id ORDER BY payment.platform_batch_id DESC LIMIT 1)
      FROM id WHERE id.platform_batch_id IS NOT NULL
  ), page AS (SELECT platform_batch_id FROM id WHERE platform_batch_id IS NOT NULL LIMIT $2)
  SELECT page.platform_batch_id, sums.* FROM page CROSS JOIN LATERAL (
    SELECT count(*) AS count, sum(amount_in_cents)::bigint AS amount_in_cents,
           count(*) FILTER (WHERE status = 'processing') AS processing,
           min(initiated_at) AS first_initiated_at, max(initiated_at) AS last_initiated_at
      FROM duebridge_partner.payment WHERE payment.platform_batch_id = page.platform_batch_id) AS sums
   ORDER BY page.platform_batch_id DESC`;

/** Batches in descending order of their ids, `limit` of them, starting before the one named. */
export function listBatches(
  database: Database,
  before: string | undefined,
  limit: number,
): Promise<KitBatch[]> {
  return database.query<KitBatch>(batchesText, [before ?? null, limit]);
}

/** Maximum size of a file of lines in bytes, the same as a platform accepts; about a million payments. */
const MAX_LINES_BYTES = 64 * 1024 * 1024;

/**
 * The lines of a batch as CSV with a header, in chunks, all as of one moment: the file with which a platform reconciles.
 * Undefined when there is no such batch. Refuses with PAYLOAD_TOO_LARGE what a platform would not accept.
 */
export async function batchLines(
  database: Database,
  platform_batch_id: string,
): Promise<readonly string[] | undefined> {
  const pieces = ['platform_payment_id,status,amount_in_cents\n'];
  let bytes = 0;
  await database.transaction(
    async (tx) => {
      for await (const lines of pagesOf(tx, [platform_batch_id])) {
        // Ids, statuses and amounts are ASCII.
        bytes += lines.length;
        if (bytes > MAX_LINES_BYTES) {
          throw new Refusal('PAYLOAD_TOO_LARGE', { message: 'The file would exceed 64 MiB' });
        }
        pieces.push(lines);
      }
    },
    { isolation: 'repeatable read', statementTimeoutMs: STATEMENT_TIMEOUT_MS },
  );
  return bytes === 0 ? undefined : pieces;
}
