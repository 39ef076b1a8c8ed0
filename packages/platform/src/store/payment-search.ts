/**
 * Finding payments among millions: by any id, account, amount, day, partner, status, or person.
 *
 * enters: a filter and where the last page ended.  leaves: rows of `payments`, newest or oldest first.
 * holds:  page by page, by keyset. Every filter uses an index, and no index covers a column that changes during a payment's life:
 *         failures and partners' ids are found in the audit, which is append-only, and payments in flight have an index of their own.
 */
import type { FilterStatus, PaymentSearch, PaymentStatus } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { idAfter, idBefore } from '../payment-id.ts';
import { paymentsWithCases } from './cases.ts';
import { Conditions } from './conditions.ts';
import { PAUSED, PAYMENT_COLUMNS, type PaymentRow, type Queryable } from './payments.ts';

/** The filter of a request, with its e-mail address as digests; an absent field does not filter. */
export type PaymentFilter = {
  readonly [Name in Exclude<keyof PaymentSearch, 'amount_in_cents' | 'email' | 'limit'>]?:
    | PaymentSearch[Name]
    | undefined;
} & {
  readonly amount_in_cents?: number | undefined;
  /** Payments of the customers with one of these digests of an e-mail address. */
  readonly email_digests?: readonly Buffer[] | undefined;
  /** At most this many rows. */
  readonly limit: number;
};

/** Maximum number of payments of one person that are searched. */
const MAX_IDS = 1_000;
/** Maximum number of ids of ended payments that are read at once. */
const LARGEST_PORTION = 20_000;
/** A payment that has not ended by then is one for an operator's list (decision 23). */
export const OVERDUE_AFTER_MS = 86_400_000;
/** Funds are settled within seconds of the end; after this, a person has to look. */
const SETTLES_WITHIN = '15 minutes';

/** A partition holds the ids of a month. */
const LONGEST_MONTH_MS = 31 * 86_400_000;

const REVIEW = `p.settled_at IS NULL AND p.slot IS NULL AND p.stage = 'review'`;
const IS_PAUSED = `p.settled_at IS NULL AND p.slot = ${PAUSED}`;
const OVERDUE = `p.settled_at IS NULL AND p.status = 'processing' AND p.created_at <= now() - interval '${OVERDUE_AFTER_MS} milliseconds'`;
/** `$2`: the partner, or null for all. */
const OF_PARTNER = '($2::text IS NULL OR p.partner_id = $2)';
const OF_BATCH = 'p.platform_batch_id = ?';
const UNSETTLED = `p.settled_at IS NULL AND p.stage = 'ended'`;

/**
 * Payments; ids are UUIDv7, so their order is that of the pages that made them. `isWanted`: a long search ends early, with what it has,
 * once this is false.
 */
export async function listPayments(
  on: Queryable,
  filter: PaymentFilter,
  isWanted: () => boolean = () => true,
): Promise<PaymentRow[]> {
  const conditions = new Conditions();
  const add = conditions.add.bind(conditions);
  const { id, email_digests, status, cursor, limit } = filter;

  let found: [condition: string, value: unknown] | undefined;
  if (id !== undefined) {
    found = await conditionOfId(on, id, filter.partner_id);
    if (found === undefined) return [];
    add(...found);
  }
  if (email_digests !== undefined) {
    const ids = await paymentsOfPerson(on, email_digests);
    if (ids.length === 0) return [];
    add('p.platform_payment_id = ANY(?)', ids);
  }
  const range = rangeOf(filter);
  add('p.partner_id = ?', filter.partner_id);
  add('p.account_id = ?', filter.account_id);
  add('p.amount_in_cents = ?', filter.amount_in_cents);
  add('p.created_at >= ?', filter.from);
  add('p.created_at < ?', filter.to);
  const descending = filter.sort !== 'oldest';
  // Few payments end without success. Where nothing else leaves few, the audit's own index finds them, newest first.
  const isNarrow =
    id !== undefined ||
    email_digests !== undefined ||
    filter.account_id !== undefined ||
    filter.amount_in_cents !== undefined;
  if ((status === 'failed' || status === 'canceled') && descending && !isNarrow) {
    return listEnded(on, status, { conditions, range, cursor, limit, isWanted });
  }
  if (status !== undefined) await addStatus(on, conditions, status);
  add(`p.platform_payment_id ${descending ? '<' : '>'} ?`, cursor);
  const byTime = filter.partner_id !== undefined;
  if (byTime) {
    add(`${ID_TIME} >= left(?, 8)`, range.from);
    add(`${ID_TIME} <= left(?, 8)`, range.before);
    add(`${ID_TIME} ${descending ? '<' : '>'}= left(?, 8)`, cursor);
  }
  // The times of ids already bound the range, so these only leave out months. Exact ones would make the planner expect fewer rows than there are, and
  // sort them all.
  addRange(conditions, 'p.platform_payment_id', byTime ? rangeOf(filter, LONGEST_MONTH_MS) : range);
  const page = { limit, descending, byTime };
  return found?.[0] === OF_BATCH
    ? readPageOfBatch(on, conditions, page)
    : readPage(on, conditions, page);
}

