/**
 * Whether a partner's payment record can be believed, and what it says (PL5, PL6, F26-F38). Pure.
 *
 * The answer is untrusted input: fields are read one by one and compared with the intent that we committed before the first PUT.
 * Anything but a clear terminal record of this very payment leaves the payment unchanged.
 */
import {
  compileCheck,
  instantText,
  isPaymentStatus,
  isTerminal,
  PaymentReply,
  type Json,
} from '@duebridge/contract';
import type { Ending } from '../store/steps.ts';
import { plainText } from '../plain-text.ts';

/** What we know of the payment and the record must repeat. */
export interface Intent {
  readonly platform_payment_id: string;
  readonly amount_in_cents: number;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  /** The partner's id, once it has told one. */
  readonly payment_id: string | null;
}

/** What the partner said when it took the payment; the instant in UTC. */
export interface Acceptance {
  readonly payment_id: string;
  readonly initiated_at: string;
}

/** A breach that has no effect by itself; it is counted, and logged once per payment. */
export type Anomaly =
  | 'unknown_status' // F32
  | 'posted_while_processing'
  | 'posted_though_not_succeeded'
  | 'posted_before_initiated'
  | 'failed_without_reason';

/** The result of judging a record. */
export type RecordJudgement =
  | {
      readonly kind: 'processing';
      readonly acceptance: Acceptance;
      readonly anomaly: Anomaly | undefined;
    }
  | { readonly kind: 'ended'; readonly ending: Ending; readonly anomaly: Anomaly | undefined }
  /** Says succeeded without a usable posted_at (F35): asked again a few times, then reviewed. */
  | { readonly kind: 'incomplete'; readonly acceptance: Acceptance }
  /** Another payment, or another amount, account or batch than ours (F27, F30): frozen for an operator. */
  | { readonly kind: 'mismatch'; readonly field: keyof Intent }
  /** Not a payment record: it says nothing (F24). */
  | { readonly kind: 'invalid' };

/** Kept where the partner gave no words: it broke PF5, or it refused the payment by a code alone. The page says so in the customer's language. */
export const NO_REASON = 'The biller gave no reason.';

const replyCheck = compileCheck(PaymentReply);

/** Judges the JSON of a 200 answer against the intent. */
export function judgeRecord(intent: Intent, json: Json | undefined): RecordJudgement {
  const fields: unknown = json;
  if (!replyCheck.holds(fields)) return { kind: 'invalid' };
  const field = mismatch(intent, fields);
  if (field !== undefined) return { kind: 'mismatch', field };
  const initiated_at = instantText(fields.initiated_at);
  if (initiated_at === undefined) return { kind: 'invalid' };
  const acceptance = { payment_id: fields.payment_id, initiated_at };
  const { status, posted_at } = fields;
  const posted = typeof posted_at === 'string' ? instantText(posted_at) : undefined;

  if (!isPaymentStatus(status))
    return { kind: 'processing', acceptance, anomaly: 'unknown_status' };
  if (!isTerminal(status)) {
    const anomaly = posted === undefined ? undefined : 'posted_while_processing';
    return { kind: 'processing', acceptance, anomaly };
  }
  switch (status) {
    case 'succeeded':
      if (posted === undefined) return { kind: 'incomplete', acceptance };
      return {
        kind: 'ended',
        ending: { ...acceptance, status, posted_at: posted, failure_reason: null },
        anomaly: posted < initiated_at ? 'posted_before_initiated' : undefined,
      };
    case 'failed': {
      const reason = reasonText(fields.failure_reason);
      return {
        kind: 'ended',
        ending: { ...acceptance, status, posted_at: null, failure_reason: reason ?? NO_REASON },
        anomaly: reason === undefined ? 'failed_without_reason' : notPosted(posted),
      };
    }
    case 'canceled':
      return {
        kind: 'ended',
        ending: { ...acceptance, status, posted_at: null, failure_reason: null },
        anomaly: notPosted(posted),
      };
  }
}

function notPosted(posted: string | undefined): Anomaly | undefined {
  return posted === undefined ? undefined : 'posted_though_not_succeeded';
}

/** Id and amount must be present and equal; account, biller and batch must be equal if present (PL6). */
function mismatch(intent: Intent, fields: PaymentReply): keyof Intent | undefined {
  if (fields.platform_payment_id !== intent.platform_payment_id) return 'platform_payment_id';
  if (fields.amount_in_cents !== intent.amount_in_cents) return 'amount_in_cents';
  const { platform_batch_id, biller_id, account_id } = fields;
  if (differs(platform_batch_id, intent.platform_batch_id)) return 'platform_batch_id';
  if (differs(biller_id, intent.biller_id)) return 'biller_id';
  if (differs(account_id, intent.account_id)) return 'account_id';
  if (intent.payment_id !== null && fields.payment_id !== intent.payment_id) return 'payment_id';
  return undefined;
}

function differs(echo: unknown, ours: string): boolean {
  return echo !== undefined && echo !== null && echo !== ours;
}

/** The reason as text for people, who are customers, operators and readers of mails. */
export function reasonText(reason: unknown): string | undefined {
  const plain = typeof reason === 'string' ? plainText(reason) : '';
  return plain === '' ? undefined : plain;
}
