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

/**
 * Returns the reader of statements, a few concurrently. It gives the statement of a batch as of one moment after the call, and refuses with
 * BATCH_NOT_FOUND when the batch has no payment, with SERVICE_UNAVAILABLE when too many wait.
 */
export function openStatements(database: Database): (batch: string) => Promise<BatchStatement> {
  const queue = groupCommit<string, BatchStatement>({
    flush: (list) => Promise.all(list.map((batch) => batchStatement(database, batch))),
    maxBatch: 1,
    maxQueued: MAX_WAITING,
    concurrency: MAX_AT_ONCE,
  });
  return (batch) => queue.add(batch);
}

/** The statement of a batch. Refuses with BATCH_NOT_FOUND. The ids are in byte order (collation "C"), as the hash requires. */
export function batchStatement(
  database: Database,
  platform_batch_id: string,
): Promise<BatchStatement> {
  return asOfOneMoment(database, async (tx) => {
    const totals = await tx.query<Total>(totalsText, [platform_batch_id]);
    if (totals.length === 0) throw new Refusal('BATCH_NOT_FOUND');
    const hash = createHash('sha256');
    for await (const lines of pagesOf(tx, platform_batch_id)) hash.update(lines);
    return {
      platform_batch_id,
      count: totals.reduce((sum, total) => sum + total.count, 0),
      totals: PAYMENT_STATUSES.flatMap((status) => {
        const total = totals.find((one) => one.status === status);
        return total ? [{ ...total, amount_in_cents: wholeCents(total.amount_in_cents) }] : [];
      }),
      sha256: hash.digest('hex'),
    };
  });
}

/** Maximum size of a file of lines in bytes, the same as a platform accepts; about a million payments. */
const MAX_LINES_BYTES = 64 * 1024 * 1024;

/**
 * The lines of a batch as CSV with a header, in chunks, all as of one moment: the file with which a platform reconciles.
 * Refuses with BATCH_NOT_FOUND, and with PAYLOAD_TOO_LARGE what a platform would not accept.
 */
export function batchLines(
  database: Database,
  platform_batch_id: string,
): Promise<readonly string[]> {
  return asOfOneMoment(database, async (tx) => {
    const pieces = ['platform_payment_id,status,amount_in_cents\n'];
    let bytes = 0;
    for await (const lines of pagesOf(tx, platform_batch_id)) {
      // Ids, statuses and amounts are ASCII.
      bytes += lines.length;
      if (bytes > MAX_LINES_BYTES) {
        throw new Refusal('PAYLOAD_TOO_LARGE', { message: 'The file would exceed 64 MiB' });
      }
      pieces.push(lines);
    }
    if (bytes === 0) throw new Refusal('BATCH_NOT_FOUND');
    return pieces;
  });
}

function asOfOneMoment<T>(database: Database, read: (tx: Transaction) => Promise<T>): Promise<T> {
  return database.transaction(read, {
    isolation: 'repeatable read',
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
  });
}

/** The lines of a batch, a page at a time, in the order of the ids. */
async function* pagesOf(tx: Transaction, platform_batch_id: string): AsyncGenerator<string> {
  await tx.query(openCursor, [platform_batch_id]);
  for (;;) {
    const [page] = await tx.query<{ lines: string }>('FETCH 1 FROM batch_pages');
    if (!page) return;
    yield page.lines;
  }
}