/** What a status to be searched for means; undefined for those that need the ids of payments with a case. */
const STATUSES: Partial<Record<FilterStatus, string>> = {
  processing: `p.settled_at IS NULL AND p.status = 'processing'`,
  succeeded: `p.status = 'succeeded'`,
  failed: `p.status = 'failed'`,
  canceled: `p.status = 'canceled'`,
  review: REVIEW,
  paused: IS_PAUSED,
  overdue: OVERDUE,
  unsettled: UNSETTLED,
};
const HAS_CASE = 'p.platform_payment_id = ANY(?)';
const NEEDS_HUMAN = `((${REVIEW}) OR (${IS_PAUSED}) OR (${OVERDUE}) OR (${UNSETTLED} AND p.ended_at <= now() - interval '${SETTLES_WITHIN}')
          OR ${HAS_CASE})`;

async function addStatus(
  on: Queryable,
  conditions: Conditions,
  status: FilterStatus,
): Promise<void> {
  const condition = STATUSES[status];
  if (condition !== undefined) return conditions.add(condition);
  conditions.add(status === 'case' ? HAS_CASE : NEEDS_HUMAN, await paymentsWithCases(on));
}

/** The time in an id, in steps of 65 seconds. */
const ID_TIME = 'left(p.platform_payment_id, 8)';

interface Page {
  readonly limit: number;
  readonly descending: boolean;
  /** The page may be found by the index of a partner's payments: in the order of their ids, named as that index has it. */
  readonly byTime?: boolean;
}

/** The end of a statement that reads a page. */
function pageOf({ values }: Conditions, { descending, byTime = false }: Page): string {
  const order = descending ? 'DESC' : 'ASC';
  const time = byTime ? `${ID_TIME} ${order}, ` : '';
  return `ORDER BY ${time}p.platform_payment_id ${order} LIMIT $${values.length + 1}`;
}

function readPage(on: Queryable, conditions: Conditions, page: Page): Promise<PaymentRow[]> {
  return on.query<PaymentRow>(
    `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p ${conditions.where} ${pageOf(conditions, page)}`,
    [...conditions.values, page.limit],
  );
}

/**
 * The payments of a batch are those of a day. The planner takes them for spread over all months, in each of which a few are soon met in the
 * order of ids, and would read years for a small batch: so the batch's index finds its ids first.
 */
async function readPageOfBatch(
  on: Queryable,
  conditions: Conditions,
  page: Page,
): Promise<PaymentRow[]> {
  const ids = await on.query<Pick<PaymentRow, 'platform_payment_id'>>(
    `WITH p AS MATERIALIZED (SELECT p.platform_payment_id FROM duebridge_platform.payments p ${conditions.where})
     SELECT p.platform_payment_id FROM p ${pageOf(conditions, page)}`,
    [...conditions.values, page.limit],
  );
  if (ids.length === 0) return [];
  const theirs = new Conditions();
  theirs.add(
    'p.platform_payment_id = ANY(?::text[])',
    ids.map((row) => row.platform_payment_id),
  );
  return readPage(on, theirs, { ...page, byTime: false });
}

/**
 * Payments that ended without success, newest first: ids from the audit in portions, then the payments by id, because a sharded
 * database does not join the two. The portions grow, so that a filter which fits few of many needs few statements.
 */
async function listEnded(
  on: Queryable,
  status: PaymentStatus,
  of: {
    readonly conditions: Conditions;
    readonly range: IdRange;
    readonly cursor: string | undefined;
    readonly limit: number;
    readonly isWanted: () => boolean;
  },
): Promise<PaymentRow[]> {
  const rows: PaymentRow[] = [];
  let { cursor } = of;
  for (let portion = of.limit; ; portion = Math.min(portion * 4, LARGEST_PORTION)) {
    const ends = new Conditions();
    // Literals in the statement, so that the plan can use the partial index. The index's own condition (status IN …) follows from
    // this; written out as well, it would be counted twice, and the plan would read and sort all of them.
    ends.add(`a.event = 'payment_ended' AND a.detail ->> 'status' = '${status}'`);
    addRange(ends, 'a.platform_payment_id', of.range);
    ends.add('a.platform_payment_id < ?', cursor);
    const ended = await on.query<Pick<PaymentRow, 'platform_payment_id'>>(
      `SELECT a.platform_payment_id FROM duebridge_platform.audit a
        ${ends.where} ORDER BY a.platform_payment_id DESC LIMIT $${ends.values.length + 1}`,
      [...ends.values, portion],
    );
    const ids = ended.map((row) => row.platform_payment_id);
    if (ids.length > 0) {
      const conditions = new Conditions(of.conditions);
      conditions.add('p.platform_payment_id = ANY(?::text[])', ids);
      rows.push(
        ...(await readPage(on, conditions, { limit: of.limit - rows.length, descending: true })),
      );
    }
    if (rows.length === of.limit || ids.length < portion || !of.isWanted()) return rows;
    cursor = ids.at(-1);
  }
}

