/**
 * The admin API, second half: operators and their roles (decision 38), the attempts of a payment, searches, reviews, people,
 * differences, and the overview. Strict like admin.ts: an unknown field is a typing error.
 *
 * A table: one schema per resource.
 */
import { Type, type Static } from 'typebox';
import { AuditEntry, Difference, PartnerId, PaymentView } from './admin.ts';
import * as t from './fields.ts';
import { PAYMENT_STATUSES } from './status.ts';

// Operators ------------------------------------------------------------------------------------------------------------------

/** Roles in ascending order: read; act on payments and batches; change partners, keys and operators. */
export const OPERATOR_ROLES = ['viewer', 'operator', 'admin'] as const;
export type OperatorRole = (typeof OPERATOR_ROLES)[number];
/** Beside them the operators of one partner, who see what is that partner's and send its conformance report alone. */
export type AnyRole = OperatorRole | 'partner';

/** True when `role` includes the rights of `needed`; the role `partner` includes none. */
export function roleCovers(role: AnyRole, needed: OperatorRole): boolean {
  return role !== 'partner' && OPERATOR_ROLES.indexOf(role) >= OPERATOR_ROLES.indexOf(needed);
}

/** Ids of operators: short, and readable in an audit. */
export const OperatorId = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
const Role = t.oneOf(
  [...OPERATOR_ROLES, 'partner'],
  'viewer reads, operator acts, admin changes partners and people; partner sees what is of its partner_id.',
);
const oidcSubject = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'The `sub` of the OpenID Connect identity that signs in as this operator.',
});

export const OperatorRegistration = t.strictObject({
  operator_id: OperatorId,
  name: t.text('Shown in the console.'),
  role: Role,
  partner_id: Type.Optional(PartnerId),
  oidc_subject: Type.Optional(oidcSubject),
});
export type OperatorRegistration = Static<typeof OperatorRegistration>;

export const OperatorChange = t.partial({
  name: t.text('Shown in the console.'),
  role: t.oneOf(OPERATOR_ROLES),
  oidc_subject: t.nullable(oidcSubject),
  disabled: t.flag('True: no key and no session of this operator is accepted.'),
});
export type OperatorChange = Static<typeof OperatorChange>;

export const OperatorView = Type.Object({
  operator_id: OperatorId,
  name: t.string(),
  role: Role,
  partner_id: t.nullable(PartnerId),
  oidc_subject: t.nullable(t.string()),
  created_at: t.instant('When the operator was added.'),
  disabled_at: t.nullable(t.instant('When the operator was disabled.')),
  keys: Type.Array(
    Type.Object({
      key_id: t.string(),
      created_at: t.instant('When it was issued.'),
      last_used_at: t.nullable(t.instant('When it was last accepted, to within a minute.')),
      expires_at: t.nullable(t.instant('When it expires; null: never.')),
      revoked_at: t.nullable(t.instant('When it was revoked.')),
    }),
  ),
});
export type OperatorView = Static<typeof OperatorView>;

/** A new operator key, shown only this once. */
export const OperatorKeyGrant = Type.Object({
  operator_id: OperatorId,
  key_id: t.string(),
  operator_key: t.string(),
  expires_at: t.nullable(t.instant('When it expires; null: never.')),
});
export type OperatorKeyGrant = Static<typeof OperatorKeyGrant>;

/** The operator who makes the request. */
export const OperatorSelf = Type.Object({
  operator_id: t.string('As the audit names it.'),
  name: t.string(),
  role: Role,
  partner_id: Type.Optional(PartnerId),
  csrf: Type.Optional(t.string('Console sessions only: goes into X-CSRF-Token of every change.')),
});
export type OperatorSelf = Static<typeof OperatorSelf>;

// Attempts -------------------------------------------------------------------------------------------------------------------

/** One call for a payment, or a series of polls with the same answer. */
export const Attempt = Type.Object({
  kind: t.oneOf(['put', 'get']),
  at: t.instant('When it was sent; the first of a run of equal attempts.'),
  last_at: t.instant('When the last of the run was sent.'),
  count: t.oneOrMore(),
  took_ms: t.count('The last of a run.'),
  http_status: t.nullable(Type.Integer()),
  result: t.string('The status that the partner gave, its error code, or why there is no answer.'),
  request_id: t.string('The X-Request-Id sent to the partner.'),
  body: t.nullable(
    t.string(
      'The partner’s answer when it was not the expected record: truncated, without secrets, account ids and contact data.',
    ),
  ),
});
export type Attempt = Static<typeof Attempt>;

