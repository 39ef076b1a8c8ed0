/**
 * The admin operations on the platform's money: its book, and what is remitted to billers. Part of the admin API (admin-routes.ts).
 *
 * A table: schemas first, then one entry per operation.
 */
import { Type, type Static } from 'typebox';
import { PartnerId } from './admin.ts';
import {
  AmountInCents,
  BillerId,
  instant,
  nullable,
  PlatformBatchId,
  PlatformPaymentId,
  strictObject,
  text,
} from './fields.ts';
import { Mode, MODES } from './mode.ts';

const cents = (description: string) => Type.Integer({ description });

/** The balances of one biller, in cents. The first four say where money came from, the others where it is; both sums are equal. */
export const MoneyBalances = Type.Object({
  mode: Mode,
  partner_id: PartnerId,
  biller_id: BillerId,
  taken: cents('Taken from customers through a processor.'),
  elsewhere: cents('Collected by the platform outside the book.'),
  uncollected: cents('Posted by the biller, and not or no longer collected from the customer.'),
  borne: cents('Lost, and borne by the platform.'),
  under_way: cents('Taken for payments that have not ended.'),
  owed: cents('Owed to the biller; below zero when it has received too much.'),
  remitting: cents('On its way to the biller.'),
  paid: cents('Paid to the biller.'),
  refunding: cents('On its way back to customers.'),
  refunded: cents('Refunded to customers.'),
  returned: cents('Taken back by customers’ banks.'),
  disputed: cents('Held by a processor while a dispute is open.'),
});
export type MoneyBalances = Static<typeof MoneyBalances>;

/** The book compared with the payments that caused it. */
export const MoneyCheck = Type.Object({
  days: Type.Integer({ description: 'Payments of so many days were compared.' }),
  holds: Type.Boolean({ description: 'Every cent is where it should be.' }),
  faults: Type.Array(Type.String({ description: 'What is wrong, in a sentence.' })),
  balances: Type.Array(MoneyBalances),
});
export type MoneyCheck = Static<typeof MoneyCheck>;

const day = Type.String({ format: 'date' });

// Remittances -------------------------------------------------------------------------------------------------------------

/** How money reaches a biller: in a file that the platform's bank takes, or by hand. */
export const PAYOUT_WAYS = ['pain001', 'nacha', 'by_hand'] as const;
const Way = Type.Enum([...PAYOUT_WAYS], {
  description: 'pain001 or nacha: in a file for the bank; by_hand: by two persons.',
});
const RemittanceId = Type.String({ maxLength: 64 });

export const Payout = strictObject({
  biller_id: Type.Optional(BillerId),
  way: Way,
  holder_name: text('Whose account it is.', 140),
  routing_number: Type.String({ pattern: '^[0-9]{9}$' }),
  account_number: Type.String({ pattern: '^[0-9]{4,17}$' }),
  minimum_in_cents: Type.Optional(AmountInCents),
  held: Type.Optional(Type.Boolean({ description: 'True: nothing is transferred.' })),
  bears_refunds: Type.Optional(
    Type.Boolean({
      description: 'False: refunds are not taken off its remittances; the platform bears them.',
    }),
  ),
});
export type Payout = Static<typeof Payout>;

export const PayoutView = Type.Object({
  partner_id: PartnerId,
  biller_id: BillerId,
  way: Way,
  holder_name: Type.String(),
  account: Type.String({ description: 'The last four digits.' }),
  minimum_in_cents: Type.Integer(),
  held: Type.Boolean(),
  bears_refunds: Type.Boolean(),
});
export type PayoutView = Static<typeof PayoutView>;

export const REMITTANCE_STATES = ['due', 'carried', 'sending', 'sent', 'paid', 'returned'] as const;

