/** Why payments fail, the most frequent reasons first, with the count of the previous period. */
import type { FailureReasons, FigureQuery } from '@duebridge/contract';
import { sql, type Database } from '@duebridge/runtime';
import { idBefore } from '../payment-id.ts';
import { groupedReason } from '../store/payment-search.ts';

const RANGE_MS = { '1h': 3_600_000, '24h': 86_400_000, '7d': 7 * 86_400_000 } as const;
/** Maximum number of reasons shown: partners send free text. */
const MAX_REASONS = 50;

const reasonsStatement = sql(
  'failure_reasons',
  `SELECT ${groupedReason('p.failure_reason')} AS reason,
          count(*) FILTER (WHERE p.created_at >= $2)::int AS count, count(*) FILTER (WHERE p.created_at < $2)::int AS before
     FROM duebridge_platform.payments p
    WHERE p.platform_payment_id = ANY(ARRAY(
            SELECT a.platform_payment_id FROM duebridge_platform.audit a
             WHERE a.event = 'payment_ended' AND a.detail ->> 'status' = 'failed' AND a.platform_payment_id >= $1))
      AND p.created_at >= $3 AND ($4::text IS NULL OR p.partner_id = $4)
    GROUP BY 1 ORDER BY 2 DESC, 3 DESC, 1 LIMIT ${MAX_REASONS}`,
);

/** The reasons of payments that were confirmed in the range and failed; `now` in milliseconds since 1970. */
export async function failureReasons(
  database: Database,
  { range = '24h', partner_id }: FigureQuery,
  now: number,
): Promise<FailureReasons> {
  const from = now - RANGE_MS[range];
  const before = from - RANGE_MS[range];
  const reasons = await database.query<FailureReasons['reasons'][number]>(reasonsStatement, [
    idBefore(before),
    new Date(from).toISOString(),
    new Date(before).toISOString(),
    partner_id ?? null,
  ]);
  return { reasons };
}
