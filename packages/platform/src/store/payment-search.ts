/**
 * Finding payments among millions: by any id, account, amount, day, partner, batch, status, or person.
 *
 * holds: newest first, page by page. Every filter uses an index, and no index covers a column that changes during a payment's life:
 *        failures and partners' ids are found in the audit, which is append-only, and payments in flight have an index of their
 *        own.
 */
import type { PaymentStage, PaymentStatus } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { firstIdAt } from '../payment-id.ts';
import { PAYMENT_COLUMNS, type PaymentRow, type Queryable } from './payments.ts';

/** The filter; an absent field does not filter. */
export interface PaymentFilter {
  readonly status?: PaymentStatus | undefined;
  readonly stage?: PaymentStage | undefined;
  readonly partner_id?: string | undefined;
  readonly platform_batch_id?: string | undefined;
  readonly account_id?: string | undefined;
  readonly amount_in_cents?: number | undefined;
  /** Confirmed at or after, and before: ISO 8601. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** An exact id of any kind. */
  readonly id?: string | undefined;
  /** Payments of the customers with this digest of an e-mail address. */
  readonly email_digest?: Buffer | undefined;
  /** Only those confirmed at least this many milliseconds ago that have not ended. */
  readonly openForMs?: number | undefined;
  /** Only those that ended and whose funds are not settled. */
  readonly unsettled?: boolean | undefined;
  /** The last platform_payment_id of the previous page. */
  readonly cursor?: string | undefined;
  /** At most this many rows. */
  readonly limit: number;
}

/** Maximum difference between the clocks of the platform's processes, which create the ids, and the database's clock. */
const CLOCK_MARGIN_MS = 10 * 60_000;
/** Maximum number of payments of one person, or of one session, that are searched. */
const MAX_IDS = 1_000;

/** Maximum number of ids of ended payments that are read from the audit at once. */
const LARGEST_PORTION = 20_000;

/** Payments, newest first: ids are UUIDv7, so their order is that of creation. */
export async function listPayments(on: Queryable, filter: PaymentFilter): Promise<PaymentRow[]> {
  const conditions = new Conditions();
  const add = conditions.add.bind(conditions);

  if (filter.id !== undefined) {
    const found = await conditionOfId(on, filter.id);
    if (found === undefined) return [];
    add(...found);
  }
  if (filter.email_digest !== undefined) {
    const ids = await paymentsOfPerson(on, filter.email_digest);
    if (ids.length === 0) return [];
    add('p.platform_payment_id = ANY(?)', ids);
  }
  // Few payments end without success. Without a narrower filter, the audit's own index finds them, newest first.
  const byAudit =
    (filter.status === 'failed' || filter.status === 'canceled') &&
    filter.id === undefined &&
    filter.email_digest === undefined &&
    filter.account_id === undefined &&
    filter.amount_in_cents === undefined;
  if (!byAudit && filter.status !== undefined) {
    add('p.status = ?', filter.status);
    if (filter.status === 'processing') add('p.settled_at IS NULL');
  }
  const ids: { after?: string; before?: string } = {};
  if (filter.stage !== undefined) {
    add('p.stage = ?', filter.stage);
    // Unsettled payments are in the small index of payments in flight; those in review belong to no worker.
    if (filter.stage !== 'ended') add('p.settled_at IS NULL');
    if (filter.stage === 'review') add('p.slot IS NULL');
  }
  if (filter.partner_id !== undefined) add('p.partner_id = ?', filter.partner_id);
  if (filter.platform_batch_id !== undefined)
    add('p.platform_batch_id = ?', filter.platform_batch_id);
  if (filter.account_id !== undefined) add('p.account_id = ?', filter.account_id);
  if (filter.amount_in_cents !== undefined) add('p.amount_in_cents = ?', filter.amount_in_cents);
  if (filter.from !== undefined) {
    add('p.created_at >= ?', filter.from);
    ids.after = firstIdAt(Date.parse(filter.from) - CLOCK_MARGIN_MS);
  }
  if (filter.to !== undefined) {
    add('p.created_at < ?', filter.to);
    ids.before = firstIdAt(Date.parse(filter.to) + CLOCK_MARGIN_MS);
  }
  if (filter.openForMs !== undefined) {
    add(
      `p.settled_at IS NULL AND p.status = 'processing' AND p.created_at <= now() - ? * interval '1 millisecond'`,
      filter.openForMs,
    );
  }
  if (filter.unsettled === true) add(`p.settled_at IS NULL AND p.stage = 'ended'`);
  if (filter.cursor !== undefined && (ids.before === undefined || filter.cursor < ids.before))
    ids.before = filter.cursor;
  if (byAudit) return listByEnd(on, filter.status, { conditions, ids, limit: filter.limit });
  if (ids.after !== undefined) add('p.platform_payment_id >= ?', ids.after);
  if (ids.before !== undefined) add('p.platform_payment_id < ?', ids.before);
  return readPage(on, conditions, filter.limit);
}

/** The conditions of a statement that is put together, and its values. */
class Conditions {
  readonly values: unknown[];
  readonly #texts: string[];

  constructor(from?: Conditions) {
    this.values = [...(from?.values ?? [])];
    this.#texts = [...(from === undefined ? [] : from.#texts)];
  }