/** What a biller is owed for one batch, and its transfer. */
export const RemittanceView = Type.Object({
  remittance_id: RemittanceId,
  platform_batch_id: PlatformBatchId,
  partner_id: PartnerId,
  biller_id: BillerId,
  payments: Type.Integer(),
  gross_in_cents: cents('The payments of the batch that succeeded.'),
  deducted_in_cents: cents('Refunds and returns that the biller bears.'),
  carried_in_cents: cents('From earlier remittances that were not transferred.'),
  net_in_cents: cents('What is transferred.'),
  sha256: Type.String({ description: 'The digest of the batch’s statement.' }),
  due_on: Type.String({ format: 'date' }),
  state: Type.Enum([...REMITTANCE_STATES]),
  held: Type.Boolean({
    description: 'Its biller is held back: nobody is to transfer it, by hand neither.',
  }),
  carried_to: nullable(RemittanceId),
  file_id: nullable(Type.String({ description: 'The file of the bank that it is in.' })),
  reference: nullable(Type.String({ description: 'The bank’s.' })),
  reason: nullable(Type.String({ description: 'Why it came back.' })),
  made_at: instant('When it was made.'),
  sent_at: nullable(instant('When it was sent.')),
  ended_at: nullable(instant('When it was paid or came back.')),
});
export type RemittanceView = Static<typeof RemittanceView>;

export const BankFileOrder = strictObject({
  way: Type.Enum(['pain001', 'nacha']),
  mode: Type.Optional(
    Type.Enum([...MODES], {
      description:
        'Whose transfers it holds (default live): those of test registrations are never in a file with others.',
    }),
  ),
});
export type BankFileOrder = Static<typeof BankFileOrder>;

export const BankFileView = Type.Object({
  file_id: Type.String(),
  way: Type.String(),
  made_at: instant('When it was made.'),
  made_by: Type.String(),
  transfers: Type.Integer(),
  amount_in_cents: cents('The sum of its transfers.'),
  sha256: Type.String({ description: 'Of its content.' }),
  content: Type.String(),
});
export type BankFileView = Static<typeof BankFileView>;

export const TransferEnd = strictObject({
  outcome: Type.Enum(['paid', 'returned']),
  reference: text('The bank’s reference, or its reason.', 200),
});
export type TransferEnd = Static<typeof TransferEnd>;

// Refunds ------------------------------------------------------------------------------------------------------------------

export const REFUND_REASONS = [
  'wrong_account',
  'charged_twice',
  'amount_differs',
  'not_authorized',
  'goodwill',
  'other',
] as const;
export const REFUND_STATES = ['asked', 'sending', 'done', 'refused'] as const;

export const RefundRequest = strictObject({
  amount_in_cents: Type.Optional(AmountInCents),
  reason_code: Type.Enum([...REFUND_REASONS]),
  reason: text('Kept in the audit.'),
  refund_id: Type.Optional(PlatformBatchId),
});
export type RefundRequest = Static<typeof RefundRequest>;

export const RefundView = Type.Object({
  refund_id: Type.String(),
  platform_payment_id: PlatformPaymentId,
  partner_id: PartnerId,
  biller_id: BillerId,
  funding_method: Type.String(),
  amount_in_cents: Type.Integer(),
  reason_code: Type.Enum([...REFUND_REASONS]),
  reason: Type.String(),
  borne_by: Type.Enum(['biller', 'platform']),
  state: Type.Enum([...REFUND_STATES], {
    description: 'asked: a second person has to approve it; sending: the processor may have it.',
  }),
  asked_by: Type.String(),
  approved_by: nullable(Type.String()),
  note: nullable(Type.String({ description: 'The processor’s words when it refused.' })),
  made_at: instant('When it was asked for.'),
  ended_at: nullable(instant('When it ended.')),
});
export type RefundView = Static<typeof RefundView>;

// Cases --------------------------------------------------------------------------------------------------------------------

/** What somebody complains about. */
export const COMPLAINTS = [
  'wrong_account',
  'still_due',
  'charged_twice',
  'amount_differs',
  'not_authorized',
  'other',
] as const;
/** What a case is about: what processors report, and complaints. */
export const CASE_REASONS = [
  'disputed',
  'debit_returned',
  'uncollected',
  'refunded_elsewhere',
  ...COMPLAINTS,
] as const;
export const CASE_STATES = ['open', 'lost', 'ended'] as const;
const CASE_DISPOSITIONS = [
  'answered',
  'won',
  'recovered',
  'charged_to_biller',
  'written_off',
] as const;
/** What an operator may say of a case. A dispute that is `lost` has not ended: somebody has to make up for its money. */
export const CASE_ENDS = [...CASE_DISPOSITIONS, 'lost'] as const;

