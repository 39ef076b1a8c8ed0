/**
 * How long payments of each partner usually take, from the customer's confirm to the end: what the view "Stuck" compares with
 * (decision 215).
 *
 * holds: computed from the table, so that every replica shows the same; read again after a minute at the earliest.
 */
import { sql, type Clock, type Database } from '@duebridge/runtime';

/** The times of all partners. */
export interface UsualTimes {
  /** 95 of 100 payments of this partner ended within this many milliseconds, by partner_id. */
  readonly byPartner: ReadonlyMap<string, number>;
  /** For a partner of which too few payments have ended. */
  readonly otherwiseMs: number;
}

/** Latest payments of a partner that are looked at. */
const LATEST = 2_000;
/** With fewer, a percentile says little. */
const LEAST_SAMPLES = 20;
/** A partner that answers within milliseconds: nobody has to look at a payment that is younger than this. */
const LEAST_MS = 10_000;
const OTHERWISE_MS = 15 * 60_000;
const CACHE_MS = 60_000;
/** Partners read at once. */
const AT_ONCE = 4;

const partnersStatement = sql(
  'usual_partners',
  'SELECT partner_id FROM duebridge_platform.partners ORDER BY 1',
);
// One statement for each partner: a sharded database joins no table with the latest rows of another.
const timesStatement = sql(
  'usual_times',
  `SELECT count(ms)::int AS samples, percentile_disc(0.95) WITHIN GROUP (ORDER BY ms)::float8 AS p95_ms
     FROM (SELECT CASE WHEN p.ended_by = 'partner' THEN greatest(0, extract(epoch FROM p.ended_at - p.created_at) * 1000) END AS ms
             FROM duebridge_platform.payments p WHERE p.partner_id = $1
            ORDER BY p.platform_payment_id DESC LIMIT ${LATEST}) AS latest`,
);

/** Creates the reader. A partner whose latest payments have all not ended, because it is down, keeps the time it had before. */
export function openUsualTimes(database: Database, clock: Clock): () => Promise<UsualTimes> {
  const byPartner = new Map<string, number>();
  let readAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;
  const read = async (): Promise<void> => {
    const partners = await database.query<{ partner_id: string }>(partnersStatement);
    const next = partners[Symbol.iterator]();
    const reader = async (): Promise<void> => {
      for (const { partner_id } of next) {
        const [row] = await database.query<{ samples: number; p95_ms: number | null }>(
          timesStatement,
          [partner_id],
        );
        if (row === undefined || row.p95_ms === null || row.samples < LEAST_SAMPLES) continue;
        byPartner.set(partner_id, Math.max(LEAST_MS, row.p95_ms));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, reader));
    readAt = clock.monotonic();
  };
  return async () => {
    if (clock.monotonic() - readAt > CACHE_MS) {
      reading ??= read().finally(() => {
        reading = undefined;
      });
      await reading;
    }
    return { byPartner, otherwiseMs: OTHERWISE_MS };
  };
}
