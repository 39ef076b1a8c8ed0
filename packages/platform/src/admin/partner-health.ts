/**
 * How a partner's endpoint does, in plain words: from the calls for its latest payments. Read when somebody asks, and bounded, so that it
 * costs nothing otherwise.
 */
import type { PartnerHealth } from '@duebridge/contract';
import type { Services } from '../services.ts';
import type { RecordedCall } from '../store/attempts.ts';
import { listPayments } from '../store/payment-search.ts';
import type { PaymentRow } from '../store/payments.ts';

/** Payments that are looked at: enough for a 95th percentile, few enough to read at once. */
const LATEST_PAYMENTS = 500;

/** Reads the calls for the latest payments of a partner. */
export async function partnerHealth(
  { database, attempts }: Pick<Services, 'database' | 'attempts'>,
  partner_id: string,
): Promise<PartnerHealth> {
  const payments = await listPayments(database, { partner_id, limit: LATEST_PAYMENTS });
  return healthOf(payments, await attempts.callsOf(payments.map((one) => one.platform_payment_id)));
}

/** What went wrong with a call, in words; undefined when nothing did. Pure. */
function troubleOf(call: RecordedCall): string | undefined {
  const { http_status: status, result, body } = call;
  if (status === null) return `No answer: ${result.replaceAll('_', ' ')}.`;
  if (status === 200 && result.startsWith('not_json')) return 'A 200 that is not JSON.';
  if (status === 200) {
    return body !== undefined ? 'A 200 with a record that breaks the interface.' : undefined;
  }
  // A poll that comes before the PUT has arrived, and the look after a refused PUT, are answered so by right.
  if (status === 404 && call.kind === 'get') return undefined;
  return `An answer ${status}${result.startsWith('http_') ? '' : ` ${result}`}.`;
}

/** The health from the latest payments, newest first, and the calls for each. Pure. */
export function healthOf(
  payments: readonly PaymentRow[],
  callsOf: ReadonlyMap<string, readonly RecordedCall[]>,
): PartnerHealth {
  const troubles = new Map<string, PartnerHealth['troubles'][number]>();
  const took: number[] = [];
  let calls = 0;
  let failed = 0;
  for (const { platform_payment_id } of payments) {
    for (const call of callsOf.get(platform_payment_id) ?? []) {
      calls += call.count;
      if (call.http_status !== null) took.push(call.took_ms);
      const what = troubleOf(call);
      if (what === undefined) continue;
      failed += call.count;
      const known = troubles.get(what);
      troubles.set(what, {
        what,
        count: (known?.count ?? 0) + call.count,
        // The newest payment comes first.
        platform_payment_id: known?.platform_payment_id ?? platform_payment_id,
      });
    }
  }
  const posted = payments.flatMap(({ created_at, posted_at }) =>
    posted_at === null ? [] : [Date.parse(posted_at) - Date.parse(created_at)],
  );
  const summary = [
    `${calls} calls for its latest ${payments.length} payments; ${failed === 0 ? 'none' : failed} failed.`,
    spread('Its answers came', took),
    spread('Payments were posted', posted),
  ].filter((sentence) => sentence !== undefined);
  return {
    payments: payments.length,
    since: payments.at(-1)?.created_at ?? null,
    calls,
    summary: payments.length === 0 ? ['No payment was sent to it yet.'] : summary,
    troubles: [...troubles.values()].sort((a, b) => b.count - a.count),
  };
}

/** Half and 95 of 100 of these times, as a sentence; undefined without any. */
function spread(what: string, times: readonly number[]): string | undefined {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number): string =>
    inWords(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0);
  return sorted.length === 0
    ? undefined
    : `${what} within ${at(0.5)} for half, within ${at(0.95)} for 95 of 100.`;
}

function inWords(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  const [size, unit] = ms < 120_000 ? [1_000, 'seconds'] : [60_000, 'minutes'];
  return `${Math.round(ms / size)} ${unit}`;
}