/** What a processor or a person reports about a payment, until it has ended. */
export const CaseView = Type.Object({
  case_id: Type.String(),
  platform_payment_id: PlatformPaymentId,
  partner_id: PartnerId,
  biller_id: BillerId,
  reason_code: Type.Enum([...CASE_REASONS]),
  amount_in_cents: cents(
    'The money that the case moves, or that went back before its payment was posted; 0 for a complaint.',
  ),
  state: Type.Enum([...CASE_STATES], {
    description: 'open: undecided; lost: the money is gone, and nobody has made up for it.',
  }),
  disposition: nullable(Type.Enum([...CASE_DISPOSITIONS])),
  deadline: nullable(instant('By when the processor wants an answer.')),
  note: Type.String(),
  opened_by: Type.String(),
  opened_at: instant('When it was opened.'),
  asked_by: nullable(Type.String({ description: 'Who wants to end it, and waits for a second.' })),
  ended_by: nullable(Type.String()),
  ended_at: nullable(instant('When it ended.')),
  outcome: nullable(Type.String({ description: 'What came of it, in words.' })),
});
export type CaseView = Static<typeof CaseView>;

export const CaseQuery = strictObject({
  platform_payment_id: Type.Optional(PlatformPaymentId),
  reason_code: Type.Optional(Type.Enum([...CASE_REASONS])),
  state: Type.Optional(
    Type.Enum([...CASE_STATES, 'all'], { description: 'Default: those that have not ended.' }),
  ),
});
export type CaseQuery = Static<typeof CaseQuery>;

export const CaseEnd = strictObject({
  disposition: Type.Enum([...CASE_ENDS]),
  reason: text('Kept in the audit.'),
});
export type CaseEnd = Static<typeof CaseEnd>;

export const CaseEnded = Type.Object({
  outcome: Type.Enum(['ended', 'second_person_needed']),
  case: CaseView,
});
export type CaseEnded = Static<typeof CaseEnded>;

/** What waits, and why. */
export const RemittanceRound = Type.Object({
  waiting: Type.Array(Type.Object({ what: Type.String(), why: Type.String() })),
});
export type RemittanceRound = Static<typeof RemittanceRound>;

