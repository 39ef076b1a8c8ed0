/**
 * The admin APIs of the platform (decision 32) and of the partner kit, used by the command line and the console. They are our own
 * and strict: unknown fields are refused, because here they are typos.
 */
import { Type, type Static } from 'typebox';
import * as t from './fields.ts';
import { BatchStatement } from './payment.ts';
import { PAYMENT_STATUSES } from './status.ts';

/** Id that an operator assigns to a partner. */
export const PartnerId = Type.String({ pattern: '^[a-z0-9][a-z0-9-]{0,62}$' });

/** How the partner's endpoints are protected (S3): OAuth 2.0 (OA1) or a static key (KY1). Write-only. */
export const PartnerAuth = Type.Union([
  t.strictObject({
    method: Type.Literal('oauth'),
    token_url: Type.String({ maxLength: 2048, description: 'The token endpoint.' }),
    client_id: t.text('Issued by the partner.'),
    client_secret: t.text('Issued by the partner; encrypted at rest, never returned.', 1024),
    scope: Type.Optional(Type.String({ maxLength: 256, description: 'Such as "read write".' })),
  }),
  t.strictObject({
    method: Type.Literal('key'),
    header: t.text('Name of the header that carries the key.'),
    key: t.text('The key; encrypted at rest, never returned.', 1024),
  }),
]);
export type PartnerAuth = Static<typeof PartnerAuth>;

const path = Type.String({ maxLength: 512 });
/** Path templates of a partner whose paths differ from decision 1; absent ones keep the default. */
export const PartnerPaths = t.partial({
  get_account: path,
  get_balance: path,
  put_account_payment: path,
  get_account_payment: path,
  get_payment: path,
  get_batch_statement: path,
});
export type PartnerPaths = Static<typeof PartnerPaths>;

/** Limits on the platform's calls to one partner (decision 25). */
export const PartnerBudget = t.partial({
  max_concurrent_calls: Type.Integer({ minimum: 1, maximum: 1000, description: 'At a time.' }),
  max_calls_per_second: Type.Integer({ minimum: 1, maximum: 10_000 }),
  call_timeout_ms: Type.Integer({ minimum: 100, maximum: 120_000 }),
  wait_seconds: Type.Integer({
    minimum: 0,
    maximum: 60,
    description: 'How long it may hold a poll (decision 24); 0: not at all.',
  }),
});
export type PartnerBudget = Static<typeof PartnerBudget>;

const pem = (description: string) => Type.String({ minLength: 1, maxLength: 20_000, description });

/** How a partner is reached when plain TLS is not enough, as the gateways of banks and cities demand. Write-only. */
export const PartnerConnection = t.partial({
  certificate: pem('The certificate that the platform shows, with its chain, as PEM.'),
  private_key: pem('Its key, as PEM; encrypted at rest, never returned.'),
  authority: pem(
    'The authorities that sign the partner’s certificate, as PEM, instead of the public ones.',
  ),
  proxy_url: Type.String({
    maxLength: 2048,
    description:
      'Calls go through this HTTP proxy (CONNECT); encrypted at rest, since it may hold a password.',
  }),
});
export type PartnerConnection = Static<typeof PartnerConnection>;

const colour = Type.String({
  pattern: '^#[0-9a-fA-F]{6}$',
  description: 'Colour of the buttons of its payment page, such as #0b5fd9.',
});
const logo = Type.String({
  // 32 KiB in base64.
  maxLength: 43_692,
  pattern: '^[A-Za-z0-9+/]+={0,2}$',
  description:
    'A PNG of 32 to 512 pixels each way, at most 32 KiB, in base64, shown at the head of its payment page.',
});

const partnerFields = {
  partner_id: PartnerId,
  name: t.text('Shown to customers.'),
  kind: t.oneOf(['biller', 'aggregator'], 'One company that is owed, or a host of many.'),
  mode: Type.Optional(t.Mode),
  biller_id: Type.Optional(t.BillerId),
  support_contact: Type.Optional(
    t.text('Where customers get help: an e-mail address, a number or a page; printed on receipts.'),
  ),
  colour: Type.Optional(colour),
  logo: Type.Optional(logo),
  biller_names: Type.Optional(
    Type.Record(t.BillerId, t.text('Shown to customers.'), {
      description: 'What customers call the billers of an aggregator, by biller_id.',
      maxProperties: 10_000,
    }),
  ),
  biller_logos: Type.Optional(
    Type.Record(t.BillerId, t.nullable(logo), {
      description:
        'Logos of the billers of an aggregator, by biller_id; those not named stay, and null takes one away.',
    }),
  ),
  base_url: Type.String({ maxLength: 2048, description: 'Where its operations are, with prefix.' }),
  origins: Type.Array(Type.String({ maxLength: 256 }), {
    maxItems: 50,
    description: 'All sites that may show the payment page.',
  }),
  paths: Type.Optional(PartnerPaths),
  budget: Type.Optional(PartnerBudget),
  refusals: Type.Optional(
    Type.Array(Type.String({ pattern: '^[A-Za-z0-9_.-]{1,64}$' }), {
      maxItems: 50,
      description:
        'Codes of 400 and 422 answers by which this partner refuses a payment for good (decision 21): such a payment fails at once, after one GET that does not find it.',
    }),
  ),
  batch_time_zone: Type.Optional(Type.String({ maxLength: 64 })),
  batch_cutoff: Type.Optional(Type.String({ pattern: '^([01][0-9]|2[0-3]):[0-5][0-9]$' })),
};

