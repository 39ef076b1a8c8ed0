/**
 * The overview: what waits for people, and how payments went over time. It is read from the tables, so that every replica shows
 * the same numbers, also after a restart; the gauges of /metrics use the same reads.
 */
import type { Figures, FigureQuery, Overview } from '@duebridge/contract';
import { sql, type Clock, type Database, type Log, type Metrics } from '@duebridge/runtime';
import { idBefore } from '../payment-id.ts';
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

/** The length of one step in seconds, and the number of steps. */
const RANGES: Readonly<Record<NonNullable<FigureQuery['range']>, { step: number; steps: number }>> =
  {
    '1h': { step: 120, steps: 30 },
    '24h': { step: 3_600, steps: 24 },
    '7d': { step: 6 * 3_600, steps: 28 },
  };

/** The duration from the customer's confirm to posted_at, for payments with a posted_at from the partner. */
const figuresStatement = sql(
  'overview_figures',
  // In a table of millions only every nth payment is measured: sorting all of them would take longer than a person waits.
  `WITH sample AS (
     SELECT greatest(1, ceil(reltuples / 200000))::int AS every FROM pg_class WHERE oid = 'duebridge_platform.payments'::regclass
   ), read AS MATERIALIZED (
     SELECT floor(extract(epoch FROM p.created_at) / $1)::bigint AS step, p.status,
            CASE WHEN p.status = 'succeeded' AND mod(hashtext(p.platform_payment_id), sample.every) = 0 THEN greatest(0, extract(epoch FROM p.posted_at - p.created_at) * 1000) END AS ms
       FROM duebridge_platform.payments p, sample
      WHERE p.platform_payment_id >= $2 AND p.created_at >= $3 AND ($4::text IS NULL OR p.partner_id = $4)
   )
   SELECT step, count(*) FILTER (WHERE status = 'succeeded')::int AS succeeded,
          count(*) FILTER (WHERE status = 'failed')::int AS failed,
          count(*) FILTER (WHERE status = 'canceled')::int AS canceled,
          count(*) FILTER (WHERE status = 'processing')::int AS processing,
          count(ms)::int AS samples,
          percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ms)::float8[] AS quantiles
     FROM read GROUP BY step ORDER BY step`,
);

interface Step {
  readonly step: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly canceled: number;
  readonly processing: number;
  readonly samples: number;
  readonly quantiles: (number | null)[] | null;
}

/** Figures over time. */
export type ReadFigures = (query: FigureQuery, now: number) => Promise<Figures>;

/** How long a past step is cached: a payment that ends late appears in it by then. */
const STEP_CACHE_MS = 15 * 60_000;
/** Number of latest steps that are read anew each time, because payments still end in them. */
const UNCACHED_STEPS = 2;

/**
 * Creates the reader of figures: outcomes and durations in equal steps, the latest last; steps without payments contain zeros.
 * Past steps are cached, because a week of a large platform has too many rows to read while a page waits.
 */
export function openFigures(database: Database): ReadFigures {
  const remembered = new Map<
    string,
    { readonly at: number; readonly last: number; readonly rows: readonly Step[] }
  >();
  return async (query, now) => {
    const name = `${query.range ?? '24h'} ${query.partner_id ?? ''}`;
    const { step } = RANGES[query.range ?? '24h'];
    const last = Math.floor(now / 1_000 / step);
    const before = remembered.get(name);
    const isFresh = before !== undefined && now - before.at < STEP_CACHE_MS;
    const rows = await readSteps(
      database,
      query,
      now,
      isFresh ? before.last - UNCACHED_STEPS + 1 : undefined,
    );
    const kept = isFresh
      ? before.rows.filter((row) => row.step <= before.last - UNCACHED_STEPS)
      : [];
    const all = [...kept, ...rows];
    if (remembered.size > 200) remembered.clear();
    remembered.set(name, { at: isFresh ? before.at : now, last, rows: all });
    return toFigures(query, now, all);
  };
}

async function readSteps(
  database: Database,
  query: FigureQuery,
  now: number,
  fromStep: number | undefined,
): Promise<Step[]> {
  const { step, steps } = RANGES[query.range ?? '24h'];
  const last = Math.floor(now / 1_000 / step);
  const from = (fromStep ?? last - steps + 1) * step * 1_000;
  return database.query<Step>(figuresStatement, [
    step,
    idBefore(from),
    new Date(from).toISOString(),
    query.partner_id ?? null,
  ]);
}

function toFigures(query: FigureQuery, now: number, rows: readonly Step[]): Figures {
  const { step, steps } = RANGES[query.range ?? '24h'];
  const last = Math.floor(now / 1_000 / step);
  const byStep = new Map(rows.map((row) => [row.step, row]));
  const points = Array.from({ length: steps }, (_, index) => {
    const number = last - steps + 1 + index;
    const row = byStep.get(number);
    const [p50 = null, p95 = null, p99 = null] = row?.quantiles ?? [];
    return {
      at: new Date(number * step * 1_000).toISOString(),
      succeeded: row?.succeeded ?? 0,
      failed: row?.failed ?? 0,
      canceled: row?.canceled ?? 0,
      processing: row?.processing ?? 0,
      samples: row?.samples ?? 0,
      p50_ms: p50,
      p95_ms: p95,
      p99_ms: p99,
    };
  });
  return { step_seconds: step, points };
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
  figures: ReadFigures;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}): Promise<void> {
  const { database, metrics, figures, clock, log, signal } = options;
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
      // Read the week in advance, so that the first person who opens it does not wait.
      await figures({ range: '7d' }, clock.now());
    } catch (error) {
      log.warn({ error }, 'could not read the gauges of waiting payments');
    }
    await clock.sleep(GAUGES_EVERY_MS, signal);
  }
}
