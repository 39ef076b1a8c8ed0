/**
 * The admin API, second half: operators and their roles (decision 38), the attempts of a payment, searches, reviews, people,
 * differences, and the overview. Strict like admin.ts: an unknown field is a typing error.
 *
 * A table: one schema per resource.
 */
import { Type, type Static } from 'typebox';
import { AuditEntry, ListedPayment, PartnerId, PaymentView } from './admin.ts';
import {
  AccountId,
  AmountInCents,
  BillerId,
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
import { PAYMENT_STATUSES } from './status.ts';

// Operators ------------------------------------------------------------------------------------------------------------------

/** Roles in ascending order: read; act on payments and batches; change partners, keys and operators. */
export const OPERATOR_ROLES = ['viewer', 'operator', 'admin'] as const;
export type OperatorRole = (typeof OPERATOR_ROLES)[number];
/** Beside them the operators of one partner, who see what is that partner's and act on nothing. */
export type AnyRole = OperatorRole | 'partner';

/** True when `role` includes the rights of `needed`; the role `partner` includes none. */
export function roleCovers(role: AnyRole, needed: OperatorRole): boolean {
  return role !== 'partner' && OPERATOR_ROLES.indexOf(role) >= OPERATOR_ROLES.indexOf(needed);
}

/** Ids of operators: short, and readable in an audit. */
export const OperatorId = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
const Role = Type.Enum([...OPERATOR_ROLES, 'partner'], {
  description: 'partner: sees what is of its partner_id, and nothing else.',
});
const oidcSubject = Type.String({
  minLength: 1,
  maxLength: 256,
  description: 'The `sub` of the OpenID Connect identity that signs in as this operator.',
});

export const OperatorRegistration = strictObject({
  operator_id: OperatorId,
  name: text('Shown in the console.'),
  role: Role,
  partner_id: Type.Optional(PartnerId),
  oidc_subject: Type.Optional(oidcSubject),
});
export type OperatorRegistration = Static<typeof OperatorRegistration>;

export const OperatorChange = strictObject({
  name: Type.Optional(text('Shown in the console.')),
  role: Type.Optional(Type.Enum([...OPERATOR_ROLES])),
  oidc_subject: Type.Optional(nullable(oidcSubject)),
  disabled: Type.Optional(
    Type.Boolean({ description: 'True: no key and no session of this operator is accepted.' }),
  ),
});
export type OperatorChange = Static<typeof OperatorChange>;

export const OperatorKeyView = Type.Object({
  key_id: Type.String(),
  created_at: instant('When it was issued.'),
  last_used_at: nullable(instant('When it was last accepted, to within a minute.')),
  expires_at: nullable(instant('When it expires; null: never.')),
  revoked_at: nullable(instant('When it was revoked.')),
});

export const OperatorView = Type.Object({
  operator_id: OperatorId,
  name: Type.String(),
  role: Role,
  partner_id: nullable(PartnerId),
  oidc_subject: nullable(Type.String()),
  created_at: instant('When the operator was added.'),
  disabled_at: nullable(instant('When the operator was disabled.')),
  keys: Type.Array(OperatorKeyView),
});
export type OperatorView = Static<typeof OperatorView>;

export const OperatorKeyRequest = strictObject({
  valid_for_days: validForDays('The key'),
});
export type OperatorKeyRequest = Static<typeof OperatorKeyRequest>;

/** A new operator key, shown only this once. */
export const OperatorKeyGrant = Type.Object({
  operator_id: OperatorId,
  key_id: Type.String(),
  operator_key: Type.String(),
  expires_at: nullable(instant('When it expires; null: never.')),
});
export type OperatorKeyGrant = Static<typeof OperatorKeyGrant>;

/** The operator who makes the request. */
export const OperatorSelf = Type.Object({
  operator_id: Type.String({ description: 'As the audit names it.' }),
  name: Type.String(),
  role: Role,
  partner_id: Type.Optional(PartnerId),
  csrf: Type.Optional(
    Type.String({ description: 'Console sessions only: goes into X-CSRF-Token of every change.' }),
  ),
});
export type OperatorSelf = Static<typeof OperatorSelf>;

// Attempts -------------------------------------------------------------------------------------------------------------------

/** One call for a payment, or a series of polls with the same answer. */
export const Attempt = Type.Object({
  kind: Type.Enum(['put', 'get']),
  at: instant('When it was sent; the first of a run of equal attempts.'),
  last_at: instant('When the last of the run was sent.'),
  count: Type.Integer({ minimum: 1 }),
  took_ms: count('The last of a run.'),
  http_status: nullable(Type.Integer()),
  result: Type.String({
    description: 'The status that the partner gave, its error code, or why there is no answer.',
  }),
  request_id: Type.String({ description: 'The X-Request-Id sent to the partner.' }),
  body: nullable(
    Type.String({
      description:
        'The partner’s answer when it was not the expected record: truncated, without secrets, account ids and contact data.',
    }),
  ),
});
export type Attempt = Static<typeof Attempt>;

/** A review that one operator asked to close and a second one must confirm (decision 38). */
export const PendingClose = Type.Object({
  requested_by: Type.String(),
  requested_at: instant('When it was asked for.'),
  reason: Type.String(),
  asked: Type.String({ description: 'What a second person confirms by asking for the same.' }),
});
export type PendingClose = Static<typeof PendingClose>;

/** Everything an operator needs to explain one payment. */
export const PaymentDetail = Type.Object({
  payment: ListedPayment,
  attempts: Type.Array(Attempt),
  audit: Type.Array(AuditEntry),
  pending_close: nullable(PendingClose),
  partner_held: nullable(
    Type.String({
      description: 'Why calls to its partner are held back now, while it has not ended.',
    }),
  ),
});
export type PaymentDetail = Static<typeof PaymentDetail>;

const reason = text('Why; kept in the audit.');
const evidence = text('Where it is written that it is so, such as a ticket of the partner.');

/** What an operator states of a payment that the engine cannot end by itself, and where that is written. */
export const CloseByWord = Type.Union([
  strictObject({
    outcome: Type.Literal('failed'),
    evidence,
    failure_reason: Type.Optional(text('For the customer.', 500)),
  }),
  strictObject({ outcome: Type.Literal('canceled'), evidence }),
  strictObject({
    outcome: Type.Literal('succeeded'),
    evidence,
    payment_id: text('The partner’s id of the payment, unless it has told one.'),
    posted_at: instant('When the partner posted it.'),
  }),
]);
export type CloseByWord = Static<typeof CloseByWord>;

/** A request to close a payment; without a word, one that its partner refused and does not have. */
export const CloseReview = strictObject({ reason, word: Type.Optional(CloseByWord) });
export type CloseReview = Static<typeof CloseReview>;

/** What an operator states of the funds of a payment that has ended. */
export const SettleFunds = strictObject({
  outcome: Type.Enum(['captured', 'borne', 'released', 'refunded'], {
    description:
      'Of one that succeeded: captured, or borne by the platform. Of any other: released, or refunded.',
  }),
  reason,
  evidence,
});
export type SettleFunds = Static<typeof SettleFunds>;

/** Result of a request to close a payment or to settle its funds: done, or waiting for a second operator. */
export const ReviewClose = Type.Object({
  outcome: Type.Enum(['closed', 'second_person_needed']),
  payment: PaymentView,
});
export type ReviewClose = Static<typeof ReviewClose>;

/** The full account id of a payment, for an operator who gave a reason. */
export const UnmaskedAccount = Type.Object({
  platform_payment_id: PlatformPaymentId,
  biller_id: BillerId,
  account_id: AccountId,
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
        'Any exact id: the payment’s here, at the partner or at the payment processor, its batch’s or its session’s.',
    }),
  ),
  status: Type.Optional(Type.Enum([...FILTER_STATUSES])),
  partner_id: Type.Optional(PartnerId),
  amount_in_cents: Type.Optional(
    Type.String({ pattern: '^[1-9][0-9]{0,10}$', description: 'Exactly this amount.' }),
  ),
  from: day('Confirmed at or after this instant.'),
  to: day('Confirmed before this instant.'),
};