/** Registration of a partner. A biller needs biller_id; an aggregator has none (decision 20). Without a mode it is for tests. */
export const PartnerRegistration = t.strictObject({
  ...partnerFields,
  auth: PartnerAuth,
  connection: Type.Optional(PartnerConnection),
});
export type PartnerRegistration = Static<typeof PartnerRegistration>;

/**
 * Changes to a registered partner: every field except its id. Absent fields stay unchanged, those of `paths` and `budget` too; any other
 * field is replaced as a whole.
 */
export const PartnerChange = t.partial({
  name: partnerFields.name,
  support_contact: partnerFields.support_contact,
  colour: t.nullable(colour),
  logo: t.nullable(logo),
  biller_names: partnerFields.biller_names,
  biller_logos: partnerFields.biller_logos,
  base_url: partnerFields.base_url,
  origins: partnerFields.origins,
  paths: partnerFields.paths,
  budget: partnerFields.budget,
  refusals: partnerFields.refusals,
  auth: PartnerAuth,
  connection: t.nullable(PartnerConnection, 'Replaced as a whole; null: called directly.'),
  paused: t.flag('True: nothing is sent to this partner.'),
  reason: t.text('Why; kept in the audit, and shown while the partner is paused.'),
});
export type PartnerChange = Static<typeof PartnerChange>;

/** A partner as the admin API returns it, without secrets. */
export const PartnerView = Type.Object({
  ...partnerFields,
  mode: t.Mode,
  logo: Type.Optional(t.string('Name of its logo, at /flow/logos/{name} of the public server.')),
  biller_logos: Type.Optional(
    Type.Record(t.BillerId, t.string(), { description: 'Names of the logos of its billers.' }),
  ),
  auth: Type.Object({
    method: t.oneOf(['oauth', 'key']),
    ...t.optional({
      token_url: t.string(),
      client_id: t.string(),
      scope: t.string(),
      header: t.string(),
    }),
  }),
  connection: Type.Optional(
    Type.Object({
      certificate_expires_at: Type.Optional(t.instant('When the platform’s certificate expires.')),
      private_authority: t.flag(),
      proxy: Type.Optional(t.string('Host and port of the proxy.')),
    }),
  ),
  paused: t.flag(),
  pause_reason: t.nullable(t.string()),
  created_at: t.instant('When it was registered.'),
});
export type PartnerView = Static<typeof PartnerView>;

const keyEnd = t.nullable(t.instant('When it expires.'), 'Null: it never expires.');

/** A new API key, shown only this once (AU1). */
export const ClientKeyGrant = Type.Object({
  partner_id: PartnerId,
  mode: t.Mode,
  client_id: t.string(),
  key_id: t.string('Names the key when it is revoked; not secret.'),
  api_key: t.string(),
  expires_at: keyEnd,
});
export type ClientKeyGrant = Static<typeof ClientKeyGrant>;

export const ClientKeyView = Type.Object({
  mode: t.Mode,
  client_id: t.string(),
  key_id: t.string(),
  created_at: t.instant('When it was issued.'),
  last_used_at: t.nullable(t.instant('When it was last accepted.')),
  expires_at: keyEnd,
  revoked_at: t.nullable(t.instant('When it was revoked.')),
});
export type ClientKeyView = Static<typeof ClientKeyView>;

/** How far a payment is inside the platform; `status` holds the four values of the interface. */
export const PAYMENT_STAGES = [
  'created',
  'authorized',
  'dispatching',
  'accepted',
  'review',
  'ended',
] as const;
export type PaymentStage = (typeof PAYMENT_STAGES)[number];