/** What one operator asked for and a second one must confirm by doing the same (decision 38). */
export const AskView = Type.Object({
  subject: t.string('What it is about: payment/ID, case/ID or transfer/ID.'),
  act: t.string('What is to be done, such as `close as failed`.'),
  asked_by: t.string(),
  reason: t.string(),
  asked_at: t.instant('When it was asked for.'),
});
export type AskView = Static<typeof AskView>;

/** Everything an operator needs to explain one payment. */
export const PaymentDetail = Type.Object({
  payment: PaymentView,
  attempts: Type.Array(Attempt),
  audit: Type.Array(AuditEntry),
  ask: t.nullable(AskView),
  partner_held: t.nullable(
    t.string('Why calls to its partner are held back now, while it has not ended.'),
  ),
});
export type PaymentDetail = Static<typeof PaymentDetail>;

const reason = t.text('Why; kept in the audit.');
const evidence = t.text('Where it is written that it is so, such as a ticket of the partner.');

/** What an operator states of a payment that the engine cannot end by itself, and where that is written. */
export const CloseByWord = Type.Union([
  t.strictObject({
    outcome: Type.Literal('failed'),
    evidence,
    failure_reason: Type.Optional(t.text('For the customer.', 500)),
  }),
  t.strictObject({ outcome: Type.Literal('canceled'), evidence }),
  t.strictObject({
    outcome: Type.Literal('succeeded'),
    evidence,
    payment_id: t.text('The partner’s id of the payment, unless it has told one.'),
    posted_at: t.instant('When the partner posted it.'),
  }),
]);
export type CloseByWord = Static<typeof CloseByWord>;

/** A request to close a payment; without a word, one that its partner refused and does not have. */
export const CloseReview = t.strictObject({ reason, word: Type.Optional(CloseByWord) });

/** What an operator states of the funds of a payment that has ended. */
export const SettleFunds = t.strictObject({
  outcome: t.oneOf(
    ['captured', 'borne', 'released', 'refunded'],
    'Of one that succeeded: captured, or borne by the platform. Of any other: released, or refunded.',
  ),
  reason,
  evidence,
});
export type SettleFunds = Static<typeof SettleFunds>;

/** Result of a request to close a payment or to settle its funds. */
export const ReviewClose = Type.Object({ outcome: t.ActOutcome, payment: PaymentView });
export type ReviewClose = Static<typeof ReviewClose>;

/** The full account id of a payment, for an operator who gave a reason. */
export const UnmaskedAccount = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  biller_id: t.BillerId,
  account_id: t.AccountId,
});
export type UnmaskedAccount = Static<typeof UnmaskedAccount>;

// Search ---------------------------------------------------------------------------------------------------------------------

const day = (description: string) =>
  Type.Optional(Type.String({ format: 'date-time', description }));

/**
 * What a payment is called in a search: its status, or why somebody has to look at it.
 *
 * `review`: waits for an operator. `paused`: by an operator. `overdue`: not ended a day after it was confirmed. `unsettled`: ended, and
 * its funds are neither captured nor released. `case`: a case about it has not ended. `needs_human`: one of these, once a worker can no
 * longer be expected to end it.
 */
export const FILTER_STATUSES = [
  ...PAYMENT_STATUSES,
  'needs_human',
  'review',
  'paused',
  'overdue',
  'unsettled',
  'case',
] as const;
export type FilterStatus = (typeof FILTER_STATUSES)[number];

/** The filters of a list of payments. */
export const PaymentFilterFields = {
  id: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 256,
      description:
        'Any exact id: the payment’s here, at the partner or at the payment processor, or its batch’s.',
    }),
  ),
  status: Type.Optional(t.oneOf(FILTER_STATUSES)),
  partner_id: Type.Optional(PartnerId),
  amount_in_cents: Type.Optional(
    Type.String({ pattern: '^[1-9][0-9]{0,10}$', description: 'Exactly this amount.' }),
  ),
  from: day('Confirmed at or after this instant.'),
  to: day('Confirmed before this instant.'),
};

/** The order of a list of payments. */
const sort = Type.Optional(t.oneOf(['newest', 'oldest'], 'Default: `newest`.'));