/** Orders of a list of payments. */
export const PAYMENT_SORTS = ['newest', 'oldest'] as const;
export type PaymentSort = (typeof PAYMENT_SORTS)[number];
const sort = Type.Optional(Type.Enum([...PAYMENT_SORTS], { description: 'Default: `newest`.' }));

export const PaymentQuery = strictObject({
  ...PaymentFilterFields,
  sort,
  ...paging,
});
export type PaymentQuery = Static<typeof PaymentQuery>;

/** The same, with criteria that must not appear in a URL: an account id or an e-mail address. */
export const PaymentSearch = strictObject({
  ...PaymentFilterFields,
  account_id: Type.Optional(AccountId),
  email: Type.Optional(Type.String({ minLength: 3, maxLength: 256 })),
  sort,
  ...paging,
});
export type PaymentSearch = Static<typeof PaymentSearch>;

export const ExportQuery = strictObject({
  ...PaymentFilterFields,
  format: Type.Optional(Type.Enum(['csv', 'jsonl'], { description: 'Default: `csv`.' })),
  unmasked: Type.Optional(
    Type.Literal('true', { description: 'Whole account ids; needs the role admin.' }),
  ),
});
export type ExportQuery = Static<typeof ExportQuery>;

// Partners -------------------------------------------------------------------------------------------------------------------

