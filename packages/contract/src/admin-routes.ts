/**
 * The platform's admin operations, as a table like the one in routes.ts. The command line and the console use nothing else
 * (decision 32). `role` is the minimum role that may call an operation (decision 38); unless it says more, what changes something needs
 * `operator`, and reading `viewer`.
 *
 * A table: one entry per operation.
 */
import { Type, type TProperties } from 'typebox';
import * as admin from './admin.ts';
import * as t from './fields.ts';
import * as operate from './operate.ts';
import type { OperatorRole } from './operate.ts';
import type { ErrorCode } from './errors.ts';
import { moneyOperations } from './money-routes.ts';
import { PATH_FIELDS, pathFields, routeTable, type Operation, type Routes } from './routes.ts';

/** Fields that stand in a path of an admin API, beside those of the wire. */
const ADMIN_FIELDS = {
  ...PATH_FIELDS,
  partner_id: admin.PartnerId,
  operator_id: operate.OperatorId,
  key_id: Type.String({ maxLength: 64 }),
  client_id: Type.String({ maxLength: 128 }),
  remittance_id: Type.String({ maxLength: 64 }),
  file_id: Type.String({ maxLength: 64 }),
  case_id: Type.String({ maxLength: 300 }),
  difference_id: t.Uuid,
};

/** The answer when the first field of a path names nothing, where it is not NOT_FOUND. */
const NOT_FOUND: Readonly<Record<string, ErrorCode>> = {
  platform_payment_id: 'PAYMENT_NOT_FOUND',
  platform_batch_id: 'BATCH_NOT_FOUND',
};

/** Completes a table of admin operations. `changing`: the role for those that are not GET and name none; undefined where roles are not told apart. */
export function adminRoutes<
  const Fields extends TProperties,
  const T extends Readonly<Record<string, Operation>>,
>(fields: Fields, operations: T, changing?: OperatorRole): Routes<Fields, T> {
  const shared = { prefix: '/admin/v1', source: 'decision 32', auth: 'admin' } as const;
  const own = Object.entries<Operation>(operations).map(([id, one]) => {
    const isChanging = changing !== undefined && !one.call.startsWith('GET ');
    return [id, isChanging ? { role: changing, ...one } : one];
  });
  const whole = Object.fromEntries(own) as T;
  return routeTable(fields, shared, whole, ({ role, method, path }) => [
    ...(role === undefined ? [] : (['INSUFFICIENT_ROLE'] as const)),
    ...(method === 'GET' ? [] : (['CONFLICT'] as const)),
    ...pathFields(path)
      .slice(0, 1)
      .map((name) => NOT_FOUND[name] ?? ('NOT_FOUND' as const)),
  ]);
}

