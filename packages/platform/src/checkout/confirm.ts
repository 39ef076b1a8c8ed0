/**
 * Stage 4: the customer's instruction becomes a payment row, owned by this worker, due now (S4, PL1, PL3).
 *
 * enters: a session and what the customer confirmed.  leaves: the one payment that the session stands on, made now or before.
 * holds:  a confirm names the id of the flow's next payment, which its page was given with the bill, and makes that one payment,
 *         however often it is sent and from however many tabs and tokens. The next id is another only for a page that has seen how
 *         the payment before ended. The row is committed before the engine hears of it; no call to the partner happens inside the
 *         transaction.
 * next:   engine.take drives it; if this process dies in between, another worker finds the row.
 */
import { conflict, invalidField, Refusal } from '@duebridge/contract';
import type { Detail, FlowPayment, FlowPaymentRequest, PaymentRules } from '@duebridge/contract';
import {
  constraintOf,
  DatabaseUnavailable,
  messageOf,
  paymentTrace,
  SpanKind,
  sql,
  sqlState,
  tracer,
} from '@duebridge/runtime';
import type { Transaction } from '@duebridge/runtime';
import { batchFor, cutoffAfter } from '../reconciliation/batch.ts';
import {
  flowAsItStands,
  flowPayment,
  isPayable,
  lockFlow,
  writePayment,
  readSequence,
  type PayableSession,
  type Session,
} from './flow.ts';
import { madeAt, MINTED_BEFORE_MS, placeInFlow } from '../payment-id.ts';
import { failureKind } from './failure.ts';
import type { LostPayments, MadePayment } from './lost-payments.ts';
import type { AccountView } from '../partners/client.ts';
import type { Partner } from '../partners/registry.ts';
import { NO_REASON } from '../partners/payment-record.ts';
import { plainText } from '../plain-text.ts';
import type { Services } from '../services.ts';
import type { PaymentRow, Queryable } from '../store/payments.ts';

/** How long the partner may take to say what the account allows: the customer has just pressed the button. */
const ACCOUNT_DEADLINE_MS = 5_000;

/** The result of a confirm: an existing payment, or a new one with its place in the flow's sequence. */
type Decision =
  | { readonly kind: 'give'; readonly payment: PaymentRow }
  | { readonly kind: 'make'; readonly place: number };

/** Payments of one flow that a database may have lost: a page that knows of more is told to read its session again. */
const MAX_LOST = 16;

/** What stage 4 depends on. */
interface Stage4 extends Pick<
  Services,
  'database' | 'registry' | 'client' | 'engine' | 'funding' | 'clock'
> {
  readonly lost: LostPayments;
  /** How long the personal data of a customer who pays is kept. */
  readonly paidRetentionDays: number;
}

/** What a customer confirmed, with whom it is for. */
interface Confirm {
  readonly session: PayableSession;
  readonly partner: Partner;
  readonly request: FlowPaymentRequest;
}

/** Stage 4. */
export type Payments = ReturnType<typeof openPayments>;

/** Opens stage 4. */
export function openPayments(stage: Stage4) {
  const { database, clock } = stage;
  return {
    /**
     * Returns the payment that this confirm asks for, whether made now or earlier. Throws Refusal ACCOUNT_NOT_FOUND, AMOUNT_OUT_OF_RANGE,
     * PARTNER_UNREACHABLE (nothing was stored), CONFLICT (the id is not the flow's, or hours old), INVALID_REQUEST (no such funding method).
     */
    async confirm(session: Session, request: FlowPaymentRequest): Promise<PaymentRow> {
      if (!isPayable(session)) throw new Refusal('ACCOUNT_NOT_FOUND');
      const { made } = await readSequence(database, session);
      const decision = await decide(database, session, request, made, clock.now());
      if (decision.kind === 'give') return decision.payment;
      const partner = await stage.registry.get(session.partner_id);
      if (partner === undefined) throw new Refusal('ACCOUNT_NOT_FOUND');
      const confirm = { session, partner, request };
      await assertAllowed(stage, confirm);
      const now = clock.now();
      return makeAt(stage, confirm, now).catch((error: unknown) => {
        if (!isBatchClosed(error)) throw error;
        // Our clock is behind the database's, by which the window has ended and its batch is closed. Use the next window.
        return makeAt(stage, confirm, cutoffAfter(partner, now));
      });
    },

    /** A payment of the session's flow. Throws Refusal PAYMENT_NOT_FOUND for any other id, including another customer's. */
    async read(session: Session, platform_payment_id: string): Promise<PaymentRow> {
      const payment = await flowPayment(database, session, platform_payment_id);
      if (payment === undefined) throw new Refusal('PAYMENT_NOT_FOUND');
      return payment;
    },
  };
}

