/**
 * The calls of a payment to its partner: sends one step, and returns the answer as an event for payment-steps.ts.
 *
 * enters: a payment that is due, and its next step.  leaves: an event; nothing here decides or writes.
 * holds:  a transaction never spans a call.
 */
import { retryAfterMs } from '../partners/oauth-client.ts';
import type { NotSent } from '../partners/client.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { Partner } from '../partners/registry.ts';
import { judgePoll, judgeSubmit, type PollOutcome, type SubmitOutcome } from './outcome.ts';
import { WAITING_AGE_MS, type AnswerFacts, type PaymentEvent } from './payment-steps.ts';
import { orderOf, type ActivePayment } from './active-payment.ts';
import type { CallGround } from './options.ts';

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
