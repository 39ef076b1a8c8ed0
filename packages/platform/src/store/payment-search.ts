/**
 * Finding payments among millions: by any id, account, amount, day, partner, batch, status, or person.
 *
 * holds: page by page, newest first or in another order. Every filter uses an index, and no index covers a column that changes
 *        during a payment's life: failures and partners' ids are found in the audit, which is append-only, and payments in flight
 *        have an index of their own. A search that no index narrows reads ids in portions and ends after a fraction of a second
 *        (decision 215).
 */
import type { PaymentSort, PaymentStage, PaymentStatus } from '@duebridge/contract';
import { sql } from '@duebridge/runtime';
import { idAfter, idBefore } from '../payment-id.ts';
import { markedPayments } from './follow-ups.ts';
import {
  addCursor,
  addRange,
  Conditions,
  orderBy,
  ORDERS,
  type FoundPayment,
  type IdRange,
  type Order,
} from './payment-order.ts';
import { PAUSED, PAYMENT_COLUMNS, type PaymentRow, type Queryable } from './payments.ts';
import type { UsualTimes } from './usual-times.ts';

/** The filter; an absent field does not filter. */
export interface PaymentFilter {
  readonly status?: PaymentStatus | undefined;
  readonly stage?: PaymentStage | undefined;
  readonly partner_id?: string | undefined;
  readonly platform_batch_id?: string | undefined;
  readonly account_id?: string | undefined;
  readonly biller_id?: string | undefined;
  readonly amount_in_cents?: number | undefined;
  /** At least, and at most. */
  readonly min_amount_in_cents?: number | undefined;
  readonly max_amount_in_cents?: number | undefined;
  /** Confirmed at or after, and before: ISO 8601. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** An exact id of any kind. */
  readonly id?: string | undefined;
  /** Payments of the customers with one of these digests of an e-mail address. */
  readonly email_digests?: readonly Buffer[] | undefined;
  /** Only those confirmed at least this many milliseconds ago that have not ended. */
  readonly openForMs?: number | undefined;
  /** Only those that have been processing longer than their partner usually takes. */
  readonly stuck?: UsualTimes | undefined;
  /** Only those that ended and whose funds are not settled. */
  readonly unsettled?: boolean | undefined;
  /** Only those that an operator paused. */
  readonly paused?: boolean | undefined;
  /** Only those that an operator marked for the partner to look at. */
  readonly follow_up?: boolean | undefined;
  /** Only those that failed for a reason with these words; with `stage: 'review'`, those that wait for one. Numbers do not count. */
  readonly failure_reason?: string | undefined;
  /** Only those with at least this many recorded calls to the partner: PUTs and polls. */
  readonly min_attempts?: number | undefined;
  /** Calls that are counted in memory and not in the tables yet, by platform_payment_id; for the filter and the order by attempts. */
  readonly unwritten?: ReadonlyMap<string, number> | undefined;
  /** Default: `newest`. `attempts` only together with a filter that leaves few payments; see `isNarrow`. */
  readonly sort?: PaymentSort | undefined;
  /** `cursorOf` the last row of the previous page, in the same order. */
  readonly cursor?: string | undefined;
  /** At most this many rows. */
  readonly limit: number;
}

/** Whether a filter leaves few payments of many, so that all of them can be sorted by what no index has. Pure. */
export function isNarrow(filter: Omit<PaymentFilter, 'limit'>): boolean {
  return (
    filter.id !== undefined ||
    filter.email_digests !== undefined ||
    filter.account_id !== undefined ||
    filter.openForMs !== undefined ||
    filter.stuck !== undefined ||
    filter.unsettled === true ||
    filter.paused === true ||
    filter.follow_up === true ||
    filter.status === 'processing' ||
    (filter.stage !== undefined && filter.stage !== 'ended')
  );
}

/** Maximum number of payments of one person, or of one session, that are searched. */
const MAX_IDS = 1_000;

/** Maximum number of ids, of ended payments or of attempts, that are read at once. */
const LARGEST_PORTION = 20_000;
/** The same in an order of values, in which payments lie all over the table; and where the calls of each are counted as well. */
const LARGEST_SORTED_PORTION = 5_000;
const LARGEST_COUNTED_PORTION = 1_000;
/** A search that fits few of many stops after this, so that a page never waits for all of them. */
const SEARCH_MS = 150;

/**
 * A reason as people group it: numbers in it are replaced, so that ids and amounts in a partner's text do not make each payment a
 * reason of its own. `expression`: SQL text.
 */
export function groupedReason(expression: string): string {
  return `left(regexp_replace(${expression}, '[0-9]+', '#', 'g'), 120)`;
}