/** Throws Refusal INVALID_REQUEST for a method that is not offered, AMOUNT_OUT_OF_RANGE, and what the partner says of the account. */
async function assertAllowed(
  { funding, client }: Stage4,
  { session, partner, request }: Confirm,
): Promise<void> {
  const { amount_in_cents, funding_method } = request;
  const method = funding.methods(partner).find((one) => one.funding_method === funding_method);
  if (method === undefined) {
    throw invalidField('body.funding_method', 'is not offered here');
  }
  const account = await payableAccount(client, partner, session, ACCOUNT_DEADLINE_MS);
  const { payment_rules: rules = {} } = account;
  const ofMethod = amountProblems(amount_in_cents, method);
  const problems = ofMethod.length > 0 ? ofMethod : amountProblems(amount_in_cents, rules);
  if (problems.length > 0) throw new Refusal('AMOUNT_OUT_OF_RANGE', { details: problems });
}

/** When the partner cannot be read, the page tries again after this. */
const RETRY_AFTER_SECONDS = '5';

/**
 * The account that a customer pays, as its partner has it now. Throws Refusal ACCOUNT_NOT_FOUND for one that is unknown or inactive, and
 * PARTNER_UNREACHABLE.
 */
export async function payableAccount(
  client: Services['client'],
  partner: Partner,
  { biller_id, account_id }: PayableSession,
  deadlineMs: number,
): Promise<AccountView> {
  const outcome = await client.getAccount(partner, { biller_id, account_id }, { deadlineMs });
  if (outcome.kind === 'unreachable') {
    throw new Refusal('PARTNER_UNREACHABLE', { headers: { 'Retry-After': RETRY_AFTER_SECONDS } });
  }
  if (outcome.kind === 'not_found' || outcome.account.status === 'inactive') {
    throw new Refusal('ACCOUNT_NOT_FOUND');
  }
  return outcome.account;
}

/** Makes the payment in the batch that is open at `now`, and hands it to the engine. */
async function makeAt(stage: Stage4, confirm: Confirm, now: number): Promise<PaymentRow> {
  const { database, engine, clock, lost } = stage;
  const began = clock.now();
  const platform_batch_id = await batchFor(database, confirm.partner, now);
  /** What the last try of the transaction wrote, while it is not known whether it was committed. */
  let made: MadePayment | undefined;
  let payment: PaymentRow;
  try {
    payment = await database.transaction(async (tx) => {
      made = undefined;
      const written = await writeIntent(tx, stage, confirm, { platform_batch_id, began });
      if ('kind' in written) return written.payment;
      made = written;
      return written.payment;
    });
  } catch (error) {
    // The commit may have happened: then the payment is in a slot of this worker, which does not know of it yet (F70).
    const isUnknown = error instanceof DatabaseUnavailable && error.outcome === 'unknown';
    if (isUnknown && made !== undefined) engine.lookAgain(made.payment.slot);
    throw error;
  }
  if (made !== undefined) {
    lost.keep(made);
    traceConfirm(payment, began);
    engine.take(payment);
  }
  return payment;
}

/** The span of a confirm that made a payment. */
function traceConfirm({ platform_payment_id, partner_id }: PaymentRow, startTime: number): void {
  const attributes = {
    'duebridge.payment_id': platform_payment_id,
    'duebridge.partner_id': partner_id,
  };
  const options = { kind: SpanKind.SERVER, startTime, attributes };
  tracer.startSpan('confirm payment', options, paymentTrace(platform_payment_id)).end();
}

/** Inside the transaction: lock the flow, check again, write the intent. `give`: a payment that was there before. */
async function writeIntent(
  tx: Transaction,
  { lost, engine, funding, paidRetentionDays }: Stage4,
  { session, partner, request }: Confirm,
  { platform_batch_id, began }: { platform_batch_id: string; began: number },
): Promise<MadePayment | Extract<Decision, { kind: 'give' }>> {
  const { made } = await lockFlow(tx, session);
  const decision = await decide(tx, session, request, made, began);
  if (decision.kind === 'give') return decision;
  const before = lost.latestOf(session.flow_id);
  if (before !== undefined) {
    const stored = await flowPayment(tx, session, before.payment.platform_payment_id);
    // The database has lost it: to make another would pay twice.
    if (stored === undefined)
      return { kind: 'give', payment: await lost.putBack(tx, before, platform_batch_id) };
  }
  const { place } = decision;
  const { amount_in_cents, funding_method, instrument } = request;
  const payment = await writePayment(tx, funding, {
    session,
    place,
    instrument,
    now: began,
    platform_batch_id,
    amount_in_cents,
    funding_method,
    platform_payment_id: request.platform_payment_id,
    ...engine.placeForNew(partner, request),
    maybe_sent: request.repeated ?? null,
  });
  // Personal data of a customer who pays is kept longer than that of one who only looked.
  await tx.query(keepStatement, [session.customer_id, paidRetentionDays]);
  return { payment, session, place, instrument };
}

