/**
 * Figures: how payments went over time, in equal steps.
 *
 * enters: ends of payments, read from the audit once.  leaves: counts by hour, partner, status and class of times, and what the console
 *         shows.
 * holds:  one replica at a time adds a stretch of time to the counts, and no end is added twice: a stretch ends LAG_SECONDS ago, when
 *         every statement that wrote into it has ended. A week of a large platform is read from some thousand rows.
 */
import type { Figures, FigureQuery } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';

/** The length of one step in seconds, and the number of steps. */
const RANGES = {
  '24h': { step: 3_600, steps: 24 },
  '7d': { step: 6 * 3_600, steps: 28 },
} as const satisfies Readonly<Record<NonNullable<FigureQuery['range']>, object>>;

/** Ends that are younger may still be uncommitted: no statement runs for so long. */
const LAG_SECONDS = 60;
/** Time whose ends are added at once: 60,000 at 1,000 a second. */
const STRETCH_SECONDS = 60;
/**
 * Bounds of the times that are counted, in milliseconds: each a sixth more than the one before, from 20 ms to a month, so that a
 * quantile is right to about a twelfth.
 */
const BOUNDS: readonly number[] = Array.from({ length: 122 }, (_, n) =>
  Math.round(20 * (7 / 6) ** n),
);

/** Ends of payments: of one partner, in one hour or other step, with one status, in one class of times. */
interface Ends {
  readonly partner_id: string;
  /** Seconds since 1970 at which the step begins. */
  readonly at: number;
  readonly status: 'succeeded' | 'failed' | 'canceled' | 'processing';
  /** Index into BOUNDS of the first that is not below; null where no time was measured. */
  readonly class: number | null;
  readonly count: number;
}

/** A step's sums; `times`: of those that succeeded, by class. */
const noSums = () => ({
  succeeded: 0,
  failed: 0,
  canceled: 0,
  processing: 0,
  times: [] as number[],
});

/** A quantile of counted times, in milliseconds: the middle of its class; null without times. Pure. */
export function quantileOf(times: readonly (number | undefined)[], share: number): number | null {
  let left = share * times.reduce<number>((sum, count) => sum + (count ?? 0), 0);
  if (left === 0) return null;
  for (const [index, count] of times.entries()) {
    left -= count ?? 0;
    if (left <= 0 && count !== undefined) {
      const [below, above] = [BOUNDS[index - 1] ?? 0, BOUNDS[index] ?? BOUNDS.at(-1) ?? 0];
      return Math.round((below + above) / 2);
    }
  }
  return null;
}

const HOUR = 3_600;
/** The partner_id of all partners together. */
const ALL = '';

/** The columns of Ends of payments `p`, in steps of $1 seconds. */
const ENDS = `p.partner_id, (floor(extract(epoch FROM p.created_at) / $1) * $1)::float8 AS at, p.status,
          CASE WHEN p.status = 'succeeded'
               THEN least(width_bucket(greatest(0, extract(epoch FROM p.posted_at - p.created_at) * 1000)::float8, $2::float8[]), ${BOUNDS.length - 1}) END AS class,
          count(*)::int AS count`;
/** A sharded database does not join the audit with the payments. */
const endedIds = sql(`
   SELECT a.platform_payment_id FROM duebridge_platform.audit a
    WHERE a.at > $1::timestamptz AND a.at <= $2::timestamptz AND a.event = 'payment_ended'`);
const endsOfIds = sql(`
   SELECT ${ENDS} FROM duebridge_platform.payments p WHERE p.platform_payment_id = ANY($3::text[]) AND p.status <> 'processing' GROUP BY 1, 2, 3, 4`);
const openSince = sql(`
   SELECT (floor(extract(epoch FROM p.created_at) / $1) * $1)::float8 AS at, 'processing' AS status, NULL AS class, count(*)::int AS count
     FROM duebridge_platform.payments p
    WHERE p.settled_at IS NULL AND p.status = 'processing' AND p.created_at >= $2 AND ($3::text IS NULL OR p.partner_id = $3) GROUP BY 1`);
const beginStatement = sql(`
   INSERT INTO duebridge_platform.ended_counts_progress (read_to) VALUES (clock_timestamp() - interval '${LAG_SECONDS} seconds')
   ON CONFLICT (one) DO NOTHING`);
