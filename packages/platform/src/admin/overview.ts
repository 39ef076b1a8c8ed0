/**
 * The overview: what waits for people. It is read from the tables, so that every replica shows the same numbers, also after a restart;
 * the gauges of /metrics use the same reads.
 */
import { CASE_REASONS, type Overview } from '@duebridge/contract';
import {
  sql,
  type Clock,
  type Database,
  type Log,
  type Metrics,
  type Statement,
} from '@duebridge/runtime';
import { OVERDUE_AFTER_MS } from '../store/payment-search.ts';
import { PAUSED } from '../store/payments.ts';

/**
 * Open reviews by reason. The partner's own code is cut off, because it may be any text and a metric's label needs a bounded set.
 */
interface Reviews {
  readonly reason: string;
  readonly count: number;
  readonly oldest_at: string;
}

const reviewsStatement = sql(
  'overview_reviews',
  `WITH held AS MATERIALIZED (
     SELECT p.platform_payment_id, p.review_reason FROM duebridge_platform.payments p
      WHERE p.settled_at IS NULL AND p.slot IS NULL AND p.stage = 'review'
   ), since AS MATERIALIZED (
     SELECT a.platform_payment_id, max(a.at) AS at FROM duebridge_platform.audit a
      WHERE a.platform_payment_id = ANY (ARRAY(SELECT platform_payment_id FROM held)) AND a.event = 'payment_review'
      GROUP BY 1
   )
   SELECT regexp_replace(h.review_reason, '^(rejected_[0-9]+).*', '\\1') AS reason, count(*)::int AS count, min(s.at) AS oldest_at
     FROM held h LEFT JOIN since s USING (platform_payment_id) GROUP BY 1 ORDER BY 2 DESC, 1`,
);
const pausedStatement = sql(
  'overview_paused',
  `WITH held AS MATERIALIZED (
     SELECT p.platform_payment_id FROM duebridge_platform.payments p WHERE p.settled_at IS NULL AND p.slot = ${PAUSED}
   ), since AS MATERIALIZED (
     SELECT a.platform_payment_id, max(a.at) AS at FROM duebridge_platform.audit a
      WHERE a.platform_payment_id = ANY (ARRAY(SELECT platform_payment_id FROM held)) AND a.event = 'payment_paused'
      GROUP BY 1
   )
   SELECT count(*)::int AS paused, min(s.at) AS oldest_paused_at FROM held h LEFT JOIN since s USING (platform_payment_id)`,
);
type Paused = Pick<Overview, 'paused' | 'oldest_paused_at'>;
const casesStatement = sql(
  'overview_cases',
  `SELECT c.reason_code, count(*)::int AS count, sum(c.amount_in_cents)::bigint AS amount_in_cents, min(c.deadline) AS deadline
     FROM duebridge_platform.cases c WHERE c.state <> 'ended' GROUP BY 1 ORDER BY 4 NULLS LAST, 1`,
);
const flightStatement = sql(
  'overview_flight',
  `SELECT count(*) FILTER (WHERE p.status = 'processing')::int AS in_flight,
          min(p.created_at) FILTER (WHERE p.status = 'processing') AS oldest_in_flight_at,
          count(*) FILTER (WHERE p.status = 'processing' AND p.created_at < now() - $1 * interval '1 millisecond')::int AS overdue,
          count(*) FILTER (WHERE p.stage = 'ended')::int AS unsettled,
          min(p.ended_at) FILTER (WHERE p.stage = 'ended') AS oldest_unsettled_at
     FROM duebridge_platform.payments p WHERE p.settled_at IS NULL`,
);
const openDifferencesStatement = sql(
  'overview_differences',
  `SELECT count(*)::int AS count FROM duebridge_platform.differences WHERE resolved_at IS NULL`,
);
const heldStatement = sql(
  'overview_held',
  `SELECT partner_id, pause_reason AS reason FROM duebridge_platform.partners WHERE pause_reason IS NOT NULL ORDER BY 1`,
);

/** How long before the expiry operators are warned: time to hand over the next key. As long after it, a warning stands. */
const WARN_DAYS = 14;
/** Most clients listed. */
const MAX_ENDING = 50;
/** The clients whose last key expires soon or has expired. A client is not one while another of its keys lives longer or never expires. */
const ENDING = `
   SELECT c.partner_id, c.client_id, max(k.expires_at) AS ends_at
     FROM duebridge_platform.client_keys k JOIN duebridge_platform.clients c USING (client_id)
    WHERE k.revoked_at IS NULL GROUP BY c.partner_id, c.client_id
   HAVING count(*) = count(k.expires_at) AND max(k.expires_at) < now() + interval '${WARN_DAYS} days'`;