/** The insert guard found the batch closed. Citus passes on only the guard's message, without the name of the rule. */
function isBatchClosed(error: unknown): boolean {
  return (
    constraintOf(error) === 'payments_batch_open' ||
    (sqlState(error) === '23503' && messageOf(error).startsWith('no open batch of this partner'))
  );
}

/**
 * What a confirm means in the current state. Evaluated once without the lock and once more under it. `made`: payments that the flow has
 * made, and so the place of the next one.
 */
async function decide(
  on: Queryable,
  session: PayableSession,
  { platform_payment_id }: FlowPaymentRequest,
  made: number,
  now: number,
): Promise<Decision> {
  const named = await flowPayment(on, session, platform_payment_id);
  if (named !== undefined) {
    if (!mayReplace(named)) return { kind: 'give', payment: named };
    // Another page may have seen its end and paid since: this one must not offer to pay once more.
    const { latest } = await flowAsItStands(on, session);
    const isPaid = latest?.status === 'processing' || latest?.status === 'succeeded';
    return { kind: 'give', payment: isPaid ? latest : named };
  }
  const place = placeInFlow(session.flow_id, platform_payment_id, made + MAX_LOST);
  // A page that has been open for hours has to see how the flow stands now.
  if (place === undefined || madeAt(platform_payment_id) < now - MINTED_BEFORE_MS) {
    throw conflict('The id is not that of the next payment: read the session again');
  }
  const { standing, latest } = await flowAsItStands(on, session);
  if (place < made) {
    // Its place was taken under another id: the page was drawn without the payment that is there.
    const payment = standing ?? latest;
    if (payment !== undefined) return { kind: 'give', payment };
  }
  if (standing !== undefined && !mayReplace(standing)) return { kind: 'give', payment: standing };
  return { kind: 'make', place };
}

/** A payment that failed as a duplicate means the debt is already paid: another attempt would pay it twice. */
function mayReplace(payment: PaymentRow): boolean {
  return (
    payment.status === 'canceled' ||
    (payment.status === 'failed' && failureKind(payment) !== 'duplicate')
  );
}

/** What is wrong with an amount under the account's rules; empty when it is allowed. */
function amountProblems(amount_in_cents: number, rules: PaymentRules): Detail[] {
  const must = (problem: string): Detail[] => [{ path: 'body.amount_in_cents', problem }];
  const { min_amount_in_cents: min, max_amount_in_cents: max } = rules;
  if (min !== undefined && amount_in_cents < min) return must(`must be at least ${min}`);
  if (max !== undefined && amount_in_cents > max) return must(`must be at most ${max}`);
  return [];
}

const keepStatement = sql(`
   UPDATE duebridge_platform.customers SET erase_after = greatest(erase_after, now() + make_interval(days => $2))
    WHERE customer_id = $1`);

// For the customer's eyes ----------------------------------------------------------------------------------------------------

/** The payment as its customer sees it. A payment that is not known to have ended is shown as processing, never as failed (EE9). */
export function toFlowPayment(payment: PaymentRow): FlowPayment {
  const { failure_reason: reason } = payment;
  return {
    platform_payment_id: payment.platform_payment_id,
    payment_id: payment.payment_id,
    status: payment.status,
    progress: progressOf(payment),
    amount_in_cents: payment.amount_in_cents,
    funding_method: payment.funding_method,
    created_at: payment.created_at,
    initiated_at: payment.initiated_at,
    posted_at: payment.posted_at,
    ...(payment.status === 'failed'
      ? {
          // Where the biller gave no words the page has its own, in the customer's language.
          ...(reason === null || reason === NO_REASON ? {} : { failure_reason: plainText(reason) }),
          failure: failureKind(payment),
        }
      : {}),
  };
}

/** The same with what the customer has to do for it, if anything. */
export async function withAction(
  payment: PaymentRow,
  funding: Services['funding'],
): Promise<FlowPayment> {
  const shown = toFlowPayment(payment);
  // Later stages have their funds already.
  if (payment.stage !== 'created') return shown;
  const action = await funding.actionOf(payment);
  return action === undefined ? shown : { ...shown, action };
}

function progressOf(payment: PaymentRow): FlowPayment['progress'] {
  if (payment.status !== 'processing') return 'ended';
  return payment.payment_id === null ? 'sending' : 'accepted';
}
