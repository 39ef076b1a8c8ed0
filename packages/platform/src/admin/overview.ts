/**
 * The overview: what waits for people. It is read from the tables, so that every replica shows the same numbers, also after a restart;
 * the gauges of /metrics use the same reads.
 */
import { CASE_REASONS, type Overview } from '@duebridge/contract';
import { sql, type Clock, type Database, type Metrics, type Statement } from '@duebridge/runtime';
import { TIME_OF_PAYMENT } from '../store/audit.ts';
import { OVERDUE_AFTER_MS } from '../store/payment-search.ts';
import { PAUSED } from '../store/payments.ts';

/** SQL: `held`, the payments of which `condition` holds, and `since`, when each of them came to that by its latest line of this event. */
const heldSince = (condition: string, event: string): string => `
   WITH held AS MATERIALIZED (
     SELECT p.platform_payment_id, p.review_reason FROM duebridge_platform.payments p WHERE p.settled_at IS NULL AND ${condition}
   ), since AS MATERIALIZED (
     SELECT a.platform_payment_id, max(a.at) AS at FROM duebridge_platform.audit a
      WHERE ${TIME_OF_PAYMENT} = ANY (ARRAY(SELECT left(platform_payment_id, 10) FROM held)) AND a.event = '${event}'
      GROUP BY 1
   )`;
/**
 * Open reviews by reason. The partner's own code is cut off, because it may be any text and a metric's label needs a bounded set.
 */
const reviewsStatement =
  sql(`${heldSince(`p.slot IS NULL AND p.stage = 'review'`, 'payment_review')}
   SELECT regexp_replace(h.review_reason, '^(rejected_[0-9]+).*', '\\1') AS reason, count(*)::int AS count, min(s.at) AS oldest_at
     FROM held h LEFT JOIN since s USING (platform_payment_id) GROUP BY 1 ORDER BY 2 DESC, 1`);
const pausedStatement = sql(`${heldSince(`p.slot = ${PAUSED}`, 'payment_paused')}
   SELECT count(*)::int AS paused, min(s.at) AS oldest_paused_at FROM held h LEFT JOIN since s USING (platform_payment_id)`);
type Paused = Pick<Overview, 'paused' | 'oldest_paused_at'>;
const casesStatement = sql(`
   SELECT c.reason_code, count(*)::int AS count, sum(c.amount_in_cents)::bigint AS amount_in_cents, min(c.deadline) AS deadline
     FROM duebridge_platform.cases c WHERE c.state <> 'ended' GROUP BY 1 ORDER BY 4 NULLS LAST, 1`);
const flightStatement = sql(`
   SELECT count(*) FILTER (WHERE p.status = 'processing')::int AS in_flight,
          min(p.created_at) FILTER (WHERE p.status = 'processing') AS oldest_in_flight_at,
          count(*) FILTER (WHERE p.status = 'processing' AND p.created_at < now() - $1 * interval '1 millisecond')::int AS overdue,
          count(*) FILTER (WHERE p.stage = 'ended')::int AS unsettled,
          min(p.ended_at) FILTER (WHERE p.stage = 'ended') AS oldest_unsettled_at
     FROM duebridge_platform.payments p WHERE p.settled_at IS NULL`);
const openDifferencesStatement = sql(`
   SELECT count(*)::int AS count FROM duebridge_platform.differences WHERE resolved_at IS NULL`);
const heldStatement = sql(`
   SELECT partner_id, pause_reason AS reason FROM duebridge_platform.partners WHERE pause_reason IS NOT NULL ORDER BY 1`);

/** How long before the expiry operators are warned: time to hand over the next key. As long after it, a warning stands. */
const WARN_DAYS = 14;
/** Owners whose last key expires soon or has expired lately. An owner is not one while another key lives longer or never expires. */
const ENDING = `HAVING count(*) = count(k.expires_at)
       AND max(k.expires_at) BETWEEN now() - interval '${WARN_DAYS} days' AND now() + interval '${WARN_DAYS} days'
     ORDER BY max(k.expires_at) < now(), abs(extract(epoch FROM max(k.expires_at) - now()))`;
/** What still can be prevented comes first, the soonest first; then what has ended, the latest first. */
const clientsEndingStatement = sql(`
   SELECT c.partner_id, c.client_id, max(k.expires_at) AS ends_at
     FROM duebridge_platform.client_keys k JOIN duebridge_platform.clients c USING (client_id)
    WHERE k.revoked_at IS NULL GROUP BY c.partner_id, c.client_id ${ENDING}, c.client_id`);
/** One who signs in through the provider needs no key. */
const operatorsEndingStatement = sql(`
   SELECT o.operator_id, max(k.expires_at) AS ends_at
     FROM duebridge_platform.operator_keys k JOIN duebridge_platform.operators o USING (operator_id)
    WHERE k.revoked_at IS NULL AND o.disabled_at IS NULL AND o.oidc_subject IS NULL GROUP BY o.operator_id ${ENDING}, o.operator_id`);