/** A payment as an operator sees it, with what is happening to it now. The account is masked; the partner has the full id. */
export const PaymentView = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  payment_id: t.nullable(t.string()),
  platform_batch_id: t.PlatformBatchId,
  partner_id: PartnerId,
  mode: t.Mode,
  biller_id: t.BillerId,
  masked_account_id: t.string(),
  status: t.oneOf(PAYMENT_STATUSES),
  stage: t.oneOf(PAYMENT_STAGES),
  review_reason: t.nullable(t.string()),
  failure_reason: t.nullable(t.string()),
  amount_in_cents: t.AmountInCents,
  created_at: t.instant('When the customer confirmed.'),
  initiated_at: t.nullable(t.string()),
  posted_at: t.nullable(t.string()),
  ended_at: t.nullable(t.instant('When the platform learned the end.')),
  attempts: t.count('Recorded calls to the partner.'),
  last_result: t.nullable(
    t.string(),
    'Of the last call: the status that the partner gave, its error code, or why there is no answer.',
  ),
  next_step: t.nullable(
    Type.Object({
      step: t.oneOf(['submit', 'poll', 'settle']),
      at: t.instant('When it is due; a partner that is down or has no budget left delays it.'),
    }),
    'Null when nothing is due, or when another process drives the payment.',
  ),
  paused: t.flag('Nothing is sent until an operator resumes it (decision 61).'),
  withdrawable: t.flag('Nothing of it can have left, so that an operator may withdraw it.'),
  open_case: t.nullable(
    Type.Object({
      case_id: t.string(),
      reason_code: t.string(),
      note: t.string(),
      opened_by: t.string(),
      opened_at: t.instant('When it was opened.'),
    }),
    'The oldest case about it that has not ended.',
  ),
});
export type PaymentView = Static<typeof PaymentView>;

/** One line of a payment's audit trail (EE8). */
export const AuditEntry = Type.Object({
  at: t.instant('Database time.'),
  actor: t.string('A worker, an operator, a client.'),
  event: t.string('Name of the event.'),
  detail: Type.Record(t.string(), Type.Union([t.string(), Type.Integer(), Type.Null()])),
});
export type AuditEntry = Static<typeof AuditEntry>;

export const PaymentPage = t.page('payments', PaymentView);
export type PaymentPage = Static<typeof PaymentPage>;

/** Every action of an operator states a reason (EE8). */
export const OperatorReason = t.strictObject({ reason: t.text('Why; kept in the audit.') });

/** The last comparison of a batch with its partner: what the partner said, beside what we say (decision 26). */
export const BatchComparison = Type.Object({
  compared_at: t.instant('When it began, in database time.'),
  actor: t.string(),
  method: t.oneOf(['statement', 'payments', 'csv']),
  compared: t.count(),
  differences: t.count(),
  partner_statement: t.nullable(
    BatchStatement,
    'From the partner’s statement or file; null if the partner has no statements.',
  ),
});
export type BatchComparison = Static<typeof BatchComparison>;

const batchFields = {
  platform_batch_id: t.PlatformBatchId,
  partner_id: PartnerId,
  opened_at: t.instant('When its first payment was made.'),
  cutoff_at: t.instant('No payment joins after this.'),
  closed_at: t.nullable(t.instant('When its last payment ended after the cut-off.')),
};

/** One batch with its state, our statement, and the partner's as it was last compared (decision 26). */
export const BatchView = Type.Object({
  ...batchFields,
  statement: BatchStatement,
  comparison: t.nullable(BatchComparison),
});
export type BatchView = Static<typeof BatchView>;

/** A batch in a list. The statement of an open batch is made of all its payments, so a list leaves it out. */
export const ListedBatch = Type.Object({
  ...batchFields,
  statement: t.nullable(
    BatchStatement,
    'Null while the batch is open: read the batch for the statement of that moment.',
  ),
  differences: t.nullable(
    t.count(),
    'Those that the last comparison with the partner found; null before the first.',
  ),
});
export type ListedBatch = Static<typeof ListedBatch>;

export const BatchPage = Type.Object({ batches: Type.Array(ListedBatch) });
export type BatchPage = Static<typeof BatchPage>;

/** One disagreement between our ledger and the partner's (glossary: difference). */
export const Difference = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  kind: t.oneOf(['missing_here', 'missing_there', 'amount', 'status', 'time']),
  here: t.nullable(t.string()),
  there: t.nullable(t.string()),
});
export type Difference = Static<typeof Difference>;

/** Outcome of comparing one batch with the partner (EE3). Never repaired silently. */
export const Reconciliation = Type.Object({
  platform_batch_id: t.PlatformBatchId,
  method: t.oneOf(
    ['statement', 'payments', 'csv'],
    'What was compared: the partner’s batch statement, each payment read, or its file.',
  ),
  compared: t.count(),
  differences: Type.Array(Difference),
  ...t.optional({
    running: Type.Object(
      { of: t.count() },
      {
        description:
          'The comparison goes on, payment by payment: `compared` of this many so far, and no differences yet. The same request again waits for it.',
      },
    ),
    file_needed: t.string(
      'Why payments that only the partner has may be missing here, and which file shows them.',
    ),
  }),
});
export type Reconciliation = Static<typeof Reconciliation>;