/** Result of testing a partner's address and credentials. Nothing is changed at the partner. */
export const PartnerTest = Type.Object({
  partner_id: PartnerId,
  reachable: Type.Boolean(),
  authorized: nullable(Type.Boolean()),
  took_ms: count(),
  finding: Type.String({ description: 'One sentence: what was found, and what to do.' }),
});
export type PartnerTest = Static<typeof PartnerTest>;

/** A domain whose pages may show the buttons of wallets. */
export const WalletDomain = Type.Object({
  adapter: Type.String({ description: 'The payment processor.' }),
  domain: Type.String(),
  problem: nullable(
    Type.String({ description: 'Why no wallet is shown there, in the processor’s words.' }),
  ),
});
export type WalletDomain = Static<typeof WalletDomain>;

/** How a partner's endpoint does, from the calls for its latest payments, at most 500. */
export const PartnerHealth = Type.Object({
  payments: Type.Integer({ minimum: 0, description: 'How many were looked at.' }),
  since: nullable(instant('When the oldest of them was made.')),
  calls: Type.Integer({ minimum: 0 }),
  summary: Type.Array(Type.String(), { description: 'In sentences.' }),
  troubles: Type.Array(
    Type.Object({
      what: Type.String({ description: 'How it was answered, in a sentence.' }),
      count: Type.Integer({ minimum: 1 }),
      platform_payment_id: PlatformPaymentId,
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
  client_id: Type.String(),
  status: Type.Integer(),
  code: Type.String({ description: 'Empty for a 200.' }),
  cause: Type.String({ description: 'Why it was refused, in a sentence.' }),
  count: Type.Integer({ minimum: 1 }),
  hour: instant('The hour in which they were answered.'),
  last_at: instant('When the last of them was answered.'),
  request_id: Type.String({ description: 'The X-Request-Id of the last.' }),
});
export type PartnerCallAnswer = Static<typeof PartnerCallAnswer>;

/** Tokens and sessions of one client that were ended. */
export const RevokedAccess = Type.Object({
  client_id: Type.String(),
  tokens: count(),
  sessions: count(),
});
export type RevokedAccess = Static<typeof RevokedAccess>;

// Audit ----------------------------------------------------------------------------------------------------------------------

export const AuditQuery = strictObject({
  actor: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
  event: Type.Optional(Type.String({ pattern: '^[a-z_]{1,64}$' })),
  partner_id: Type.Optional(PartnerId),
  platform_payment_id: Type.Optional(PlatformPaymentId),
  from: day('At or after this instant.'),
  to: day('Before this instant.'),
  ...paging,
});
export type AuditQuery = Static<typeof AuditQuery>;

export const AuditPage = Type.Object({
  entries: Type.Array(AuditEntry),
  next_cursor: nullable(Type.String()),
});
export type AuditPage = Static<typeof AuditPage>;

/** Which seals of the audit to compare with its lines (decision 135). */
export const AuditVerificationQuery = strictObject({
  after: Type.Optional(
    Type.String({ pattern: '^[0-9]{1,12}$', description: 'Number of a seal; 0 is the start.' }),
  ),
  limit: Type.Optional(
    Type.String({
      pattern: '^([1-9]|[1-4][0-9]|50)$',
      description:
        'Maximum number of seals; default 50. Fewer are compared when they take more than two seconds.',
    }),
  ),
});
export type AuditVerificationQuery = Static<typeof AuditVerificationQuery>;

/** What the comparison found. */
export const AuditVerification = Type.Object({
  seals: count('Seals that were compared and hold.'),
  lines: count('Lines under them.'),
  through: nullable(
    Type.Object(
      {
        seal_no: Type.Integer({ minimum: 1 }),
        seal: Type.String({ pattern: '^[0-9a-f]{64}$' }),
        to: Type.String(),
      },
      { description: 'The last seal that holds: compare it with one noted elsewhere.' },
    ),
  ),
  next: nullable(Type.Integer({ minimum: 1, description: 'Continue after this seal.' })),
  newest: count('Number of the newest seal; 0 without one.'),
  broken: nullable(
    Type.Object({
      seal_no: Type.Integer({ minimum: 1 }),
      what: Type.Enum(['altered', 'removed', 'inserted', 'seal_missing', 'seal_altered']),
      at: nullable(Type.String()),
      audit_id: nullable(Type.String()),
    }),
  ),
  unsealed: count(
    'Lines that are not sealed yet, usually those of the last minute. The count ends at 10,000.',
  ),
});
export type AuditVerification = Static<typeof AuditVerification>;

// People ---------------------------------------------------------------------------------------------------------------------

export const PersonRequest = strictObject({
  email: Type.String({ minLength: 3, maxLength: 256 }),
  reason: text('Why; kept in the audit.'),
});
export type PersonRequest = Static<typeof PersonRequest>;

/** The data stored about a person who was found by e-mail address. */
export const Person = Type.Object({
  records: Type.Array(
    Type.Object({
      partner_id: PartnerId,
      first_name: Type.String(),
      last_name: Type.String(),
      email: Type.String(),
      phone_number: Type.String(),
      address: Type.Record(Type.String(), Type.String()),
      created_at: instant('When the partner sent it.'),
      erase_after: instant('When it is erased automatically.'),
    }),
  ),
  saved_methods: count('Accounts for which a payment processor keeps methods that they saved.'),
  payments: Type.Array(PaymentView),
});
export type Person = Static<typeof Person>;

export const PersonErasure = Type.Object({
  customers: count('Records whose personal data was erased.'),
  kept_for_payments: count('Records kept because a payment has not ended; ask again when it has.'),
  saved_methods: count('Accounts for which the payment processor deletes what they saved.'),
});
export type PersonErasure = Static<typeof PersonErasure>;

// Differences ----------------------------------------------------------------------------------------------------------------

export const DIFFERENCE_KINDS = [
  'missing_here',
  'missing_there',
  'amount',
  'status',
  'time',
] as const;

/** A difference, stored until an operator has resolved it. */
export const OpenDifference = Type.Object({
  difference_id: Type.String(),
  platform_batch_id: PlatformBatchId,
  partner_id: PartnerId,
  platform_payment_id: PlatformPaymentId,
  kind: Type.Enum([...DIFFERENCE_KINDS]),
  here: nullable(Type.String()),
  there: nullable(Type.String()),
  amount_in_cents: nullable(Type.Union([AmountInCents, Type.Literal(0)])),
  found_at: instant('When a reconciliation first found it.'),
  seen_at: instant('When a reconciliation last found it.'),
  resolved_at: nullable(instant('When it was resolved, or no longer found.')),
  resolved_by: nullable(Type.String(), 'Null for a partner’s people; so is the resolution.'),
  resolution: nullable(Type.String()),
});
export type OpenDifference = Static<typeof OpenDifference>;

/** The ages by which open differences are grouped: less than an hour, a day, three days, and older. */
export const DIFFERENCE_AGES = ['1h', '24h', '3d', 'older'] as const;
export type DifferenceAge = (typeof DIFFERENCE_AGES)[number];

/** What the open differences amount to (decision 26). */
export const DifferenceSummary = Type.Object({
  open: count(),
  value_at_risk_in_cents: count('Our amounts of the payments that differ, each payment once.'),
  unknown_values: count('Payments that only the partner has: their amounts are not known here.'),
  oldest_found_at: nullable(instant('When the oldest of them was first found.')),
  ages: Type.Array(
    Type.Object({
      age: Type.Enum([...DIFFERENCE_AGES]),
      open: count(),
      value_at_risk_in_cents: count(),
    }),
    { description: 'By the time since each was first found, the youngest first.' },
  ),
});
export type DifferenceSummary = Static<typeof DifferenceSummary>;

export const DifferenceSummaryQuery = strictObject({
  partner_id: Type.Optional(PartnerId),
  platform_batch_id: Type.Optional(PlatformBatchId),
});
export type DifferenceSummaryQuery = Static<typeof DifferenceSummaryQuery>;

export const DifferenceQuery = strictObject({
  state: Type.Optional(Type.Enum(['open', 'resolved'])),
  partner_id: Type.Optional(PartnerId),
  platform_batch_id: Type.Optional(PlatformBatchId),
  kind: Type.Optional(Type.Enum([...DIFFERENCE_KINDS])),
  age: Type.Optional(
    Type.Enum([...DIFFERENCE_AGES], { description: 'First found so long ago (decision 26).' }),
  ),
  ...paging,
});
export type DifferenceQuery = Static<typeof DifferenceQuery>;

export const DifferencePage = Type.Object({
  differences: Type.Array(OpenDifference),
  next_cursor: nullable(Type.String()),
});
export type DifferencePage = Static<typeof DifferencePage>;

// Overview -------------------------------------------------------------------------------------------------------------------

/** Payments and differences that need a person, and the state of each partner, in one request. */
export const Overview = Type.Object({
  in_flight: count(),
  oldest_in_flight_at: nullable(instant('When the oldest payment that has not ended was made.')),
  overdue: count(),
  reviews: Type.Array(
    Type.Object({
      reason: Type.String(),
      count: Type.Integer({ minimum: 1 }),
      oldest_at: instant('Since when the oldest waits.'),
    }),
  ),
  unsettled: count(),
  paused: count('Payments that an operator paused (decision 61).'),
  oldest_paused_at: nullable(instant('Since when the longest of them has been paused.')),
  cases: Type.Array(
    Type.Object({
      reason_code: Type.String(),
      count: Type.Integer({ minimum: 1 }),
      amount_in_cents: Type.Integer({ description: 'Disputed, or gone and not made up for.' }),
      deadline: nullable(instant('The first by which a processor wants an answer.')),
    }),
    { description: 'Cases that have not ended, by reason.' },
  ),
  open_differences: count(),
  partners_held: Type.Array(Type.Object({ partner_id: PartnerId, reason: Type.String() })),
  clients_ending: Type.Array(
    Type.Object({
      partner_id: PartnerId,
      client_id: Type.String(),
      ends_at: instant('When its last API key expires or expired.'),
    }),
    {
      description:
        'Clients whose last API key expires within 14 days or has expired, at most 50 (decision 38).',
    },
  ),
  operators_ending: Type.Array(
    Type.Object({
      operator_id: OperatorId,
      ends_at: instant('When their last key expires or expired.'),
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
  step_seconds: Type.Integer({ minimum: 1 }),
  points: Type.Array(
    Type.Object({
      at: instant('Where the step begins.'),
      succeeded: count(),
      failed: count(),
      canceled: count(),
      processing: count(),
      samples: count('Payments that the times are computed from.'),
      p50_ms: nullable(Type.Number()),
      p95_ms: nullable(Type.Number()),
      p99_ms: nullable(Type.Number()),
    }),
  ),
});
export type Figures = Static<typeof Figures>;

export const FigureQuery = strictObject({
  range: Type.Optional(Type.Enum(['1h', '24h', '7d'], { description: '`24h` unless named.' })),
  partner_id: Type.Optional(PartnerId),
});
export type FigureQuery = Static<typeof FigureQuery>;

/** What the partner says of a payment now. Nothing was changed by asking. */
export const PartnerAnswer = Type.Object({
  platform_payment_id: PlatformPaymentId,
  answer: Type.String({ description: 'A status, not_found, or why the answer is inconclusive.' }),
  http_status: nullable(Type.Integer()),
});
export type PartnerAnswer = Static<typeof PartnerAnswer>;