const stretchStatement = sql(`
   SELECT read_to::text AS from,
          least(clock_timestamp() - interval '${LAG_SECONDS} seconds', read_to + interval '${STRETCH_SECONDS} seconds')::text AS to,
          read_to + interval '${LAG_SECONDS + STRETCH_SECONDS} seconds' < clock_timestamp() AS more
     FROM duebridge_platform.ended_counts_progress WHERE read_to < clock_timestamp() - interval '${LAG_SECONDS} seconds' FOR UPDATE`);
const movedStatement = sql(`
   UPDATE duebridge_platform.ended_counts_progress SET read_to = $1::timestamptz`);
/** Each end counts for its partner and for all. */
const countStatement = sql(`
   INSERT INTO duebridge_platform.ended_counts AS c (hour, partner_id, status, class, count)
   SELECT to_timestamp(e.at), of.partner_id, e.status, coalesce(e.class, -1), sum(e.count)
     FROM jsonb_to_recordset($1::jsonb) AS e (at float8, partner_id text, status text, class int, count bigint),
          LATERAL (VALUES (e.partner_id), ('${ALL}')) AS of (partner_id) GROUP BY 1, 2, 3, 4
   ON CONFLICT (hour, partner_id, status, class) DO UPDATE SET count = c.count + excluded.count`);
const countedStatement = sql(`
   SELECT (floor(extract(epoch FROM c.hour) / $1) * $1)::float8 AS at, c.status, nullif(c.class, -1) AS class, sum(c.count)::int AS count
     FROM duebridge_platform.ended_counts c WHERE c.hour >= $2 AND c.partner_id = $3 GROUP BY 1, 2, 3`);
/** Adds the next stretch of time to the counts. True when there is more; false also while another replica does it. */
export async function sumUp(database: Database): Promise<boolean> {
  await database.query(beginStatement);
  return database.transaction(async (tx) => {
    type Stretch = { readonly from: string; readonly to: string; readonly more: boolean };
    const [stretch] = await tx.query<Stretch>(stretchStatement);
    if (stretch === undefined) return false;
    const { from, to, more } = stretch;
    const ended = await tx.query<{ platform_payment_id: string }>(endedIds, [from, to]);
    if (ended.length > 0) {
      const ids = ended.map((one) => one.platform_payment_id);
      const ends = await tx.query<Ends>(endsOfIds, [HOUR, BOUNDS, ids]);
      await tx.query(countStatement, [JSON.stringify(ends)]);
    }
    await tx.query(movedStatement, [to]);
    return more;
  });
}

/** Outcomes and durations in equal steps, the latest last; steps without payments contain zeros. `now` in milliseconds since 1970. */
export async function readFigures(
  database: Database,
  query: FigureQuery,
  now: number,
): Promise<Figures> {
  const { step, steps } = RANGES[query.range ?? '24h'];
  const last = Math.floor(now / 1_000 / step) * step;
  const from = last - (steps - 1) * step;
  const since = new Date(from * 1_000).toISOString();
  const { partner_id = null } = query;
  const ends = [
    ...(await database.query<Ends>(countedStatement, [step, since, partner_id ?? ALL])),
    ...(await database.query<Ends>(openSince, [step, since, partner_id])),
  ];
  const byStep = new Map<number, ReturnType<typeof noSums>>();
  for (const { at, status, class: of, count } of ends) {
    if (at < from) continue;
    const sums = byStep.get(at) ?? noSums();
    byStep.set(at, sums);
    sums[status] += count;
    if (of !== null) sums.times[of] = (sums.times[of] ?? 0) + count;
  }
  const points = Array.from({ length: steps }, (_, index) => {
    const at = from + index * step;
    const { times, ...counts } = byStep.get(at) ?? noSums();
    return {
      at: new Date(at * 1_000).toISOString(),
      ...counts,
      samples: times.reduce((sum, count) => sum + (count ?? 0), 0),
      p50_ms: quantileOf(times, 0.5),
      p95_ms: quantileOf(times, 0.95),
      p99_ms: quantileOf(times, 0.99),
    };
  });
  return { step_seconds: step, points };
}