/** What still can be prevented comes first, the soonest first; then what has ended, the latest first. */
const endingStatement = sql(
  'overview_keys_ending',
  `SELECT partner_id, client_id, ends_at FROM (${ENDING}) AS ending
    ORDER BY ends_at < now(), abs(extract(epoch FROM ends_at - now())), client_id LIMIT ${MAX_ENDING}`,
);
/** Not limited, so that no warning is lost among many; what ended long ago warns no more, and hides no later end of the same partner. */
const endingCountStatement = sql(
  'overview_keys_ending_count',
  `SELECT partner_id, count(*)::int AS clients FROM (${ENDING}) AS ending
    WHERE ends_at > now() - interval '${WARN_DAYS} days' GROUP BY partner_id`,
);
type Ending = Overview['clients_ending'][number];
/** Operators whose last key expires soon or expired lately; one who signs in through the provider needs none. */
const operatorsEndingStatement = sql(
  'overview_operators_ending',
  `SELECT operator_id, ends_at FROM (
     SELECT o.operator_id, max(k.expires_at) AS ends_at
       FROM duebridge_platform.operator_keys k JOIN duebridge_platform.operators o USING (operator_id)
      WHERE k.revoked_at IS NULL AND o.disabled_at IS NULL AND o.oidc_subject IS NULL GROUP BY o.operator_id
     HAVING count(*) = count(k.expires_at) AND max(k.expires_at) < now() + interval '${WARN_DAYS} days'
        AND max(k.expires_at) > now() - interval '${WARN_DAYS} days') AS ending
    ORDER BY ends_at < now(), abs(extract(epoch FROM ends_at - now())), operator_id`,
);
type OperatorEnding = Overview['operators_ending'][number];

interface Flight {
  readonly in_flight: number;
  readonly oldest_in_flight_at: string | null;
  readonly overdue: number;
  readonly unsettled: number;
  readonly oldest_unsettled_at: string | null;
}

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

/** What the overview and the gauges have in common. */
async function waiting(database: Database) {
  const [reviews, cases, flight, paused, differences, operators_ending] = await Promise.all([
    database.query<Reviews>(reviewsStatement),
    database.query<Overview['cases'][number]>(casesStatement),
    only<Flight>(database, flightStatement, [OVERDUE_AFTER_MS]),
    only<Paused>(database, pausedStatement),
    only<{ count: number }>(database, openDifferencesStatement),
    database.query<OperatorEnding>(operatorsEndingStatement),
  ]);
  return { reviews, cases, flight, paused, open_differences: differences.count, operators_ending };
}

/** What is waiting now. */
export async function overview(database: Database): Promise<Overview> {
  const [{ flight, paused, ...rest }, partners_held, clients_ending] = await Promise.all([
    waiting(database),
    database.query<{ partner_id: string; reason: string }>(heldStatement),
    database.query<Ending>(endingStatement),
  ]);
  const { oldest_unsettled_at: _age, ...counts } = flight;
  return { ...rest, ...counts, ...paused, partners_held, clients_ending };
}

/** Interval of reading the gauges: scrapes by several Prometheus servers must not add load. */
const GAUGES_EVERY_MS = 10_000;

/**
 * Maintains the gauges of what waits for people, until `signal` aborts. Every replica reports the same numbers: take the maximum
 * over replicas, not the sum.
 */
export async function keepGauges(options: {
  database: Database;
  metrics: Metrics;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}): Promise<void> {
  const { database, metrics, clock, log, signal } = options;
  const byReason = {
    reviews: metrics.gauge('duebridge_reviews', 'Payments waiting for an operator, by reason', [
      'reason',
    ]),
    age: metrics.gauge(
      'duebridge_review_oldest_seconds',
      'Time since when the oldest payment in review has been waiting, by reason',
      ['reason'],
    ),
    cases: metrics.gauge('duebridge_cases', 'Cases that have not ended, by reason', ['reason']),
  };
  const ending = metrics.gauge(
    'duebridge_client_keys_ending',
    `Clients whose last API key expires within ${WARN_DAYS} days, or expired in the last ${WARN_DAYS}, by partner`,
    ['partner_id'],
  );
  let last: Awaited<ReturnType<typeof waiting>> | undefined;
  const age = (at: string | null | undefined): number =>
    at === null || at === undefined ? 0 : Math.max(0, (clock.now() - Date.parse(at)) / 1_000);
  const gauges: readonly [name: string, help: string, read: () => number | undefined][] = [
    [
      'payments_overdue',
      'Payments that have not ended within 24 hours; an operator should look',
      () => last?.flight.overdue,
    ],
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
  const known = new Set<string>();
  const warned = new Set<string>();
  while (!signal.aborted) {
    try {
      const [now, ends] = await Promise.all([
        waiting(database),
        database.query<{ partner_id: string; clients: number }>(endingCountStatement),
      ]);
      last = now;
      // A reason without reviews is set to zero; a missing label would read as "no data".
      for (const { reason } of now.reviews) known.add(reason);
      for (const reason of known) {
        const found = now.reviews.find((one) => one.reason === reason);
        byReason.reviews.set({ reason }, found?.count ?? 0);
        byReason.age.set({ reason }, age(found?.oldest_at));
      }
      for (const reason of CASE_REASONS) {
        const found = now.cases.find((one) => one.reason_code === reason);
        byReason.cases.set({ reason }, found?.count ?? 0);
      }
      for (const { partner_id } of ends) warned.add(partner_id);
      for (const partner_id of warned) {
        const found = ends.find((one) => one.partner_id === partner_id);
        ending.set({ partner_id }, found?.clients ?? 0);
      }
    } catch (error) {
      log.warn({ error }, 'could not read the gauges of waiting payments');
    }
    await clock.sleep(GAUGES_EVERY_MS, signal);
  }
}
