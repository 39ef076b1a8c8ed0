/**
 * The overview: what waits for people. It is read from the tables, so that every replica shows the same numbers, also after a restart;
 * the gauges of /metrics use the same reads.
 */
import type { Overview } from '@duebridge/contract';
import { sql, type Clock, type Database, type Log, type Metrics } from '@duebridge/runtime';
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
const nonePaused: Paused = { paused: 0, oldest_paused_at: null };
const followUpsStatement = sql(
  'overview_follow_ups',
  `SELECT count(*)::int AS count FROM duebridge_platform.follow_ups`,
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

const noFlight: Flight = {
  in_flight: 0,
  oldest_in_flight_at: null,
  overdue: 0,
  unsettled: 0,
  oldest_unsettled_at: null,
};

/** What is waiting now. */
export async function overview(database: Database): Promise<Overview> {
  const [
    reviews,
    [flight = noFlight],
    [paused = nonePaused],
    [followUps],
    [differences],
    partners_held,
    clients_ending,
    operators_ending,
  ] = await Promise.all([
    database.query<Reviews>(reviewsStatement),
    database.query<Flight>(flightStatement, [OVERDUE_AFTER_MS]),
    database.query<Paused>(pausedStatement),
    database.query<{ count: number }>(followUpsStatement),
    database.query<{ count: number }>(openDifferencesStatement),
    database.query<{ partner_id: string; reason: string }>(heldStatement),
    database.query<Ending>(endingStatement),
    database.query<OperatorEnding>(operatorsEndingStatement),
  ]);
  const { oldest_unsettled_at: _age, ...counts } = flight;
  return {
    ...counts,
    ...paused,
    follow_ups: followUps?.count ?? 0,
    reviews,
    open_differences: differences?.count ?? 0,
    partners_held,
    clients_ending,
    operators_ending,
  };
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
  const reviews = metrics.gauge(
    'duebridge_reviews',
    'Payments waiting for an operator, by reason',
    ['reason'],
  );
  const reviewAge = metrics.gauge(
    'duebridge_review_oldest_seconds',
    'Time since when the oldest payment in review has been waiting, by reason',
    ['reason'],
  );
  let unsettled = 0;
  let unsettledAge = 0;
  let paused = 0;
  let pausedAge = 0;
  let differences = 0;
  metrics.gauge(
    'duebridge_unsettled',
    'Payments that ended and whose funds are neither captured nor released',
    [],
    () => unsettled,
  );
  metrics.gauge(
    'duebridge_unsettled_oldest_seconds',
    'Time since when the oldest ended payment has been waiting for its funds',
    [],
    () => unsettledAge,
  );
  metrics.gauge(
    'duebridge_paused',
    'Payments that an operator paused: nothing is sent for them',
    [],
    () => paused,
  );
  metrics.gauge(
    'duebridge_paused_oldest_seconds',
    'Time since when the longest paused payment has been paused',
    [],
    () => pausedAge,
  );
  metrics.gauge(
    'duebridge_open_differences',
    'Unresolved differences of reconciliations',
    [],
    () => differences,
  );
  const ending = metrics.gauge(
    'duebridge_client_keys_ending',
    `Clients whose last API key expires within ${WARN_DAYS} days, or expired in the last ${WARN_DAYS}, by partner`,
    ['partner_id'],
  );
  let operatorsEnding = 0;
  metrics.gauge(
    'duebridge_operator_keys_ending',
    `Operators whose last key expires within ${WARN_DAYS} days, or expired in the last ${WARN_DAYS}`,
    [],
    () => operatorsEnding,
  );
  const known = new Set<string>();
  const warned = new Set<string>();
  while (!signal.aborted) {
    try {
      const [rows, [flight = noFlight], [held = nonePaused], [open], ends, operatorEnds] =
        await Promise.all([
          database.query<Reviews>(reviewsStatement),
          database.query<Flight>(flightStatement, [OVERDUE_AFTER_MS]),
          database.query<Paused>(pausedStatement),
          database.query<{ count: number }>(openDifferencesStatement),
          database.query<{ partner_id: string; clients: number }>(endingCountStatement),
          database.query<OperatorEnding>(operatorsEndingStatement),
        ]);
      const age = (at: string | null): number =>
        at === null ? 0 : Math.max(0, (clock.now() - Date.parse(at)) / 1_000);
      // A reason without reviews is set to zero; a missing label would read as "no data".
      for (const reason of known) {
        reviews.set({ reason }, 0);
        reviewAge.set({ reason }, 0);
      }
      for (const { reason, count, oldest_at } of rows) {
        known.add(reason);
        reviews.set({ reason }, count);
        reviewAge.set({ reason }, age(oldest_at));
      }
      for (const partner_id of warned) ending.set({ partner_id }, 0);
      for (const { partner_id, clients } of ends) {
        warned.add(partner_id);
        ending.set({ partner_id }, clients);
      }
      operatorsEnding = operatorEnds.length;
      unsettled = flight.unsettled;
      unsettledAge = age(flight.oldest_unsettled_at);
      paused = held.paused;
      pausedAge = age(held.oldest_paused_at);
      differences = open?.count ?? 0;
    } catch (error) {
      log.warn({ error }, 'could not read the gauges of waiting payments');
    }
    await clock.sleep(GAUGES_EVERY_MS, signal);
  }
}