/** In the form of admin-routes.ts, of whose table they are a part. */
export const moneyOperations = {
  get_money: {
    call: 'GET /money',
    summary: 'Read the balances of the book, by biller: since it began, or of one day',
    source: 'decision 19',
    query: strictObject({ day: Type.Optional(day) }),
    reply: Type.Object({ balances: Type.Array(MoneyBalances) }),
  },
  check_money: {
    call: 'GET /money/check',
    summary: 'Compare the book with the payments of the last days',
    source: 'decision 19',
    query: strictObject({ days: Type.Optional(Type.String({ pattern: '^[0-9]{1,12}$' })) }),
    reply: MoneyCheck,
  },
  set_payout: {
    call: 'POST /partners/{partner_id}/payout',
    summary: 'Set how a biller is paid',
    source: 'decision 19',
    role: 'admin',
    body: Payout,
    reply: PayoutView,
  },
  list_payouts: {
    call: 'GET /partners/{partner_id}/payout',
    summary: 'How the billers of a partner are paid',
    source: 'decision 19',
    tiedBy: 'partner_id',
    reply: Type.Object({ payouts: Type.Array(PayoutView) }),
  },
  list_remittances: {
    call: 'GET /money/remittances',
    summary: 'List remittances, newest first, at most 100',
    source: 'decision 26',
    tiedBy: 'partner_id',
    query: strictObject({
      partner_id: Type.Optional(PartnerId),
      state: Type.Optional(Type.Enum([...REMITTANCE_STATES])),
    }),
    reply: Type.Object({ remittances: Type.Array(RemittanceView) }),
  },
  remit_now: {
    call: 'POST /money/remittances',
    summary: 'Make and send the remittances that are due, without waiting for the hourly round',
    source: 'decision 26',
    role: 'operator',
    reply: RemittanceRound,
  },
  pay_out: {
    call: 'POST /partners/{partner_id}/payout/rest',
    summary: 'Make a last remittance of what a biller is still owed, without waiting for a batch',
    source: 'decision 26',
    role: 'admin',
    body: strictObject({ biller_id: Type.Optional(BillerId), reason: text('Kept in the audit.') }),
    reply: RemittanceView,
    errors: ['CONFLICT'],
  },
  get_remittance_statement: {
    call: 'GET /money/remittances/{remittance_id}/statement',
    summary: 'The statement of a remittance for its biller, as CSV or in the form of camt.054',
    source: 'decision 26',
    tiedBy: 'remittance_id',
    query: strictObject({ format: Type.Optional(Type.Enum(['csv', 'camt054'])) }),
    replyType: 'text/csv',
    reply: Type.String(),
  },
  end_transfer: {
    call: 'POST /money/remittances/{remittance_id}/end',
    summary: 'State what became of a transfer, or of all transfers of a file',
    source: 'decision 38',
    role: 'operator',
    body: TransferEnd,
    reply: Type.Object({
      outcome: Type.Enum(['done', 'second_person_needed']),
      transfers: Type.Integer(),
    }),
    errors: ['CONFLICT'],
  },
  make_bank_file: {
    call: 'POST /money/files',
    summary: 'Put the transfers that wait into a file for the bank',
    source: 'decision 38',
    role: 'admin',
    body: BankFileOrder,
    reply: BankFileView,
    errors: ['CONFLICT'],
  },
  get_bank_file: {
    call: 'GET /money/files/{file_id}',
    summary: 'Read a file for the bank again, as it was made',
    source: 'decision 38',
    role: 'admin',
    reply: BankFileView,
  },
  refund_payment: {
    call: 'POST /payments/{platform_payment_id}/refund',
    summary: 'Refund a captured payment, in full or in part',
    source: 'decisions 19 and 38',
    role: 'operator',
    body: RefundRequest,
    reply: RefundView,
    errors: ['CONFLICT'],
  },
  list_refunds: {
    call: 'GET /money/refunds',
    summary: 'List refunds, newest first, at most 100',
    source: 'decision 38',
    query: strictObject({
      platform_payment_id: Type.Optional(PlatformPaymentId),
      state: Type.Optional(Type.Enum([...REFUND_STATES])),
    }),
    reply: Type.Object({ refunds: Type.Array(RefundView) }),
  },
  decide_refund: {
    call: 'POST /money/refunds/{refund_id}/decide',
    summary: 'Approve a refund that waits for a second person, or withdraw it',
    source: 'decision 38',
    role: 'operator',
    body: strictObject({ decision: Type.Enum(['approve', 'withdraw']) }),
    reply: RefundView,
    errors: ['CONFLICT'],
  },
  list_cases: {
    call: 'GET /money/cases',
    summary: 'List cases, the most urgent first, at most 200',
    source: 'decision 38',
    query: CaseQuery,
    reply: Type.Object({ cases: Type.Array(CaseView) }),
  },
  open_case: {
    call: 'POST /payments/{platform_payment_id}/cases',
    summary: 'Open a case about a payment: a complaint of its customer or its biller',
    source: 'decision 38',
    role: 'operator',
    body: strictObject({
      reason_code: Type.Optional(Type.Enum([...COMPLAINTS], { description: 'Default: other.' })),
      reason: text('What it is about; kept in the audit.'),
    }),
    reply: CaseView,
  },
  end_case: {
    call: 'POST /money/cases/{case_id}/end',
    summary: 'End a case, by a second person as well when its money is above the limit',
    source: 'decision 38',
    role: 'operator',
    body: CaseEnd,
    reply: CaseEnded,
    errors: ['CONFLICT'],
  },
} as const;