export const PaymentQuery = t.strictObject({
  ...PaymentFilterFields,
  sort,
  ...t.paging,
});

/** The same, with criteria that must not appear in a URL: an account id or an e-mail address. */
export const PaymentSearch = t.strictObject({
  ...PaymentFilterFields,
  account_id: Type.Optional(t.AccountId),
  email: Type.Optional(Type.String({ minLength: 3, maxLength: 256 })),
  sort,
  ...t.paging,
});
export type PaymentSearch = Static<typeof PaymentSearch>;

export const ExportQuery = t.strictObject({
  ...PaymentFilterFields,
  unmasked: Type.Optional(
    Type.Literal('true', { description: 'Whole account ids; needs the role admin.' }),
  ),
});

// Partners -------------------------------------------------------------------------------------------------------------------

/** Result of testing a partner's address and credentials. Nothing is changed at the partner. */
export const PartnerTest = Type.Object({
  partner_id: PartnerId,
  reachable: t.flag(),
  authorized: t.nullable(t.flag()),
  took_ms: t.count(),
  finding: t.string('One sentence: what was found, and what to do.'),
});
export type PartnerTest = Static<typeof PartnerTest>;

/** A domain whose pages may show the buttons of wallets. */
export const WalletDomain = Type.Object({
  adapter: t.string('The payment processor.'),
  domain: t.string(),
  problem: t.nullable(t.string('Why no wallet is shown there, in the processor’s words.')),
});
export type WalletDomain = Static<typeof WalletDomain>;

/** How a partner's endpoint does, from the calls for its latest payments, at most 500. */
export const PartnerHealth = Type.Object({
  payments: Type.Integer({ minimum: 0, description: 'How many were looked at.' }),
  since: t.nullable(t.instant('When the oldest of them was made.')),
  calls: Type.Integer({ minimum: 0 }),
  summary: Type.Array(t.string(), { description: 'In sentences.' }),
  troubles: Type.Array(
    Type.Object({
      what: t.string('How it was answered, in a sentence.'),
      count: t.oneOrMore(),
      platform_payment_id: t.PlatformPaymentId,
    }),
    {
      description:
        'Calls that failed: refused, not answered, or against the interface; each kind with its latest payment.',
    },
  ),
});
export type PartnerHealth = Static<typeof PartnerHealth>;

/** What Create Token answered one client within an hour, the same answers as one. */
export const PartnerCallAnswer = Type.Object({
  client_id: t.string(),
  status: Type.Integer(),
  code: t.string('Empty for a 200.'),
  cause: t.string('Why it was refused, in a sentence.'),
  count: t.oneOrMore(),
  hour: t.instant('The hour in which they were answered.'),
  last_at: t.instant('When the last of them was answered.'),
  request_id: t.string('The X-Request-Id of the last.'),
});
export type PartnerCallAnswer = Static<typeof PartnerCallAnswer>;

/** Checks in a report at most: these, with the texts of each, fit into the 64 KiB that a request may have; the kit has half as many. */
const MAX_CHECKS = 100;

/**
 * What a run of `duebridge conform partner` found, without what was sent and received: that stays in its file, since it names accounts.
 */
const conformanceFields = {
  base_url: t.text('The server that was judged.'),
  profile: t.oneOf(['contract', 'strict']),
  started_at: t.instant('When the run began.'),
  kit_version: t.text('The version of the judge.', 64),
  verdict: t.oneOf(['passed', 'failed', 'partial']),
  passed: t.count('Checks that passed.'),
  others: Type.Array(
    t.strictObject({
      check: t.text('Its id, such as P25.', 16),
      verdict: t.oneOf(['failed', 'warned', 'not_judged']),
      title: t.text('What it checks.'),
      why: t.text('The rules that were broken, or what kept it from being judged.'),
    }),
    { maxItems: MAX_CHECKS, description: 'The other checks.' },
  ),
};
export const ConformanceReport = t.strictObject(conformanceFields);
export type ConformanceReport = Static<typeof ConformanceReport>;

