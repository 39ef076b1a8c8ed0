/**
 * The admin operations on the platform's money: its book, and what is remitted to billers. Part of the admin API (admin-routes.ts).
 *
 * A table: schemas first, then one entry per operation.
 */
import { Type, type Static } from 'typebox';
import { PartnerId } from './admin.ts';
import * as t from './fields.ts';

/** The balances of one biller, in cents. The first four say where money came from, the others where it is; both sums are equal. */
export const MoneyBalances = Type.Object({
  mode: t.Mode,
  partner_id: PartnerId,
  biller_id: t.BillerId,
  taken: t.whole('Taken from customers through a processor.'),
  elsewhere: t.whole('Collected by the platform outside the book.'),
  uncollected: t.whole('Posted by the biller, and not or no longer collected from the customer.'),
  borne: t.whole('Lost, and borne by the platform.'),
  under_way: t.whole('Taken for payments that have not ended.'),
  owed: t.whole('Owed to the biller; below zero when it has received too much.'),
  remitting: t.whole('On its way to the biller.'),
  paid: t.whole('Paid to the biller.'),
  refunding: t.whole('On its way back to customers.'),
  refunded: t.whole('Refunded to customers.'),
  returned: t.whole('Taken back by customers’ banks.'),
  disputed: t.whole('Held by a processor while a dispute is open.'),
});
export type MoneyBalances = Static<typeof MoneyBalances>;

/** The book compared with the payments that caused it. */
export const MoneyCheck = Type.Object({
  days: t.whole('Payments of so many days were compared.'),
  holds: t.flag('Every cent is where it should be.'),
  faults: Type.Array(t.string('What is wrong, in a sentence.')),
  balances: Type.Array(MoneyBalances),
});
export type MoneyCheck = Static<typeof MoneyCheck>;

// Remittances -------------------------------------------------------------------------------------------------------------

/** How money reaches a biller: in a file that the platform's bank takes, by hand, or to its connected account at Stripe. */
const Way = t.oneOf(
  ['pain001', 'nacha', 'by_hand', 'stripe'],
  'pain001 or nacha: in a file for the bank; by_hand: by two persons; stripe: to its connected account at Stripe.',
);
const RemittanceId = Type.String({ maxLength: 64 });

export const Payout = t.strictObject({
  biller_id: Type.Optional(t.BillerId),
  way: Way,
  holder_name: t.text('Whose account it is.', 140),
  ...t.optional({
    routing_number: Type.String({ pattern: '^[0-9]{9}$' }),
    account_number: Type.String({ pattern: '^[0-9]{4,17}$' }),
    stripe_account: Type.String({ pattern: '^acct_[A-Za-z0-9]{1,60}$' }),
    minimum_in_cents: t.AmountInCents,
    held: t.flag('True: nothing is transferred.'),
    bears_refunds: t.flag(
      'False: refunds are not taken off its remittances; the platform bears them.',
    ),
  }),
});
export type Payout = Static<typeof Payout>;

export const PayoutView = Type.Object({
  partner_id: PartnerId,
  biller_id: t.BillerId,
  way: Way,
  holder_name: t.string(),
  account: t.string('The last four digits.'),
  minimum_in_cents: Type.Integer(),
  held: t.flag(),
  bears_refunds: t.flag(),
});
export type PayoutView = Static<typeof PayoutView>;

export const REMITTANCE_STATES = ['due', 'carried', 'sending', 'sent', 'paid', 'returned'] as const;

/** What a biller is owed for one batch, and its transfer. */
export const RemittanceView = Type.Object({
  remittance_id: RemittanceId,
  platform_batch_id: t.PlatformBatchId,
  partner_id: PartnerId,
  biller_id: t.BillerId,
  payments: Type.Integer(),
  gross_in_cents: t.whole('The payments of the batch that succeeded.'),
  deducted_in_cents: t.whole('Refunds and returns that the biller bears.'),
  carried_in_cents: t.whole('From earlier remittances that were not transferred.'),
  net_in_cents: t.whole('What is transferred.'),
  sha256: t.string('The digest of the batch’s statement.'),
  due_on: Type.String({ format: 'date' }),
  state: t.oneOf(REMITTANCE_STATES),
  held: t.flag('Its biller is held back: nobody is to transfer it, by hand neither.'),
  carried_to: t.nullable(RemittanceId),
  file_id: t.nullable(t.string('The file of the bank that it is in.')),
  reference: t.nullable(t.string('The bank’s.')),
  reason: t.nullable(t.string('Why it came back.')),
  made_at: t.instant('When it was made.'),
  sent_at: t.nullable(t.instant('When it was sent.')),
  ended_at: t.nullable(t.instant('When it was paid or came back.')),
});
export type RemittanceView = Static<typeof RemittanceView>;