  /** Each `?` stands for the next value. */
  add(condition: string, ...given: unknown[]): void {
    let text = condition;
    for (const value of given) {
      this.values.push(value);
      text = text.replace('?', `$${this.values.length}`);
    }
    this.#texts.push(text);
  }

  get where(): string {
    return this.#texts.length === 0 ? '' : `WHERE ${this.#texts.join(' AND ')}`;
  }
}

function readPage(on: Queryable, conditions: Conditions, limit: number): Promise<PaymentRow[]> {
  return on.query<PaymentRow>(
    `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p
      ${conditions.where} ORDER BY p.platform_payment_id DESC LIMIT $${conditions.values.length + 1}`,
    [...conditions.values, limit],
  );
}

/**
 * Payments that ended in this way, newest first: their ids are read from the audit in portions, and the payments by id. A sharded
 * database does not join the two. The portions grow, so that a filter which fits few of many failures needs few statements.
 */
async function listByEnd(
  on: Queryable,
  status: 'failed' | 'canceled',
  of: {
    readonly conditions: Conditions;
    readonly ids: { readonly after?: string; readonly before?: string };
    readonly limit: number;
  },
): Promise<PaymentRow[]> {
  const page: PaymentRow[] = [];
  let { before } = of.ids;
  for (let portion = of.limit; ;) {
    const ends = new Conditions();
    // Literals in the statement, so that the plan can use the partial index. The index's own condition (status IN …) follows from
    // this; written out as well, it would be counted twice, and the plan would read and sort all of them.
    ends.add(`a.event = 'payment_ended' AND a.detail ->> 'status' = '${status}'`);
    if (of.ids.after !== undefined) ends.add('a.platform_payment_id >= ?', of.ids.after);
    if (before !== undefined) ends.add('a.platform_payment_id < ?', before);
    const ended = await on.query<Pick<PaymentRow, 'platform_payment_id'>>(
      `SELECT a.platform_payment_id FROM duebridge_platform.audit a
        ${ends.where} ORDER BY a.platform_payment_id DESC LIMIT $${ends.values.length + 1}`,
      [...ends.values, portion],
    );
    if (ended.length > 0) {
      const conditions = new Conditions(of.conditions);
      const ids = ended.map((row) => row.platform_payment_id);
      conditions.add('p.platform_payment_id = ANY(?::text[])', ids);
      page.push(...(await readPage(on, conditions, of.limit - page.length)));
    }
    if (page.length === of.limit || ended.length < portion) return page;
    before = ended.at(-1)?.platform_payment_id;
    portion = Math.min(portion * 4, LARGEST_PORTION);
  }
}

/** Determines how to find a payment with this id: by the first kind of id that matches. */
async function conditionOfId(
  on: Queryable,
  id: string,
): Promise<[condition: string, value: unknown] | undefined> {
  const [row] = await on.query<{ kind: string }>(
    sql(
      'payment_id_kind',
      `SELECT CASE
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1) THEN 'payment'
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.payments p WHERE p.session_id = $1) THEN 'session'
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_batch_id = $1) THEN 'batch'
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.funds f WHERE f.reference IS NOT NULL AND f.reference = $1) THEN 'funding'
         ELSE 'partner' END AS kind`,
    ),
    [id],
  );
  switch (row?.kind) {
    case 'payment':
      return ['p.platform_payment_id = ?', id];
    case 'session':
      return ['p.session_id = ?', id];
    case 'batch':
      return ['p.platform_batch_id = ?', id];
    case 'funding':
      return [
        'p.platform_payment_id IN (SELECT f.platform_payment_id FROM duebridge_platform.funds f WHERE f.reference IS NOT NULL AND f.reference = ?)',
        id,
      ];
    default: {
      const rows = await on.query<{ platform_payment_id: string }>(
        sql(
          'payment_by_partner_id',
          `SELECT a.platform_payment_id FROM duebridge_platform.audit a
            WHERE a.event = 'payment_ended' AND a.detail ->> 'payment_id' IS NOT NULL AND a.detail ->> 'payment_id' = $1
           UNION SELECT p.platform_payment_id FROM duebridge_platform.payments p
            WHERE p.settled_at IS NULL AND p.payment_id = $1 LIMIT ${MAX_IDS}`,
        ),
        [id],
      );
      const ids = rows.map((found) => found.platform_payment_id);
      return ids.length === 0 ? undefined : ['p.platform_payment_id = ANY(?)', ids];
    }
  }
}

/** The payments of everybody with this e-mail address, over all partners, at most MAX_IDS. */
export async function paymentsOfPerson(on: Queryable, email_digest: Buffer): Promise<string[]> {
  const customers = await on.query<{ customer_id: string }>(
    sql(
      'customers_of_person',
      'SELECT customer_id FROM duebridge_platform.customers WHERE email_digest = $1',
    ),
    [email_digest],
  );
  if (customers.length === 0) return [];
  const rows = await on.query<{ platform_payment_id: string }>(
    sql(
      'payments_of_customers',
      `SELECT fp.platform_payment_id FROM duebridge_platform.flow_payments fp
        WHERE fp.customer_id = ANY($1::uuid[]) ORDER BY fp.platform_payment_id DESC LIMIT ${MAX_IDS}`,
    ),
    [customers.map((row) => row.customer_id)],
  );
  return rows.map((row) => row.platform_payment_id);
}
