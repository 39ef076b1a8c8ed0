/**
 * The calls of a payment, to its partner and to the funding port: each takes one step, and returns the answer as an event for payment-steps.ts.
 *
 * enters: a payment that is due, and its next step.  leaves: an event; nothing here decides or writes.
 * holds:  a transaction never spans a call. A call has a deadline; a funding method that fails or hangs fills its own queue and no other.
 */
import { abortWith, isDatabaseTrouble, kindOfError } from '@duebridge/runtime';
import { retryAfterMs, type NotSent } from '../partners/oauth-client.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { Partner } from '../partners/registry.ts';
import { judgePoll, judgeSubmit, type PollOutcome, type SubmitOutcome } from './outcome.ts';
import { WAITING_AGE_MS, type AnswerFacts, type PaymentEvent } from './payment-steps.ts';
import { orderOf, type ActivePayment } from './active-payment.ts';
import type { CallGround } from './options.ts';

/** A call to the funding port that takes longer is aborted and retried: every operation of the port is idempotent. */
const FUNDING_DEADLINE_MS = 15_000;
/** Why a call to the port is over. Without a reason of its own each abort would make an error, at 20 us for two calls of every payment. */
const [ANSWERED, LATE] = ['answered', 'late'];
/** An answer without news that arrives sooner was not held, whatever it claims. Waits are requested in whole seconds. */
const LEAST_HELD_MS = 900;

/** Sends the PUT. If the partner rejects it as invalid, sends one GET to find out whether it has the payment anyway (F11). */
export async function submit(
  on: CallGround,
  payment: ActivePayment,
  partner: Partner,
): Promise<PaymentEvent> {
  const order = orderOf(payment);
  const call = { signal: on.signals.calls };
  const startedAt = on.clock.monotonic();
  const answer = await on.client.submit(partner, order, call);
  const outcome = judgeSubmit(order, answer);
  on.metrics.submitted(partner.partner_id, labelOf(outcome));
  if (outcome.kind !== 'rejected') {
    return { kind: 'submitted', outcome, facts: factsOf(on, payment, startedAt, answer) };
  }
  const look = await on.client.poll(partner, order, call);
  const found = judgePoll(order, look);
  on.metrics.polled(partner.partner_id, labelOf(found));
  const facts = factsOf(on, payment, startedAt, look);
  return { kind: 'rejected', rejection: outcome, found, facts };
}

/** Sends a poll, which asks the partner to hold its answer until the payment changes where that may be asked (decision 24). */
export async function poll(
  on: CallGround,
  payment: ActivePayment,
  partner: Partner,
): Promise<PaymentEvent> {
  const { partner: known } = payment.group;
  const order = orderOf(payment);
  const startedAt = on.clock.monotonic();
  const asksToWait =
    startedAt - payment.acceptedAt < WAITING_AGE_MS && known.canWait(partner, startedAt);
  if (asksToWait) {
    known.waiting += 1;
    known.askedToWaitAt = startedAt;
  }
  try {
    const answer = await on.client.poll(partner, order, {
      signal: asksToWait ? on.signals.waits : on.signals.calls,
      waitSeconds: asksToWait ? partner.budget.wait_seconds : 0,
    });
    const outcome = judgePoll(order, answer);
    on.metrics.polled(partner.partner_id, labelOf(outcome));
    const facts = factsOf(on, payment, startedAt, answer);
    // A partner may claim it waited yet reply at once; trusting that would poll it in a tight loop.
    const waited =
      facts.waited &&
      (outcome.kind !== 'processing' || on.clock.monotonic() - startedAt >= LEAST_HELD_MS);
    // An answer with news does not have to confirm that it waited.
    if (asksToWait && (waited || outcome.kind === 'processing')) known.waits = waited;
    return { kind: 'polled', outcome, facts: { ...facts, waited, askedToWait: asksToWait } };
  } finally {
    if (asksToWait) known.waiting -= 1;
  }
}

function factsOf(
  { clock }: CallGround,
  { at }: ActivePayment,
  startedAt: number,
  answer: Exchange | NotSent,
): AnswerFacts {
  return {
    dueAt: at,
    startedAt,
    status: answer.kind === 'reply' ? answer.status : undefined,
    retryAfterMs: retryAfterMs(
      answer.kind === 'no_reply' ? undefined : answer.retryAfter,
      clock.now(),
    ),
    waited: answer.kind === 'reply' && answer.waited,
    askedToWait: false,
  };
}

/** An outcome as a metric label. */
function labelOf(outcome: SubmitOutcome | PollOutcome): string {
  return 'reason' in outcome ? `${outcome.kind}_${outcome.reason}` : outcome.kind;
}

// The funding port ------------------------------------------------------------------------------------------------------------

/** Authorizes or settles the funds of a payment. Throws only when the database is away. */
export async function fund(on: CallGround, payment: ActivePayment): Promise<PaymentEvent> {
  const { clock, log, signals } = on;
  const { funding_method, funding_party, funding: queue } = payment.group;
  const over = new AbortController();
  const { signal } = over;
  const unlink = abortWith(over, signals.calls);
  void clock.sleep(FUNDING_DEADLINE_MS, signal).then(() => over.abort(LATE));
  try {
    const event = await unlessAborted(askPort(on, payment, signal), signal);
    if (queue.worked(funding_party, clock.monotonic()) && !queue.isTroubled) {
      log.info({ funding_method }, 'the funding method answers again');
    }
    return event;
  } catch (error) {
    // The port keeps its rows in the platform's own database, and fails when that does.
    if (isDatabaseTrouble(error)) throw error;
    // A stop, which aborts calls, is no fault of the port.
    if (!signals.waits.aborted) portFailed(on, payment, error, signal.reason === LATE);
    return { kind: 'funding_failed' };
  } finally {
    unlink();
    over.abort(ANSWERED);
  }
}

/** The port's own answer as an event. Funds of a payment that succeeded are captured, those of any other are released. */
async function askPort(
  { funding }: CallGround,
  payment: ActivePayment,
  signal: AbortSignal,
): Promise<PaymentEvent> {
  const order = orderOf(payment);
  if (payment.stage !== 'ended') return funding.authorize(order, { signal });
  const act = payment.status === 'succeeded' ? 'capture' : 'release';
  const settled = await funding[act](order, { signal });
  return { kind: 'funds_settled', ...(settled ? { settled } : {}) };
}

/** Logs a payment's first failure, and once that all of its method fail: a processor may be away for an hour, with 10,000 waiting. */
function portFailed(
  { log, clock }: CallGround,
  { platform_payment_id, tries, group }: ActivePayment,
  error: unknown,
  isLate: boolean,
): void {
  const { funding_method, funding_party, funding: queue } = group;
  const wasFailing = queue.isTroubled;
  queue.failed(funding_party, clock.monotonic(), clock.random(), !isLate);
  if (wasFailing) return;
  const why = kindOfError(error);
  if (queue.isTroubled) {
    log.error({ funding_method, error: why }, 'the funding method fails every call; retrying');
  } else if (tries === 0) {
    log.error({ platform_payment_id, error: why }, 'the funding port failed; retrying');
  }
}

/** The answer, or a rejection as soon as the signal is aborted: a port that ignores it must not delay others. */
function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new Error('the funding port did not answer in time'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