export const BankFileOrder = t.strictObject({
  way: t.oneOf(['pain001', 'nacha']),
  mode: Type.Optional(
    t.oneOf(
      t.MODES,
      'Whose transfers it holds (default live): those of test registrations are never in a file with others.',
    ),
  ),
});
export type BankFileOrder = Static<typeof BankFileOrder>;

export const BankFileView = Type.Object({
  file_id: t.string(),
  way: t.string(),
  made_at: t.instant('When it was made.'),
  made_by: t.string(),
  transfers: Type.Integer(),
  amount_in_cents: t.whole('The sum of its transfers.'),
  sha256: t.string('Of its content.'),
  content: t.string(),
});
export type BankFileView = Static<typeof BankFileView>;

export const TransferEnd = t.strictObject({
  outcome: t.oneOf(['paid', 'returned']),
  reference: t.text('The bank’s reference, or its reason.', 200),
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
export const REFUND_STATES = ['sending', 'done', 'refused'] as const;

export const RefundRequest = t.strictObject({
  amount_in_cents: Type.Optional(t.AmountInCents),
  reason_code: t.oneOf(REFUND_REASONS),
  reason: t.text('Kept in the audit.'),
});
export type RefundRequest = Static<typeof RefundRequest>;

export const RefundView = Type.Object({
  refund_id: t.string(),
  platform_payment_id: t.PlatformPaymentId,
  partner_id: PartnerId,
  biller_id: t.BillerId,
  funding_method: t.string(),
  amount_in_cents: Type.Integer(),
  reason_code: t.oneOf(REFUND_REASONS),
  reason: t.string(),
  borne_by: t.oneOf(['biller', 'platform']),
  state: t.oneOf(REFUND_STATES, 'sending: the processor may have it.'),
  asked_by: t.string(),
  approved_by: t.nullable(t.string()),
  note: t.nullable(t.string('The processor’s words when it refused.')),
  made_at: t.instant('When it was asked for.'),
  ended_at: t.nullable(t.instant('When it ended.')),
});
export type RefundView = Static<typeof RefundView>;

/** What came of a refund; without one while it waits for a second person. */
export const RefundMade = Type.Object({
  outcome: t.ActOutcome,
  refund: Type.Optional(RefundView),
});
export type RefundMade = Static<typeof RefundMade>;

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

/** What a processor or a person reports about a payment, until it has ended. */
export const CaseView = Type.Object({
  case_id: t.string(),
  platform_payment_id: t.PlatformPaymentId,
  partner_id: PartnerId,
  biller_id: t.BillerId,
  reason_code: t.oneOf(CASE_REASONS),
  amount_in_cents: t.whole(
    'The money that the case moves, or that went back before its payment was posted; 0 for a complaint.',
  ),
  state: t.oneOf(
    CASE_STATES,
    'open: undecided; lost: the money is gone, and nobody has made up for it.',
  ),
  disposition: t.nullable(t.oneOf(CASE_DISPOSITIONS)),
  deadline: t.nullable(t.instant('By when the processor wants an answer.')),
  note: t.string(),
  opened_by: t.string(),
  opened_at: t.instant('When it was opened.'),
  ended_by: t.nullable(t.string()),
  ended_at: t.nullable(t.instant('When it ended.')),
  outcome: t.nullable(t.string('What came of it, in words.')),
});
export type CaseView = Static<typeof CaseView>;

export const CaseQuery = t.partial({
  platform_payment_id: t.PlatformPaymentId,
  reason_code: t.oneOf(CASE_REASONS),
  state: t.oneOf([...CASE_STATES, 'all'], 'Default: those that have not ended.'),
});
export type CaseQuery = Static<typeof CaseQuery>;

/** What an operator says of a case. A dispute that is `lost` has not ended: somebody has to make up for its money. */
export const CaseEnd = t.strictObject({
  disposition: t.oneOf([...CASE_DISPOSITIONS, 'lost']),
  reason: t.text('Kept in the audit.'),
});
export type CaseEnd = Static<typeof CaseEnd>;

export const CaseEnded = Type.Object({ outcome: t.ActOutcome, case: CaseView });
export type CaseEnded = Static<typeof CaseEnded>;

/** In the form of admin-routes.ts, of whose table they are a part. */
export const moneyOperations = {
  get_money: {
    call: 'GET /money',
    summary: 'Read the balances of the book, by biller: since it began, or of one day',
    query: t.partial({ day: Type.String({ format: 'date' }) }),
    reply: Type.Object({ balances: Type.Array(MoneyBalances) }),
  },
  check_money: {
    call: 'GET /money/check',
    summary: 'Compare the book with the payments of the last days',
    query: t.partial({ days: Type.String({ pattern: '^[0-9]{1,12}$' }) }),
    reply: MoneyCheck,
  },
  set_payout: {
    call: 'POST /partners/{partner_id}/payout',
    summary: 'Set how a biller is paid',
    role: 'admin',
    body: Payout,
    reply: PayoutView,
  },
  list_payouts: {
    call: 'GET /partners/{partner_id}/payout',
    summary: 'How the billers of a partner are paid',
    tiedBy: 'partner_id',
    reply: Type.Object({ payouts: Type.Array(PayoutView) }),
  },
  list_remittances: {
    call: 'GET /money/remittances',
    summary: 'List remittances, newest first',
    tiedBy: 'partner_id',
    query: t.strictObject({
      ...t.optional({ partner_id: PartnerId, state: t.oneOf(REMITTANCE_STATES) }),
      ...t.paging,
    }),
    reply: t.page('remittances', RemittanceView),
  },
  remit_now: {
    call: 'POST /money/remittances',
    summary: 'Make and send the remittances that are due, without waiting for the hourly round',
    reply: Type.Object({
      waiting: Type.Array(Type.Object({ what: t.string(), why: t.string() })),
    }),
  },
  pay_out: {
    call: 'POST /partners/{partner_id}/payout/rest',
    summary: 'Make a last remittance of what a biller is still owed, without waiting for a batch',
    role: 'admin',
    body: t.strictObject({
      biller_id: Type.Optional(t.BillerId),
      reason: t.text('Kept in the audit.'),
    }),
    reply: RemittanceView,
  },
  get_remittance_statement: {
    call: 'GET /money/remittances/{remittance_id}/statement',
    summary: 'The statement of a remittance for its biller, as CSV or in the form of camt.054',
    tiedBy: 'remittance_id',
    query: t.partial({ format: t.oneOf(['csv', 'camt054']) }),
    replyType: 'text/csv',
    reply: t.string(),
  },
  end_transfer: {
    call: 'POST /money/remittances/{remittance_id}/end',
    summary: 'State what became of a transfer, or of all transfers of a file',
    body: TransferEnd,
    reply: Type.Object({ outcome: t.ActOutcome, transfers: Type.Integer() }),
  },
  make_bank_file: {
    call: 'POST /money/files',
    summary: 'Put the transfers that wait into a file for the bank',
    role: 'admin',
    body: BankFileOrder,
    reply: BankFileView,
  },
  get_bank_file: {
    call: 'GET /money/files/{file_id}',
    summary: 'Read a file for the bank again, as it was made',
    role: 'admin',
    reply: BankFileView,
  },
  refund_payment: {
    call: 'POST /payments/{platform_payment_id}/refund',
    summary: 'Refund a captured payment, in full or in part',
    body: RefundRequest,
    reply: RefundMade,
  },
  list_refunds: {
    call: 'GET /money/refunds',
    summary: 'List refunds, newest first, at most 100',
    query: t.partial({
      platform_payment_id: t.PlatformPaymentId,
      state: t.oneOf(REFUND_STATES),
    }),
    reply: Type.Object({ refunds: Type.Array(RefundView) }),
  },
  list_cases: {
    call: 'GET /money/cases',
    summary: 'List cases, the most urgent first, at most 200',
    query: CaseQuery,
    reply: Type.Object({ cases: Type.Array(CaseView) }),
  },
  open_case: {
    call: 'POST /payments/{platform_payment_id}/cases',
    summary: 'Open a case about a payment: a complaint of its customer or its biller',
    body: t.strictObject({
      reason_code: Type.Optional(t.oneOf(COMPLAINTS, 'Default: other.')),
      reason: t.text('What it is about; kept in the audit.'),
    }),
    reply: CaseView,
  },
  end_case: {
    call: 'POST /money/cases/{case_id}/end',
    summary: 'End a case, by a second person as well when its money is above the limit',
    body: CaseEnd,
    reply: CaseEnded,
  },
} as const;