/** The JSON report of such a run, as far as it is read here. */
export const ConformanceFile = Type.Object({
  tool: Type.Literal('duebridge conform'),
  subject: Type.Literal('partner'),
  kit_version: t.string(),
  target: Type.Object({ base_url: t.string() }),
  profile: conformanceFields.profile,
  started_at: t.string(),
  verdict: t.oneOf(['passed', 'failed', 'partial', 'config', 'nothing']),
  counts: Type.Object({ PASS: t.count() }),
  results: Type.Array(
    Type.Object({
      id: t.string(),
      title: t.string(),
      verdict: t.oneOf(['PASS', 'FAIL', 'WARN', 'SKIP']),
      skipped: Type.Optional(t.string()),
      findings: Type.Array(Type.Object({ rule: t.string() })),
    }),
  ),
});
export type ConformanceFile = Static<typeof ConformanceFile>;

/** A report as it is kept: the latest of a partner. */
export const KeptConformanceReport = Type.Object({
  ...conformanceFields,
  uploaded_at: t.instant('When the platform got it.'),
});
export type KeptConformanceReport = Static<typeof KeptConformanceReport>;

/** Tokens and sessions of one client that were ended. */
export const RevokedAccess = Type.Object({
  client_id: t.string(),
  tokens: t.count(),
  sessions: t.count(),
});
export type RevokedAccess = Static<typeof RevokedAccess>;

// Audit ----------------------------------------------------------------------------------------------------------------------

export const AuditQuery = t.strictObject({
  ...t.optional({
    actor: Type.String({ minLength: 1, maxLength: 128 }),
    event: Type.String({ pattern: '^[a-z_]{1,64}$' }),
    partner_id: PartnerId,
    platform_payment_id: t.PlatformPaymentId,
  }),
  from: day('At or after this instant.'),
  to: day('Before this instant.'),
  ...t.paging,
});

export const AuditPage = t.page('entries', AuditEntry);
export type AuditPage = Static<typeof AuditPage>;

/** Which seals of the audit to compare with its lines (decision 135). */
export const AuditVerificationQuery = t.partial({
  after: Type.String({
    pattern: '^[0-9]{1,12}$',
    description: 'Number of a seal; 0 is the start.',
  }),
  limit: Type.String({
    pattern: '^([1-9]|[1-4][0-9]|50)$',
    description:
      'Maximum number of seals; default 50. Fewer are compared when they take more than two seconds.',
  }),
});

/** What the comparison found. */
export const AuditVerification = Type.Object({
  seals: t.count('Seals that were compared and hold.'),
  lines: t.count('Lines under them.'),
  through: t.nullable(
    Type.Object(
      {
        seal_no: t.oneOrMore(),
        seal: Type.String({ pattern: '^[0-9a-f]{64}$' }),
        to: t.string(),
      },
      { description: 'The last seal that holds: compare it with one noted elsewhere.' },
    ),
  ),
  next: t.nullable(Type.Integer({ minimum: 1, description: 'Continue after this seal.' })),
  newest: t.count('Number of the newest seal; 0 without one.'),
  broken: t.nullable(
    Type.Object({
      seal_no: t.oneOrMore(),
      what: t.oneOf(['altered', 'removed', 'inserted', 'seal_missing', 'seal_altered']),
      at: t.nullable(t.string()),
      audit_id: t.nullable(t.string()),
    }),
  ),
  unsealed: t.count(
    'Lines that are not sealed yet, usually those of the last minute. The count ends at 10,000.',
  ),
});
export type AuditVerification = Static<typeof AuditVerification>;

// People ---------------------------------------------------------------------------------------------------------------------

export const PersonRequest = t.strictObject({
  email: Type.String({ minLength: 3, maxLength: 256 }),
  reason: t.text('Why; kept in the audit.'),
});

/** The data stored about a person who was found by e-mail address. */
export const Person = Type.Object({
  records: Type.Array(
    Type.Object({
      partner_id: PartnerId,
      first_name: t.string(),
      last_name: t.string(),
      email: t.string(),
      phone_number: t.string(),
      address: Type.Record(t.string(), t.string()),
      created_at: t.instant('When the partner sent it.'),
      erase_after: t.instant('When it is erased automatically.'),
    }),
  ),
  saved_methods: t.count('Accounts for which a payment processor keeps methods that they saved.'),
  payments: Type.Array(PaymentView),
});
export type Person = Static<typeof Person>;

export const PersonErasure = Type.Object({
  customers: t.count('Records whose personal data was erased.'),
  kept_for_payments: t.count(
    'Records kept because a payment has not ended; ask again when it has.',
  ),
  saved_methods: t.count('Accounts for which the payment processor deletes what they saved.'),
});
export type PersonErasure = Static<typeof PersonErasure>;