const OPERATIONS = {
  add_partner: {
    call: 'POST /partners',
    summary: 'Register a partner',
    role: 'admin',
    body: admin.PartnerRegistration,
    reply: admin.PartnerView,
  },
  list_partners: {
    call: 'GET /partners',
    summary: 'List the partners',
    reply: Type.Object({ partners: Type.Array(admin.PartnerView) }),
  },
  get_partner: {
    call: 'GET /partners/{partner_id}',
    summary: 'Read a partner',
    tiedBy: 'partner_id',
    reply: admin.PartnerView,
  },
  change_partner: {
    call: 'PATCH /partners/{partner_id}',
    summary: 'Change a partner; also pause and resume it',
    role: 'admin',
    body: admin.PartnerChange,
    reply: admin.PartnerView,
  },
  issue_key: {
    call: 'POST /partners/{partner_id}/keys',
    summary: 'Issue an API key; it is shown once',
    role: 'admin',
    body: t.strictObject({
      client_id: Type.Optional(Type.String({ maxLength: 128 })),
      valid_for_days: t.validForDays('The key'),
    }),
    reply: admin.ClientKeyGrant,
  },
  list_keys: {
    call: 'GET /partners/{partner_id}/keys',
    summary: 'List the API keys, without their secrets',
    tiedBy: 'partner_id',
    reply: Type.Object({ keys: Type.Array(admin.ClientKeyView) }),
  },
  revoke_key: {
    call: 'DELETE /partners/{partner_id}/keys/{key_id}',
    summary: 'Revoke an API key; every replica refuses it within five seconds',
    role: 'admin',
    reply: admin.ClientKeyView,
  },
  list_payments: {
    call: 'GET /payments',
    summary: 'List payments, newest first or in another order',
    tiedBy: 'partner_id',
    query: operate.PaymentQuery,
    reply: admin.PaymentPage,
  },
  get_admin_payment: {
    call: 'GET /payments/{platform_payment_id}',
    summary: 'Read a payment and its audit trail',
    tiedBy: 'platform_payment_id',
    reply: operate.PaymentDetail,
  },
  resume_payment: {
    call: 'POST /payments/{platform_payment_id}/resume',
    summary:
      'Take a payment out of review, which sends the same id and bytes again, or end its pause',
    body: admin.OperatorReason,
    reply: admin.PaymentView,
  },
  pause_payment: {
    call: 'POST /payments/{platform_payment_id}/pause',
    summary: 'Send nothing more for a payment until it is resumed',
    body: admin.OperatorReason,
    reply: admin.PaymentView,
  },
  withdraw_payment: {
    call: 'POST /payments/{platform_payment_id}/withdraw',
    summary: 'Cancel a payment that cannot have left yet',
    body: admin.OperatorReason,
    reply: admin.PaymentView,
  },
  list_batches: {
    call: 'GET /batches',
    summary: 'List batches, newest first',
    tiedBy: 'partner_id',
    query: t.strictObject({ partner_id: Type.Optional(admin.PartnerId) }),
    reply: admin.BatchPage,
  },
  get_batch: {
    call: 'GET /batches/{platform_batch_id}',
    summary: 'Read a batch and its statement',
    tiedBy: 'platform_batch_id',
    reply: admin.BatchView,
  },
  reconcile_batch: {
    call: 'POST /batches/{platform_batch_id}/reconcile',
    summary: 'Compare a batch with the partner: its statement, or each payment',
    body: t.strictObject({}),
    reply: admin.Reconciliation,
    errors: ['PARTNER_UNREACHABLE'],
  },
  list_audit: {
    call: 'GET /audit',
    summary: 'The audit, newest first, filtered',
    query: operate.AuditQuery,
    reply: operate.AuditPage,
  },
  verify_audit: {
    call: 'GET /audit/verification',
    summary: 'Compare the audit with its seals',
    query: operate.AuditVerificationQuery,
    reply: operate.AuditVerification,
  },
  get_self: {
    call: 'GET /me',
    summary: 'The caller and its role',
    tiedBy: 'self',
    reply: operate.OperatorSelf,
  },
  list_operators: {
    call: 'GET /operators',
    summary: 'List the operators and their keys, without secrets',
    role: 'admin',
    reply: Type.Object({ operators: Type.Array(operate.OperatorView) }),
  },
  add_operator: {
    call: 'POST /operators',
    summary: 'Add an operator',
    role: 'admin',
    body: operate.OperatorRegistration,
    reply: operate.OperatorView,
  },
  change_operator: {
    call: 'PATCH /operators/{operator_id}',
    summary: 'Change the role or name of an operator; also disable one',
    role: 'admin',
    body: operate.OperatorChange,
    reply: operate.OperatorView,
  },
  issue_operator_key: {
    call: 'POST /operators/{operator_id}/keys',
    summary: 'Issue a key; it is shown once, and a second one may be active for rotation',
    role: 'admin',
    body: t.strictObject({
      valid_for_days: t.validForDays('The key'),
    }),
    reply: operate.OperatorKeyGrant,
  },
  revoke_operator_key: {
    call: 'DELETE /operators/{operator_id}/keys/{key_id}',
    summary: 'Revoke an operator key and end the console sessions it opened, within five seconds',
    role: 'admin',
    reply: operate.OperatorView,
  },
  register_domains: {
    call: 'POST /partners/{partner_id}/domains',
    summary: 'Register the domains of a partner’s sites for Apple Pay and Google Pay',
    role: 'admin',
    reply: Type.Object({ domains: Type.Array(operate.WalletDomain) }),
  },
  test_partner: {
    call: 'POST /partners/{partner_id}/test',
    summary: 'Test the address and the credentials of a partner; changes nothing there',
    reply: operate.PartnerTest,
  },
  get_partner_health: {
    call: 'GET /partners/{partner_id}/health',
    summary: 'How the endpoint of a partner does: times, errors and breaches, in plain words',
    tiedBy: 'partner_id',
    reply: operate.PartnerHealth,
    errors: ['NOT_FOUND'],
  },
  list_answers: {
    call: 'GET /partners/{partner_id}/answers',
    summary: 'What Create Token answered the clients of a partner in the last 30 days, by hour',
    tiedBy: 'partner_id',
    reply: Type.Object({ answers: Type.Array(operate.PartnerCallAnswer) }),
  },
  get_conformance_report: {
    call: 'GET /partners/{partner_id}/conformance-report',
    summary: 'Read the latest conformance report of a partner',
    tiedBy: 'partner_id',
    reply: Type.Object({ report: t.nullable(operate.KeptConformanceReport) }),
  },
  put_conformance_report: {
    call: 'PUT /partners/{partner_id}/conformance-report',
    summary: 'Keep a conformance report of a partner, instead of the one before; audited',
    tiedBy: 'partner_id',
    body: operate.ConformanceReport,
    reply: operate.KeptConformanceReport,
  },
  revoke_client_access: {
    call: 'POST /partners/{partner_id}/clients/{client_id}/revoke-access',
    summary: 'End every token and session that a client was given; payments already made continue',
    role: 'admin',
    body: admin.OperatorReason,
    reply: operate.RevokedAccess,
  },
  search_payments: {
    call: 'POST /payments/search',
    summary:
      'Find payments also by account or e-mail address, which must not stand in an address; audited',
    body: operate.PaymentSearch,
    reply: admin.PaymentPage,
  },
  unmask_payment: {
    call: 'POST /payments/{platform_payment_id}/unmask',
    summary: 'Show the whole account id of a payment; audited',
    body: admin.OperatorReason,
    reply: operate.UnmaskedAccount,
  },
  close_review: {
    call: 'POST /payments/{platform_payment_id}/close',
    summary:
      'Close a payment in review that its partner refused and does not have; or, by an operator’s word with evidence, any in review or paused',
    body: operate.CloseReview,
    reply: operate.ReviewClose,
    errors: ['PARTNER_UNREACHABLE'],
  },
  settle_funds: {
    call: 'POST /payments/{platform_payment_id}/settle',
    summary:
      'Settle the funds of an ended payment by an operator’s word with evidence, when nothing else does',
    body: operate.SettleFunds,
    reply: operate.ReviewClose,
  },
  list_asks: {
    call: 'GET /asks',
    summary:
      'List what operators asked for and a second person has to do as well, the oldest first',
    reply: Type.Object({ asks: Type.Array(operate.AskView) }),
  },
  export_payments: {
    call: 'GET /payments/export',
    summary: 'Payments as CSV, streamed',
    role: 'operator',
    query: operate.ExportQuery,
    replyType: 'text/csv',
    reply: t.string('CSV with a heading line.'),
  },
  close_batch: {
    call: 'POST /batches/{platform_batch_id}/close',
    summary:
      'Close a batch whose payments have all ended, without waiting for the next round; in test mode also before its window has ended',
    body: admin.OperatorReason,
    reply: admin.BatchView,
  },
  reconcile_batch_file: {
    call: 'POST /batches/{platform_batch_id}/reconcile-file',
    summary:
      'Compare a batch with the export of the partner, sent as the body: platform_payment_id,status,amount_in_cents',
    body: Type.String({ description: 'UTF-8, at most 64 MiB.' }),
    bodyType: 'text/csv',
    reply: admin.Reconciliation,
    errors: ['PAYLOAD_TOO_LARGE'],
  },
  list_differences: {
    call: 'GET /differences',
    summary: 'List the differences found by reconciliation, newest first',
    tiedBy: 'partner_id',
    query: operate.DifferenceQuery,
    reply: operate.DifferencePage,
  },
  resolve_difference: {
    call: 'POST /differences/{difference_id}/resolve',
    summary: 'Resolve a difference, saying how; audited',
    body: admin.OperatorReason,
    reply: operate.OpenDifference,
  },
  show_person: {
    call: 'POST /people/show',
    summary: 'Show the data held about the person with this e-mail address; audited',
    body: operate.PersonRequest,
    reply: operate.Person,
    errors: ['NOT_FOUND'],
  },
  erase_person: {
    call: 'POST /people/erase',
    summary: 'Erase the personal data of the person with this e-mail address; payment records stay',
    role: 'admin',
    body: operate.PersonRequest,
    reply: operate.PersonErasure,
    errors: ['NOT_FOUND'],
  },
  get_overview: {
    call: 'GET /overview',
    summary: 'What waits for an operator, and which partners are on hold',
    reply: operate.Overview,
  },
  get_figures: {
    call: 'GET /figures',
    summary: 'Outcomes and times to the end over time',
    tiedBy: 'partner_id',
    query: operate.FigureQuery,
    reply: operate.Figures,
  },
  poll_payment: {
    call: 'POST /payments/{platform_payment_id}/poll',
    summary: 'Ask the partner for the status of a payment now; changes nothing',
    body: admin.OperatorReason,
    reply: operate.PartnerAnswer,
  },
  ...moneyOperations,
} as const;

/** The platform's admin listener (decision 32). */
export const platformAdminRoutes = adminRoutes(ADMIN_FIELDS, OPERATIONS, 'operator');
