/** What several checks have in common. */
import type { Json } from '@duebridge/contract';
import type { PaymentFields } from '../check/partner-context.ts';
import type { PartnerTarget } from '../check/target.ts';

/** Unfit for a target that uses a static key. */
export function oauthOnly(target: PartnerTarget): string | undefined {
  return target.authentication.method === 'oauth'
    ? undefined
    : 'the target uses a static key, not OAuth';
}

/** The fields of a payment that never change once they are there (RU5, PF2, PF6, PF7). */
export const LASTING_FIELDS = [
  'payment_id',
  'platform_payment_id',
  'amount_in_cents',
  'initiated_at',
] as const;

/** The fields of a payment that never change once it has ended (RU2). */
export const ENDED_FIELDS = [...LASTING_FIELDS, 'status', 'posted_at', 'failure_reason'] as const;

/** True for a failure reason that a person can read: words, and neither a code nor a stack trace (PF5). */
export function isReadableReason(reason: Json | undefined): boolean {
  return (
    typeof reason === 'string' && /\p{L}{2,}\s+\S*\p{L}{2,}/u.test(reason) && !looksInternal(reason)
  );
}

/** True for a text that holds what only a log should: a stack trace or the name of an exception. */
export function looksInternal(text: string): boolean {
  return /\n\s*at \S|^\s*at .+:\d+|Traceback \(most recent|\b\w+(?:Exception|Error)\b\s*[:(]|\.(?:js|ts|py|java|rb|go|php):\d+/m.test(
    text,
  );
}

/** The status of a record in words. */
export function statusOf(record: PaymentFields): string {
  const status = record['status'];
  return typeof status === 'string' ? status : JSON.stringify(status ?? null);
}