/** What one step of a search found. */
export interface FoundPayments {
  /** At most `limit`. */
  readonly rows: FoundPayment[];
  /** The search stopped before the last payment: it continues with this as `cursor`. */
  readonly searched_to?: string | undefined;
}

/** Payments; ids are UUIDv7, so their order is that of the pages that made them. Searches until the limit, or the last payment. */
export async function listPayments(on: Queryable, filter: PaymentFilter): Promise<PaymentRow[]> {
  const found: PaymentRow[] = [];
  let { cursor } = filter;
  do {
    const limit = filter.limit - found.length;
    const step = await searchPayments(on, { ...filter, cursor, limit });
    found.push(...step.rows);
    cursor = found.length < filter.limit ? step.searched_to : undefined;
  } while (cursor !== undefined);
  return found;
}

/** The same, but stops after a fraction of a second. */
export async function searchPayments(on: Queryable, filter: PaymentFilter): Promise<FoundPayments> {
  const conditions = new Conditions();
  const add = conditions.add.bind(conditions);

  if (filter.id !== undefined) {
    const found = await conditionOfId(on, filter.id);
    if (found === undefined) return { rows: [] };
    add(...found);
  }
  if (filter.email_digests !== undefined) {
    const ids = await paymentsOfPerson(on, filter.email_digests);
    if (ids.length === 0) return { rows: [] };
    add('p.platform_payment_id = ANY(?)', ids);
  }
  let { status } = filter;
  if (filter.failure_reason !== undefined) {
    // Only these two have a reason.
    if (filter.stage !== 'review') status ??= 'failed';
    if (status === 'succeeded' || status === 'canceled') return { rows: [] };
    add(
      `strpos(lower(${groupedReason('coalesce(p.failure_reason, p.review_reason)')}), lower(${groupedReason('?::text')})) > 0`,
      filter.failure_reason,
    );
  }
  const { sort = 'newest' } = filter;
  const order = ORDERS[sort];
  const narrow = isNarrow({ ...filter, status });
  const byAttempts = filter.min_attempts !== undefined && !narrow && order.value === undefined;
  // Few payments end without success. Without a narrower filter, the audit's own index finds them, newest first.
  const byAudit =
    (status === 'failed' || status === 'canceled') &&
    sort === 'newest' &&
    !narrow &&
    !byAttempts &&
    filter.amount_in_cents === undefined;
  if (!byAudit && status !== undefined) {
    add('p.status = ?', status);
    if (status === 'processing') add('p.settled_at IS NULL');
  }
  const calls = callsOf(filter.unwritten);
  if (filter.min_attempts !== undefined && !byAttempts) {
    add(`${calls.text} >= ?`, ...calls.values, filter.min_attempts);
  }
  const ids: { from?: string; before?: string } = {};
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
  if (filter.biller_id !== undefined) add('p.biller_id = ?', filter.biller_id);
  const amounts = new Conditions();
  for (const [operator, cents] of [
    ['=', filter.amount_in_cents],
    ['>=', filter.min_amount_in_cents],
    ['<=', filter.max_amount_in_cents],
  ] as const) {
    if (cents === undefined) continue;
    add(`p.amount_in_cents ${operator} ?`, cents);
    amounts.add(`p.amount_in_cents ${operator} ?`, cents);
  }
  if (filter.from !== undefined) {
    add('p.created_at >= ?', filter.from);
    ids.from = idBefore(Date.parse(filter.from));
  }
  if (filter.to !== undefined) {
    add('p.created_at < ?', filter.to);
    ids.before = idAfter(Date.parse(filter.to));
  }
  if (filter.openForMs !== undefined) {
    add(
      `p.settled_at IS NULL AND p.status = 'processing' AND p.created_at <= now() - ? * interval '1 millisecond'`,
      filter.openForMs,
    );
  }
  if (filter.stuck !== undefined) {
    const { byPartner, otherwiseMs } = filter.stuck;
    add(
      `p.settled_at IS NULL AND p.status = 'processing'
       AND p.created_at <= now() - coalesce((?::jsonb ->> p.partner_id)::float8, ?::float8) * interval '1 millisecond'`,
      JSON.stringify(Object.fromEntries(byPartner)),
      otherwiseMs,
    );
  }
  if (filter.unsettled === true) add(`p.settled_at IS NULL AND p.stage = 'ended'`);
  if (filter.paused === true) add(`p.settled_at IS NULL AND p.slot = ${PAUSED}`);
  if (filter.follow_up === true) add('p.platform_payment_id = ANY(?)', await markedPayments(on));
  const { cursor, limit } = filter;
  const of = { conditions, order, cursor, limit, largest: LARGEST_PORTION };
  if (order.value !== undefined) {
    of.largest =
      filter.min_attempts === undefined ? LARGEST_SORTED_PORTION : LARGEST_COUNTED_PORTION;
  }
  if (byAttempts) return listByIds(on, attemptedIds(filter.min_attempts ?? 0, ids, order), of);
  if (byAudit && status !== undefined) return listByIds(on, endedIds(status, ids, order), of);
  // What no index narrows, among payments that another index already puts into order.
  const isUnindexed =
    filter.biller_id !== undefined ||
    (order.value !== undefined &&
      (filter.failure_reason !== undefined || filter.min_attempts !== undefined));
  if (isUnindexed && !narrow && filter.platform_batch_id === undefined) {
    if (order.value === undefined && filter.partner_id !== undefined) {
      amounts.add('p.partner_id = ?', filter.partner_id);
    }
    return listByIds(on, allIds(amounts, ids, order), of);
  }
  addRange(conditions, 'p.platform_payment_id', ids);
  if (cursor !== undefined) addCursor(conditions, order, cursor);
  return { rows: await readPage(on, conditions, order, limit, calls) };
}

