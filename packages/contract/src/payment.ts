/**
 * The payment: the body of the platform's PUT, and the record that the partner keeps forever
 * (PF1-PF9).
 */
import { Type, type Static } from 'typebox';
import * as t from './fields.ts';
import { PAYMENT_STATUSES } from './status.ts';

/** PUT body (PF3, PF6, decision 2). Unknown fields are ignored; no personal data belongs here. */
export const PaymentInstruction = Type.Object({
  amount_in_cents: t.AmountInCents,
  platform_batch_id: t.PlatformBatchId,
  platform_payment_id: Type.Optional(t.PlatformPaymentId),
});
export type PaymentInstruction = Static<typeof PaymentInstruction>;

/** The record as our partner kit returns it (decision 3). */
export const PaymentRecord = Type.Object({
  payment_id: t.string('The identifier at the partner (PF1).'),
  platform_payment_id: t.PlatformPaymentId,
  platform_batch_id: t.PlatformBatchId,
  biller_id: t.BillerId,
  account_id: t.AccountId,
  status: t.oneOf(PAYMENT_STATUSES, 'PF4.'),
  amount_in_cents: t.AmountInCents,
  initiated_at: t.instant('When the partner first accepted the payment (PF7).'),
  posted_at: t.nullable(t.instant('When the payment was posted to the account ledger (PF8).')),
  failure_reason: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: t.MAX_FAILURE_REASON_LENGTH,
      description: 'For people; there when, and only when, the status is failed (PF5).',
    }),
  ),
});
export type PaymentRecord = Static<typeof PaymentRecord>;

/**
 * The minimum that the platform accepts as a partner's payment answer: the fields that the interface requires. Rules between
 * fields (posted_at against status, echo against intent) are checked afterwards (decision 22). Extra fields are ignored.
 */
export const PaymentReply = Type.Object({
  payment_id: Type.String({ minLength: 1, maxLength: 256 }),
  platform_payment_id: t.string(),
  status: t.string(),
  amount_in_cents: Type.Integer(),
  initiated_at: t.foreignInstant('When the partner accepted it.'),
  ...t.optional({
    // Judged on its own: a time without a zone there must lead to review, not to asking forever.
    posted_at: Type.Unknown(),
    platform_batch_id: Type.Unknown(),
    biller_id: Type.Unknown(),
    account_id: Type.Unknown(),
    failure_reason: Type.Unknown(),
  }),
});
export type PaymentReply = Static<typeof PaymentReply>;

/** The failure reasons that the interface names, as our kit words them (FR1). */
export const FAILURE_REASONS = {
  account: 'The account was not found or is not active.',
  maximum: 'The amount is above the maximum that the biller allows.',
  duplicate: 'A duplicate payment was detected for this account and amount.',
} as const;

/** Statement of one batch (decision 26, an extension): `GET /batch/{platform_batch_id}`. */
export const BatchStatement = Type.Object({
  platform_batch_id: t.PlatformBatchId,
  count: t.count(),
  totals: Type.Array(
    Type.Object({
      status: t.oneOf(PAYMENT_STATUSES),
      count: t.oneOrMore(),
      amount_in_cents: t.count(),
    }),
    { description: 'One entry for each status that occurs, in the order of PF4.' },
  ),
  sha256: Type.String({
    pattern: '^[0-9a-f]{64}$',
    description:
      'Over the lines `platform_payment_id,status,amount_in_cents`, sorted by byte, each ended by a line feed (decision 26).',
  }),
});
export type BatchStatement = Static<typeof BatchStatement>;