type Flight = Pick<Overview, 'in_flight' | 'oldest_in_flight_at' | 'overdue' | 'unsettled'> & {
  readonly oldest_unsettled_at: string | null;
};

/** The one row of a statement that only counts. */
async function only<Row>(
  database: Database,
  statement: Statement,
  values: readonly unknown[] = [],
): Promise<Row> {
  const [row] = await database.query<Row>(statement, values);
  if (row === undefined) throw new Error('a count gave no row');
  return row;
}

/** What waits, by where it is read. */
async function waiting(database: Database) {
  const [reviews, cases, flight, paused, differences, clients_ending, operators_ending] =
    await Promise.all([
      database.query<Overview['reviews'][number]>(reviewsStatement),
      database.query<Overview['cases'][number]>(casesStatement),
      only<Flight>(database, flightStatement, [OVERDUE_AFTER_MS]),
      only<Paused>(database, pausedStatement),
      only<{ count: number }>(database, openDifferencesStatement),
      database.query<Overview['clients_ending'][number]>(clientsEndingStatement),
      database.query<Overview['operators_ending'][number]>(operatorsEndingStatement),
    ]);
  const open_differences = differences.count;
  return { reviews, cases, flight, paused, open_differences, clients_ending, operators_ending };
}

/** What is waiting now. */
export async function overview(database: Database): Promise<Overview> {
  const [{ flight, paused, ...rest }, partners_held] = await Promise.all([
    waiting(database),
    database.query<{ partner_id: string; reason: string }>(heldStatement),
  ]);
  const { oldest_unsettled_at: _age, ...counts } = flight;
  return { ...rest, ...counts, ...paused, partners_held };
}

/**
 * Opens the gauges of what waits for people; the function that it gives reads them. Every replica reports the same numbers: take the
 * maximum over replicas, not the sum.
 */
export function openGauges(
  database: Database,
  metrics: Metrics,
  clock: Clock,
): () => Promise<void> {
  /** A gauge by a label. A value that is gone is set to zero; a missing label would read as "no data". */
  const byLabel = (name: string, help: string, label: string) => {
    const gauge = metrics.gauge(name, help, [label]);
    const known = new Set<string>();
    return (values: ReadonlyMap<string, number>): void => {
      for (const value of values.keys()) known.add(value);
      for (const value of known) gauge.set({ [label]: value }, values.get(value) ?? 0);
    };
  };
  const reviews = byLabel(
    'duebridge_reviews',
    'Payments waiting for an operator, by reason',
    'reason',
  );
  const reviewAges = byLabel(
    'duebridge_review_oldest_seconds',
    'Time since when the oldest payment in review has been waiting, by reason',
    'reason',
  );
  const cases = byLabel('duebridge_cases', 'Cases that have not ended, by reason', 'reason');
  const ending = byLabel(
    'duebridge_client_keys_ending',
    `Clients whose last API key expires within ${WARN_DAYS} days, or expired in the last ${WARN_DAYS}, by partner`,
    'partner_id',
  );
  let last: Awaited<ReturnType<typeof waiting>> | undefined;
  const age = (at: string | null | undefined): number =>
    at === null || at === undefined ? 0 : Math.max(0, (clock.now() - Date.parse(at)) / 1_000);
  const gauges: readonly [name: string, help: string, read: () => number | undefined][] = [
    [
      'unsettled',
      'Payments that ended and whose funds are neither captured nor released',
      () => last?.flight.unsettled,
    ],
    [
      'unsettled_oldest_seconds',
      'Time since when the oldest ended payment has been waiting for its funds',
      () => age(last?.flight.oldest_unsettled_at),
    ],
    [
      'paused',
      'Payments that an operator paused: nothing is sent for them',
      () => last?.paused.paused,
    ],
    [
      'paused_oldest_seconds',
      'Time since when the longest paused payment has been paused',
      () => age(last?.paused.oldest_paused_at),
    ],
    [
      'payments_overdue',
      'Payments that have not ended for longer than a day',
      () => last?.flight.overdue,
    ],
    ['open_differences', 'Unresolved differences of reconciliations', () => last?.open_differences],
    [
      'operator_keys_ending',
      `Operators whose last key expires within ${WARN_DAYS} days, or expired in the last ${WARN_DAYS}`,
      () => last?.operators_ending.length,
    ],
  ];
  for (const [name, help, read] of gauges) {
    metrics.gauge(`duebridge_${name}`, help, [], () => read() ?? 0);
  }
  return async () => {
    last = await waiting(database);
    const none = CASE_REASONS.map((reason) => [reason, 0] as const);
    reviews(new Map(last.reviews.map((one) => [one.reason, one.count])));
    reviewAges(new Map(last.reviews.map((one) => [one.reason, age(one.oldest_at)])));
    cases(new Map([...none, ...last.cases.map((one) => [one.reason_code, one.count] as const)]));
    const clients = Map.groupBy(last.clients_ending, (one) => one.partner_id);
    ending(new Map([...clients].map(([partner_id, { length }]) => [partner_id, length])));
  };
}