/** An expression: the recorded calls of payment `p`. Each `?` stands for one of `values`. */
interface CallsExpression {
  readonly text: string;
  readonly values: readonly unknown[];
}

function callsOf(unwritten: ReadonlyMap<string, number> | undefined): CallsExpression {
  const written = `coalesce((SELECT ${CALLS} FROM duebridge_platform.attempts t WHERE t.platform_payment_id = p.platform_payment_id), 0)`;
  if (unwritten === undefined || unwritten.size === 0) return { text: written, values: [] };
  return {
    text: `${written} + coalesce((?::jsonb ->> p.platform_payment_id)::int, 0)`,
    values: [JSON.stringify(Object.fromEntries(unwritten))],
  };
}

/** The calls in the rows `t` of attempts; a row holds several entries, and an entry may stand for many equal polls. */
const CALLS = `sum((SELECT sum((e ->> 'count')::int) FROM jsonb_array_elements(t.entries) AS e))`;

function readPage(
  on: Queryable,
  conditions: Conditions,
  order: Order,
  limit: number,
  calls?: CallsExpression,
): Promise<FoundPayment[]> {
  if (order !== ORDERS.attempts || calls === undefined) {
    return on.query<FoundPayment>(
      `SELECT ${PAYMENT_COLUMNS} FROM duebridge_platform.payments p
        ${conditions.where} ORDER BY ${orderBy(order)} LIMIT $${conditions.values.length + 1}`,
      [...conditions.values, limit],
    );
  }
  // The cursor compares the counted calls, so they are counted first; the filter left few payments (isNarrow).
  const counted = new Conditions(conditions);
  const text = counted.placed(calls.text, ...calls.values);
  return on.query<FoundPayment>(
    `SELECT ${PAYMENT_COLUMNS}, p.calls::int AS calls
       FROM (SELECT p.*, ${text} AS calls FROM duebridge_platform.payments p ${counted.whereBut('p.calls')}) AS p
      ${counted.whereOnly('p.calls')} ORDER BY ${orderBy(order)} LIMIT $${counted.values.length + 1}`,
    [...counted.values, limit],
  );
}

/** Some ids, in the order of the search, after a cursor; and where to continue: undefined at the end. */
type ReadIds = (
  on: Queryable,
  cursor: string | undefined,
  portion: number,
) => Promise<{ readonly ids: readonly string[]; readonly to: string | undefined }>;

/**
 * Payments whose ids another statement gives, in the order of the search: the ids are read in portions, and the payments by id. A
 * sharded database does not join the two. The portions grow, so that a filter which fits few of many needs few statements.
 */
async function listByIds(
  on: Queryable,
  read: ReadIds,
  of: {
    readonly conditions: Conditions;
    readonly order: Order;
    readonly cursor: string | undefined;
    readonly limit: number;
    /** Of a portion. */
    readonly largest: number;
  },
): Promise<FoundPayments> {
  const rows: FoundPayment[] = [];
  const startedAt = performance.now();
  // The sum keeps the planner from walking the index of the order until it has met enough of these ids, far down in it.
  const { value, descending } = of.order;
  const order = value === undefined ? of.order : { value: `${value} + 0`, descending };
  let { cursor } = of;
  for (let portion = of.limit; ;) {
    const { ids, to } = await read(on, cursor, portion);
    if (ids.length > 0) {
      const conditions = new Conditions(of.conditions);
      conditions.add('p.platform_payment_id = ANY(?::text[])', ids);
      rows.push(...(await readPage(on, conditions, order, of.limit - rows.length)));
    }
    if (rows.length === of.limit || to === undefined) return { rows };
    if (performance.now() - startedAt > SEARCH_MS) return { rows, searched_to: to };
    cursor = to;
    portion = Math.min(portion * 4, of.largest);
  }
}

