/** Every operation of the partner kit's admin listener (decision 32), in the form of admin-routes.ts. */
import { Type } from 'typebox';
import { adminRoutes } from './admin-routes.ts';
import {
  AccountImport,
  AccountImportResult,
  KitPaymentPage,
  KitPaymentQuery,
  OperatorReason,
} from './admin.ts';
import { PlatformBatchId, PlatformPaymentId } from './fields.ts';
import {
  CredentialId,
  KitAuditPage,
  KitAuditQuery,
  KitBatchPage,
  KitBatchQuery,
  KitClientId,
  KitCredential,
  KitCredentialGrant,
  KitCredentialList,
  KitCredentialRequest,
  KitPaymentDetail,
  KitSettle,
  KitTokensRevoked,
} from './kit-admin.ts';
import { AuditVerification, AuditVerificationQuery } from './operate.ts';
import { BatchStatement, PaymentRecord } from './payment.ts';

/** Every field that stands in a path. */
const PATH_FIELDS = {
  platform_payment_id: PlatformPaymentId,
  platform_batch_id: PlatformBatchId,
  client_id: KitClientId,
  credential_id: CredentialId,
};

/** The partner kit's admin listener. */
export const partnerAdminRoutes = adminRoutes(PATH_FIELDS, {
  import_accounts: {
    call: 'POST /accounts/import',
    summary: 'Create and update accounts from a CSV text',
    source: 'decision 30',
    body: AccountImport,
    reply: AccountImportResult,
  },
  list_kit_payments: {
    call: 'GET /payments',
    summary: 'List payments, newest first',
    source: 'decision 30',
    query: KitPaymentQuery,
    reply: KitPaymentPage,
  },
  cancel_payment: {
    call: 'POST /payments/{platform_payment_id}/cancel',
    summary: 'Cancel a processing payment',
    source: 'ST4, decision 18',
    body: OperatorReason,
    reply: PaymentRecord,
    errors: ['CONFLICT'],
  },
  verify_kit_audit: {
    call: 'GET /audit/verification',
    summary: 'Compare the audit with its seals',
    source: 'decision 135',
    query: AuditVerificationQuery,
    reply: AuditVerification,
  },
  get_kit_payment: {
    call: 'GET /payments/{platform_payment_id}',
    summary: 'One payment and its audit',
    source: 'decision 38',
    reply: KitPaymentDetail,
  },
  settle_payment: {
    call: 'POST /payments/{platform_payment_id}/settle',
    summary: 'End a processing payment with the result of the biller’s own system',
    source: 'ST2, ST3, ST4, decision 38',
    body: KitSettle,
    reply: PaymentRecord,
    errors: ['CONFLICT'],
  },
  list_kit_batches: {
    call: 'GET /batches',
    summary: 'List batches by id, the last first',
    source: 'decision 26',
    query: KitBatchQuery,
    reply: KitBatchPage,
  },
  get_kit_batch: {
    call: 'GET /batches/{platform_batch_id}',
    summary: 'The statement of a batch as it is now',
    source: 'decision 26',
    reply: BatchStatement,
    errors: ['SERVICE_UNAVAILABLE'],
  },
  export_kit_batch: {
    call: 'GET /batches/{platform_batch_id}/lines',
    summary: 'The lines of a batch as CSV: the file that a platform reconciles with',
    source: 'decision 26',
    replyType: 'text/csv',
    reply: Type.String({ description: '`platform_payment_id,status,amount_in_cents`.' }),
    errors: ['PAYLOAD_TOO_LARGE'],
  },
  list_kit_audit: {
    call: 'GET /audit',
    summary: 'List the audit: what happened outside the normal life of payments, newest first',
    source: 'decision 38',
    query: KitAuditQuery,
    reply: KitAuditPage,
  },
  list_kit_credentials: {
    call: 'GET /credentials',
    summary: 'List the client secrets and static keys, without their values',
    source: 'decision 38',
    reply: KitCredentialList,
  },
  issue_kit_credential: {
    call: 'POST /clients/{client_id}/credentials',
    summary: 'Issue another client secret or static key; the existing ones stay valid',
    source: 'OA1, KY1, decision 38',
    body: KitCredentialRequest,
    reply: KitCredentialGrant,
    errors: ['CONFLICT'],
  },
  revoke_kit_credential: {
    call: 'POST /credentials/{credential_id}/revoke',
    summary: 'Revoke a client secret or static key; every replica refuses it within five seconds',
    source: 'decision 38',
    body: OperatorReason,
    reply: KitCredential,
    errors: ['CONFLICT'],
  },
  revoke_kit_tokens: {
    call: 'POST /clients/{client_id}/revoke-tokens',
    summary: 'End the access tokens of a client, at every replica within five seconds',
    source: 'OA3, decision 38',
    body: OperatorReason,
    reply: KitTokensRevoked,
  },
});