/**
 * Determines how to find a payment with this id: by the first kind of id that matches, among the payments of `partner_id` alone when it is
 * given. Otherwise what another partner has under the same id would hide a payment, and so show that it exists.
 */
async function conditionOfId(
  on: Queryable,
  id: string,
  partner_id: string | undefined,
): Promise<[condition: string, value: unknown] | undefined> {
  const [row] = await on.query<{ kind: string }>(
    sql(`
       SELECT CASE
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1 AND ${OF_PARTNER}) THEN 'payment'
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.batches p WHERE p.platform_batch_id = $1 AND ${OF_PARTNER}) THEN 'batch'
         WHEN EXISTS (SELECT 1 FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
                       WHERE f.reference <> f.platform_payment_id AND f.reference = $1 AND ${OF_PARTNER}) THEN 'funding'
         ELSE 'partner' END AS kind`),
    [id, partner_id ?? null],
  );
  const condition = BY_KIND[row?.kind ?? ''];
  if (condition !== undefined) return [condition, id];
  const rows = await on.query<{ platform_payment_id: string }>(
    sql(`
       SELECT a.platform_payment_id FROM duebridge_platform.audit a
        WHERE a.event = 'payment_ended' AND hashtext(a.detail ->> 'payment_id') = hashtext($1) AND a.detail ->> 'payment_id' = $1
          AND ($2::text IS NULL OR a.partner_id = $2)
       UNION SELECT p.platform_payment_id FROM duebridge_platform.payments p
        WHERE p.settled_at IS NULL AND p.payment_id = $1 AND ${OF_PARTNER} LIMIT ${MAX_IDS}`),
    [id, partner_id ?? null],
  );
  if (rows.length === 0) rows.push(...(await archivedById(on, id, partner_id)));
  const ids = rows.map((found) => found.platform_payment_id);
  return ids.length === 0 ? undefined : ['p.platform_payment_id = ANY(?)', ids];
}

/** What finds payments by an id, except by that of the partner. */
const BY_KIND: Readonly<Record<string, string>> = {
  payment: 'p.platform_payment_id = ?',
  batch: OF_BATCH,
  funding:
    'p.platform_payment_id IN (SELECT f.platform_payment_id FROM duebridge_platform.funds f WHERE f.reference <> f.platform_payment_id AND f.reference = ?)',
};

/** Payments of archived months by the partner's id: their audit is in files, so each of these partitions has an index of its own (archive.ts). */
async function archivedById(
  on: Queryable,
  payment_id: string,
  partner_id: string | undefined,
): Promise<{ platform_payment_id: string }[]> {
  const [archived] = await on.query<{ until_id: string }>(
    sql(`SELECT until_id FROM duebridge_platform.archives ORDER BY until DESC LIMIT 1`),
  );
  if (archived === undefined) return [];
  return on.query(
    sql(`
       SELECT p.platform_payment_id FROM duebridge_platform.payments p
        WHERE hashtext(p.payment_id) = hashtext($1) AND p.payment_id = $1 AND ${OF_PARTNER} AND p.platform_payment_id < $3 LIMIT ${MAX_IDS}`),
    [payment_id, partner_id ?? null, archived.until_id],
  );
}

/** The payments of everybody with this e-mail address, over all partners, at most MAX_IDS. */
export async function paymentsOfPerson(
  on: Queryable,
  email_digests: readonly Buffer[],
): Promise<string[]> {
  const customers = await on.query<{ customer_id: string }>(
    sql(`
       SELECT customer_id FROM duebridge_platform.customers WHERE email_digest = ANY($1::bytea[])`),
    [email_digests],
  );
  if (customers.length === 0) return [];
  const rows = await on.query<{ platform_payment_id: string }>(
    sql(`
       SELECT fp.platform_payment_id FROM duebridge_platform.flow_payments fp
        WHERE fp.customer_id = ANY($1::uuid[]) ORDER BY fp.platform_payment_id DESC LIMIT ${MAX_IDS}`),
    [customers.map((row) => row.customer_id)],
  );
  return rows.map((row) => row.platform_payment_id);
}

/** A range of ids: at or after `from`, and before `before`. */
interface IdRange {
  readonly from?: string | undefined;
  readonly before?: string | undefined;
}

/** The ids of the payments that a filter's times leave, and of so much more time on either side. */
function rangeOf({ from, to }: Pick<PaymentFilter, 'from' | 'to'>, moreMs = 0): IdRange {
  return {
    from: from === undefined ? undefined : idBefore(Date.parse(from) - moreMs),
    before: to === undefined ? undefined : idAfter(Date.parse(to) + moreMs),
  };
}

function addRange(conditions: Conditions, column: string, { from, before }: IdRange): void {
  conditions.add(`${column} >= ?`, from);
  conditions.add(`${column} < ?`, before);
}
