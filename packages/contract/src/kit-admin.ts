/**
 * The partner kit's admin listener (decision 32): what its operator reads and does about payments, batches and the audit, and the table of its
 * operations in the form of admin-routes.ts. Strict: unknown fields are refused, because here they are typing errors.
 */
import { Type, type Static } from 'typebox';
import { adminRoutes } from './admin-routes.ts';
import { OperatorReason } from './admin.ts';
import * as t from './fields.ts';
import { AuditVerification, AuditVerificationQuery } from './operate.ts';
import { BatchStatement, PaymentRecord } from './payment.ts';
import { PATH_FIELDS } from './routes.ts';
import { PAYMENT_STATUSES } from './status.ts';

/** Partner kit: a page of its payments. */
export const KitPaymentPage = t.page('payments', PaymentRecord);
export type KitPaymentPage = Static<typeof KitPaymentPage>;

export const KitPaymentQuery = t.strictObject({
  ...t.optional({
    status: t.oneOf(PAYMENT_STATUSES),
    biller_id: t.BillerId,
    account_id: t.AccountId,
    platform_batch_id: t.PlatformBatchId,
  }),
  ...t.paging,
});
export type KitPaymentQuery = Static<typeof KitPaymentQuery>;

const reason = t.text('Why; kept in the audit.');

/** The end of a payment as the operator knows it from the biller's own system. */
export const KitSettle = t.strictObject({
  outcome: t.oneOf(['posted', 'failed', 'canceled']),
  posted_at: Type.Optional(t.instant('When it was posted there; default: now.')),
  failure_reason: Type.Optional(t.text('For `failed`: in words for the customer.', 500)),
  reason,
});
export type KitSettle = Static<typeof KitSettle>;

/** Something that happened to a payment, or that an operator did. */
export const KitAuditEntry = Type.Object({
  audit_id: Type.Integer(),
  at: t.instant('Database time.'),
  platform_payment_id: t.nullable(t.PlatformPaymentId),
  actor: t.string(),
  event: t.string(),
  detail: Type.Record(t.string(), Type.Unknown()),
});
export type KitAuditEntry = Static<typeof KitAuditEntry>;

export const KitAuditPage = t.page('entries', KitAuditEntry);
export type KitAuditPage = Static<typeof KitAuditPage>;

export const KitAuditQuery = t.strictObject({
  platform_payment_id: Type.Optional(t.PlatformPaymentId),
  event: Type.Optional(Type.String({ pattern: '^[a-z_]{1,64}$' })),
  ...t.paging,
});
export type KitAuditQuery = Static<typeof KitAuditQuery>;

/** A payment and everything that its audit says. */
export const KitPaymentDetail = Type.Object({
  payment: PaymentRecord,
  audit: Type.Array(KitAuditEntry),
});
export type KitPaymentDetail = Static<typeof KitPaymentDetail>;

/** The partner kit's admin listener. */
export const partnerAdminRoutes = adminRoutes(PATH_FIELDS, {
  list_kit_payments: {
    call: 'GET /payments',
    summary: 'List payments, newest first',
    query: KitPaymentQuery,
    reply: KitPaymentPage,
  },
  cancel_payment: {
    call: 'POST /payments/{platform_payment_id}/cancel',
    summary: 'Cancel a processing payment',
    body: OperatorReason,
    reply: PaymentRecord,
  },
  verify_kit_audit: {
    call: 'GET /audit/verification',
    summary: 'Compare the audit with its seals',
    query: AuditVerificationQuery,
    reply: AuditVerification,
  },
  get_kit_payment: {
    call: 'GET /payments/{platform_payment_id}',
    summary: 'One payment and its audit',
    reply: KitPaymentDetail,
  },
  settle_payment: {
    call: 'POST /payments/{platform_payment_id}/settle',
    summary: 'End a processing payment with the result of the biller’s own system',
    body: KitSettle,
    reply: PaymentRecord,
  },
  get_kit_batch: {
    call: 'GET /batches/{platform_batch_id}',
    summary: 'The statement of a batch as it is now',
    reply: BatchStatement,
    errors: ['SERVICE_UNAVAILABLE'],
  },
  export_kit_batch: {
    call: 'GET /batches/{platform_batch_id}/lines',
    summary: 'The lines of a batch as CSV: the file that a platform reconciles with',
    replyType: 'text/csv',
    reply: Type.String({ description: '`platform_payment_id,status,amount_in_cents`.' }),
    errors: ['PAYLOAD_TOO_LARGE'],
  },
  list_kit_audit: {
    call: 'GET /audit',
    summary: 'List the audit: what happened outside the normal life of payments, newest first',
    query: KitAuditQuery,
    reply: KitAuditPage,
  },
});
