/**
 * What the operator of a partner kit reads and does beside accounts and payments (decision 32): batches, the end of a payment that
 * another system knows, credentials, audit. Strict: unknown fields are refused, because here they are typing errors.
 */
import { Type, type Static } from 'typebox';
import {
  count,
  instant,
  nullable,
  paging,
  PlatformBatchId,
  PlatformPaymentId,
  strictObject,
  text,
  validForDays,
} from './fields.ts';
import { PaymentRecord } from './payment.ts';

const reason = text('Why; kept in the audit.');

/** One batch as the kit's payments have it. */
export const KitBatch = Type.Object({
  platform_batch_id: PlatformBatchId,
  count: Type.Integer({ minimum: 1 }),
  amount_in_cents: Type.Integer({ minimum: 1, description: 'Total amount, whatever the status.' }),
  processing: count('How many have not ended.'),
  first_initiated_at: instant('When the first of its payments was accepted.'),
  last_initiated_at: instant('When the last of its payments was accepted.'),
});
export type KitBatch = Static<typeof KitBatch>;

export const KitBatchPage = Type.Object({
  batches: Type.Array(KitBatch),
  next_cursor: nullable(Type.String()),
});
export type KitBatchPage = Static<typeof KitBatchPage>;

export const KitBatchQuery = strictObject({
  ...paging,
});
export type KitBatchQuery = Static<typeof KitBatchQuery>;

/** The end of a payment as the operator knows it from the biller's own system. */
export const KitSettle = strictObject({
  outcome: Type.Enum(['posted', 'failed', 'canceled']),
  posted_at: Type.Optional(instant('When it was posted there; default: now.')),
  failure_reason: Type.Optional(text('For `failed`: in words for the customer.', 500)),
  reason,
});
export type KitSettle = Static<typeof KitSettle>;

/** Something that happened to a payment, or that an operator did. */
export const KitAuditEntry = Type.Object({
  audit_id: Type.Integer(),
  at: instant('Database time.'),
  platform_payment_id: nullable(PlatformPaymentId),
  actor: Type.String(),
  event: Type.String(),
  detail: Type.Record(Type.String(), Type.Unknown()),
});
export type KitAuditEntry = Static<typeof KitAuditEntry>;

export const KitAuditPage = Type.Object({
  entries: Type.Array(KitAuditEntry),
  next_cursor: nullable(Type.String()),
});
export type KitAuditPage = Static<typeof KitAuditPage>;

export const KitAuditQuery = strictObject({
  platform_payment_id: Type.Optional(PlatformPaymentId),
  event: Type.Optional(Type.String({ pattern: '^[a-z_]{1,64}$' })),
  ...paging,
});
export type KitAuditQuery = Static<typeof KitAuditQuery>;

/** A payment and everything that its audit says. */
export const KitPaymentDetail = Type.Object({
  payment: PaymentRecord,
  audit: Type.Array(KitAuditEntry),
});
export type KitPaymentDetail = Static<typeof KitPaymentDetail>;

/** Names a credential without telling it: the beginning of its SHA-256. */
export const CredentialId = Type.String({ minLength: 16, maxLength: 16 });

/** The caller that a credential is for: an OAuth client of the configuration, or `static-key`. */
export const KitClientId = Type.String({ minLength: 1, maxLength: 128 });

/** A client secret or a static key, without its text. */
export const KitCredential = Type.Object({
  credential_id: CredentialId,
  client_id: KitClientId,
  source: Type.Enum(['environment', 'issued']),
  issued_at: nullable(instant('When it was issued; null for one of the environment.')),
  expires_at: nullable(instant('When it expires; null: never.')),
  revoked_at: nullable(instant('When it was revoked.')),
});
export type KitCredential = Static<typeof KitCredential>;

export const KitCredentialList = Type.Object({ credentials: Type.Array(KitCredential) });
export type KitCredentialList = Static<typeof KitCredentialList>;

/** Issue a credential, and say why. */
export const KitCredentialRequest = strictObject({
  reason,
  valid_for_days: validForDays('It'),
});
export type KitCredentialRequest = Static<typeof KitCredentialRequest>;

/** A new credential. Its text is answered once and stored as a digest. */
export const KitCredentialGrant = Type.Object({
  credential_id: CredentialId,
  client_id: KitClientId,
  secret: Type.String(),
  expires_at: nullable(instant('When it expires; null: never.')),
});
export type KitCredentialGrant = Static<typeof KitCredentialGrant>;

export const KitTokensRevoked = Type.Object({
  client_id: KitClientId,
  tokens_revoked: count(),
});
export type KitTokensRevoked = Static<typeof KitTokensRevoked>;
