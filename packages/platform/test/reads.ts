/** What an operator reads of large tables, and what PostgreSQL counts of it: for the test of large tables and the benchmark of years. */
import assert from 'node:assert/strict';
import { FILTER_STATUSES, platformAdminRoutes } from '@duebridge/contract';
import type { Database } from '@duebridge/runtime';

/** A table with fewer rows is no large one: PostgreSQL rightly reads it as a whole. */
const LARGE = 5_000;

/** Scans from the beginning to the end of each large table, partitions apart, since the counts were set back. */
export async function scansOf(database: Database): Promise<Map<string, number>> {
  const rows = await database.query<{ name: string; scans: string }>(
    `SELECT s.relname AS name, s.seq_scan AS scans FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
      WHERE schemaname = 'duebridge_platform' AND c.reltuples >= ${LARGE}`,
  );
  return new Map(rows.map(({ name, scans }) => [name, Number(scans)]));
}

/** The fields by which an operator finds one payment again. */
interface Found {
  readonly platform_payment_id: string;
  readonly payment_id: string | null;
  readonly partner_id: string;
  readonly account_id: string;
  readonly platform_batch_id: string;
  readonly amount_in_cents: number;
  readonly created_at: string;
}

/** Asks the admin API: a GET, or a POST where there is a body. */
export type Ask = (
  path: string,
  body?: object,
) => Promise<{ readonly status: number; readonly body: unknown }>;

/**
 * Reads every page of the console, and searches payments in every way in which it can. Returns how long each read took. Throws for an answer
 * other than 200 or 404.
 */
export async function readEverything(
  ask: Ask,
): Promise<{ readonly path: string; readonly ms: number }[]> {
  const took: { path: string; ms: number }[] = [];
  const read = async (path: string, search?: object): Promise<unknown> => {
    const from = performance.now();
    const { status, body } = await ask(path, search);
    const shown = search === undefined ? path : `${path} ${JSON.stringify(search)}`;
    assert.ok(status === 200 || status === 404, `${shown}: ${status}`);
    took.push({ path: shown, ms: performance.now() - from });
    return body;
  };
  const { payments } = (await read('/admin/v1/payments')) as { payments: Found[] };
  // The last of a page: the newest may not have ended yet.
  const payment = payments.at(-1);
  assert.ok(payment);
  for (const { method, path } of Object.values(platformAdminRoutes)) {
    const filled = path
      .replace('{partner_id}', payment.partner_id)
      .replace('{platform_payment_id}', payment.platform_payment_id)
      .replace('{platform_batch_id}', payment.platform_batch_id);
    // An export reads what it is asked for.
    if (method !== 'GET' || filled.includes('{') || path.includes('export')) continue;
    await read(filled);
  }
  for (const search of [
    { id: payment.platform_payment_id },
    { id: payment.platform_batch_id },
    { id: payment.payment_id ?? '' },
    { id: 'no-such-payment' },
    { account_id: payment.account_id },
    { amount_in_cents: String(payment.amount_in_cents) },
    { email: 'ada@example.com' },
    { from: `${payment.created_at.slice(0, 10)}T00:00:00.000Z`, to: payment.created_at },
    { sort: 'oldest' },
    ...FILTER_STATUSES.map((status) => ({ status })),
  ]) {
    await read('/admin/v1/payments/search', search);
  }
  return took;
}