// Differences ----------------------------------------------------------------------------------------------------------------

/** A difference, stored until an operator has resolved it. */
export const OpenDifference = Type.Object({
  difference_id: t.string(),
  platform_batch_id: t.PlatformBatchId,
  partner_id: PartnerId,
  ...Difference.properties,
  amount_in_cents: t.nullable(Type.Union([t.AmountInCents, Type.Literal(0)])),
  found_at: t.instant('When a reconciliation first found it.'),
  seen_at: t.instant('When a reconciliation last found it.'),
  resolved_at: t.nullable(t.instant('When it was resolved, or no longer found.')),
  resolved_by: t.nullable(t.string(), 'Null for a partner’s people; so is the resolution.'),
  resolution: t.nullable(t.string()),
});
export type OpenDifference = Static<typeof OpenDifference>;

export const DifferenceQuery = t.strictObject({
  ...t.optional({
    state: t.oneOf(['open', 'resolved']),
    partner_id: PartnerId,
    platform_batch_id: t.PlatformBatchId,
    kind: Difference.properties.kind,
  }),
  ...t.paging,
});
export type DifferenceQuery = Static<typeof DifferenceQuery>;

export const DifferencePage = t.page('differences', OpenDifference);
export type DifferencePage = Static<typeof DifferencePage>;

// Overview -------------------------------------------------------------------------------------------------------------------

/** Payments and differences that need a person, and the state of each partner, in one request. */
export const Overview = Type.Object({
  in_flight: t.count(),
  oldest_in_flight_at: t.nullable(
    t.instant('When the oldest payment that has not ended was made.'),
  ),
  overdue: t.count(),
  reviews: Type.Array(
    Type.Object({
      reason: t.string(),
      count: t.oneOrMore(),
      oldest_at: t.instant('Since when the oldest waits.'),
    }),
  ),
  unsettled: t.count(),
  paused: t.count('Payments that an operator paused (decision 61).'),
  oldest_paused_at: t.nullable(t.instant('Since when the longest of them has been paused.')),
  cases: Type.Array(
    Type.Object({
      reason_code: t.string(),
      count: t.oneOrMore(),
      amount_in_cents: t.whole('Disputed, or gone and not made up for.'),
      deadline: t.nullable(t.instant('The first by which a processor wants an answer.')),
    }),
    { description: 'Cases that have not ended, by reason.' },
  ),
  open_differences: t.count(),
  partners_held: Type.Array(Type.Object({ partner_id: PartnerId, reason: t.string() })),
  clients_ending: Type.Array(
    Type.Object({
      partner_id: PartnerId,
      client_id: t.string(),
      ends_at: t.instant('When its last API key expires or expired.'),
    }),
    {
      description:
        'Clients whose last API key expires within 14 days or has expired, at most 50 (decision 38).',
    },
  ),
  operators_ending: Type.Array(
    Type.Object({
      operator_id: OperatorId,
      ends_at: t.instant('When their last key expires or expired.'),
    }),
    {
      description:
        'Operators whose last key expires within 14 days, or expired in the last 14 (decision 38).',
    },
  ),
});
export type Overview = Static<typeof Overview>;

/** Outcomes and times to a terminal status per equal time interval; for the charts. */
export const Figures = Type.Object({
  step_seconds: t.oneOrMore(),
  points: Type.Array(
    Type.Object({
      at: t.instant('Where the step begins.'),
      succeeded: t.count(),
      failed: t.count(),
      canceled: t.count(),
      processing: t.count(),
      samples: t.count('Payments that the times are computed from.'),
      p50_ms: t.nullable(Type.Number()),
      p95_ms: t.nullable(Type.Number()),
      p99_ms: t.nullable(Type.Number()),
    }),
  ),
});
export type Figures = Static<typeof Figures>;

export const FigureQuery = t.partial({
  range: t.oneOf(['24h', '7d'], '`24h` unless named.'),
  partner_id: PartnerId,
});
export type FigureQuery = Static<typeof FigureQuery>;

/** What the partner says of a payment now. Nothing was changed by asking. */
export const PartnerAnswer = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  answer: t.string('A status, not_found, or why the answer is inconclusive.'),
  http_status: t.nullable(Type.Integer()),
});
export type PartnerAnswer = Static<typeof PartnerAnswer>;