/** All payments under conditions that the index of the order covers. */
function allIds(indexed: Conditions, range: IdRange, order: Order): ReadIds {
  const isByAmount = order.value !== undefined;
  return async (on, cursor, portion) => {
    const conditions = new Conditions(indexed);
    if (!isByAmount) addRange(conditions, 'p.platform_payment_id', range);
    if (cursor !== undefined) addCursor(conditions, order, cursor);
    const read = await on.query<Pick<PaymentRow, 'platform_payment_id' | 'amount_in_cents'>>(
      `SELECT p.platform_payment_id, ${isByAmount ? 'p.amount_in_cents' : '0'} AS amount_in_cents FROM duebridge_platform.payments p
        ${conditions.where} ORDER BY ${orderBy(order)} LIMIT $${conditions.values.length + 1}`,
      [...conditions.values, portion],
    );
    const last = read.length < portion ? undefined : read.at(-1);
    const ids = read
      .map((row) => row.platform_payment_id)
      .filter(
        (id) => !(id < (range.from ?? '')) && (range.before === undefined || id < range.before),
      );
    if (last === undefined) return { ids, to: undefined };
    const { platform_payment_id: id, amount_in_cents } = last;
    return { ids, to: isByAmount ? `${amount_in_cents}~${id}` : id };
  };
}

/** Payments that ended in this way. */
function endedIds(status: PaymentStatus, range: IdRange, { descending }: Order): ReadIds {
  return async (on, cursor, portion) => {
    const ends = new Conditions();
    // Literals in the statement, so that the plan can use the partial index. The index's own condition (status IN …) follows from
    // this; written out as well, it would be counted twice, and the plan would read and sort all of them.
    ends.add(`a.event = 'payment_ended' AND a.detail ->> 'status' = '${status}'`);
    addRange(ends, 'a.platform_payment_id', range);
    if (cursor !== undefined) ends.add(`a.platform_payment_id ${descending ? '<' : '>'} ?`, cursor);
    const ended = await on.query<Pick<PaymentRow, 'platform_payment_id'>>(
      `SELECT a.platform_payment_id FROM duebridge_platform.audit a
        ${ends.where} ORDER BY a.platform_payment_id ${descending ? 'DESC' : 'ASC'} LIMIT $${ends.values.length + 1}`,
      [...ends.values, portion],
    );
    const ids = ended.map((row) => row.platform_payment_id);
    return { ids, to: ended.length < portion ? undefined : ids.at(-1) };
  };
}

/** Least rows of attempts read at once: counting needs a few for each payment. */
const LEAST_ATTEMPTS = 2_000;

/** Payments with at least so many recorded calls. */
function attemptedIds(least: number, range: IdRange, { descending }: Order): ReadIds {
  const way = descending ? 'DESC' : 'ASC';
  return async (on, cursor, wanted) => {
    const portion = Math.max(wanted, LEAST_ATTEMPTS);
    const tried = new Conditions();
    addRange(tried, 'platform_payment_id', range);
    if (cursor !== undefined) tried.add(`platform_payment_id ${descending ? '<' : '>'} ?`, cursor);
    const at = tried.values.length;
    const read = await on.query<{ id: string; isMany: boolean; rows: number }>(
      `SELECT t.platform_payment_id AS id, ${CALLS} >= $${at + 2} AS "isMany", count(*)::int AS rows
         FROM (SELECT platform_payment_id, entries FROM duebridge_platform.attempts
                ${tried.where} ORDER BY platform_payment_id ${way} LIMIT $${at + 1}) AS t
        GROUP BY 1 ORDER BY 1 ${way}`,
      [...tried.values, portion, least],
    );
    const isEnd = read.reduce((sum, { rows }) => sum + rows, 0) < portion;
    // The portion may end in the middle of a payment's rows: it is read again as the first of the next one.
    const whole = isEnd || read.length === 1 ? read : read.slice(0, -1);
    return {
      ids: whole.filter(({ isMany }) => isMany).map(({ id }) => id),
      to: isEnd ? undefined : whole.at(-1)?.id,
    };
  };
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
export async function paymentsOfPerson(
  on: Queryable,
  email_digests: readonly Buffer[],
): Promise<string[]> {
  const customers = await on.query<{ customer_id: string }>(
    sql(
      'customers_of_person',
      'SELECT customer_id FROM duebridge_platform.customers WHERE email_digest = ANY($1::bytea[])',
    ),
    [email_digests],
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
