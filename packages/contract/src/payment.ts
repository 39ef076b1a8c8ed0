/**
 * The payment: the body of the platform's PUT, and the record that the partner keeps forever
 * (PF1-PF9).
 */
import { Type, type Static } from 'typebox';
import {
  AccountId,
  AmountInCents,
  BillerId,
  count,
  foreignInstant,
  instant,
  MAX_FAILURE_REASON_LENGTH,
  PlatformBatchId,
  PlatformPaymentId,
} from './fields.ts';
import { PAYMENT_STATUSES } from './status.ts';

/** PUT body (PF3, PF6, decision 2). Unknown fields are ignored; no personal data belongs here. */
export const PaymentInstruction = Type.Object({
  amount_in_cents: AmountInCents,
  platform_batch_id: PlatformBatchId,
  platform_payment_id: Type.Optional(PlatformPaymentId),
});
export type PaymentInstruction = Static<typeof PaymentInstruction>;

/** The record as our partner kit returns it (decision 3). */
export const PaymentRecord = Type.Object({
  payment_id: Type.String({ description: 'The identifier at the partner (PF1).' }),
  platform_payment_id: PlatformPaymentId,
  platform_batch_id: PlatformBatchId,
  biller_id: BillerId,
  account_id: AccountId,
  status: Type.Enum([...PAYMENT_STATUSES], { description: 'PF4.' }),
  amount_in_cents: AmountInCents,
  initiated_at: instant('When the partner first accepted the payment (PF7).'),
  posted_at: Type.Union([
    instant('When the payment was posted to the account ledger (PF8).'),
    Type.Null(),
  ]),
  failure_reason: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_FAILURE_REASON_LENGTH,
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
  platform_payment_id: Type.String(),
  status: Type.String(),
  amount_in_cents: Type.Integer(),
  initiated_at: foreignInstant('When the partner accepted it.'),
  posted_at: Type.Optional(Type.Union([foreignInstant('When it was posted.'), Type.Null()])),
  platform_batch_id: Type.Optional(Type.Unknown()),
  biller_id: Type.Optional(Type.Unknown()),
  account_id: Type.Optional(Type.Unknown()),
  failure_reason: Type.Optional(Type.Unknown()),
});
export type PaymentReply = Static<typeof PaymentReply>;

/** The same for a reader that judges posted_at by itself. */
export const PaymentReplyApartFromPosting = Type.Omit(PaymentReply, ['posted_at']);
export type PaymentReplyApartFromPosting = Static<typeof PaymentReplyApartFromPosting>;

/** The failure reasons that the interface names, as our kit words them (FR1). */
export const FAILURE_REASONS = {
  account: 'The account was not found or is not active.',
  maximum: 'The amount is above the maximum that the biller allows.',
  duplicate: 'A duplicate payment was detected for this account and amount.',
} as const;

/** Statement of one batch (decision 26, an extension): `GET /batch/{platform_batch_id}`. */
export const BatchStatement = Type.Object({
  platform_batch_id: PlatformBatchId,
  count: count(),
  totals: Type.Array(
    Type.Object({
      status: Type.Enum([...PAYMENT_STATUSES]),
      count: Type.Integer({ minimum: 1 }),
      amount_in_cents: count(),
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
