/**
 * The calls of a payment: sends one step, and returns the answer as an event for payment-steps.ts.
 *
 * enters: a payment that is due, and its next step.  leaves: an event; nothing here decides or writes.
 * holds:  a transaction never spans a call. `free` releases the slot in the partner's queue as soon as the answer arrives, before
 *         it is recorded.
 */
import { retryAfterMs } from '../partners/oauth-client.ts';
import type { CallOptions, NotSent, PartnerClient } from '../partners/client.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { Partner } from '../partners/registry.ts';
import { judgePoll, judgeSubmit, type PollOutcome, type SubmitOutcome } from './outcome.ts';
import { WAITING_AGE_MS, type AnswerFacts, type PaymentEvent, type Step } from './payment-steps.ts';
import { orderOf, type ActivePayment, type CallOrder } from './active-payment.ts';
import type { EngineMetrics } from './metrics.ts';
import type { PartnerCalls } from './partner-calls.ts';

/** What the calls depend on. */
export interface CallContext {
  readonly client: PartnerClient;
  /** Wall time in milliseconds, for Retry-After dates. */
  readonly now: () => number;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  /** Aborts the calls under way, and the reads that wait, which would otherwise delay a stop until they end. */
  readonly signals: { readonly calls: AbortSignal; readonly waits: AbortSignal };
  /** Counts answers by their outcomes. */
  readonly metrics: Pick<EngineMetrics, 'submitted' | 'polled'>;
}

/** An answer without news that arrives sooner was not held, whatever it claims. Waits are requested in whole seconds. */
const LEAST_HELD_MS = 900;

/** Whether the next read of a payment of this partner may ask to wait. */
export function canWait(
  on: CallContext,
  known: PartnerCalls<ActivePayment>,
  partner: Partner | undefined,
): boolean {
  return (partner?.budget.wait_seconds ?? 0) > 0 && known.canWait(on.monotonic());
}

/** Sends the PUT or the poll of a payment. `isHeld`: it was a read that asked to wait. */
export async function callPartner(
  on: CallContext,
  payment: ActivePayment,
  partner: Partner,
  step: Step,
): Promise<{ readonly event: PaymentEvent; readonly isHeld: boolean }> {
  const { partner: known } = payment.group;
  const order = orderOf(payment);
  const { calls, waits } = on.signals;
  if (step === 'submit') {
    return { event: await submit(on, partner, order, { signal: calls }), isHeld: false };
  }
  const now = on.monotonic();
  const isHeld = now - payment.acceptedAt < WAITING_AGE_MS && canWait(on, known, partner);
  if (isHeld) {
    known.waiting += 1;
    known.askedToWaitAt = now;
  }
  try {
    const event = await poll(on, partner, order, {
      signal: isHeld ? waits : calls,
      waitSeconds: isHeld ? partner.budget.wait_seconds : 0,
    });
    // An answer with news does not have to confirm that it waited.
    if (isHeld && (event.facts.waited || event.outcome.kind === 'processing')) {
      known.waits = event.facts.waited;
    }
    return { event, isHeld };
  } finally {
    if (isHeld) known.waiting -= 1;
  }
}

/** Sends the PUT. If the partner rejects it as invalid, sends one GET to find out whether it has the payment anyway (F11). */
async function submit(
  options: CallContext,
  partner: Partner,
  order: CallOrder,
  call: CallOptions,
): Promise<PaymentEvent> {
  const startedAt = options.monotonic();
  const answer = await options.client.submit(partner, order, call);
  const outcome = judgeSubmit(order, answer);
  options.metrics.submitted(partner.partner_id, labelOf(outcome));
  if (outcome.kind !== 'rejected') {
    return { kind: 'submitted', outcome, facts: factsOf(options, startedAt, answer) };
  }
  const look = await options.client.poll(partner, order, call);
  const found = judgePoll(order, look);
  options.metrics.polled(partner.partner_id, labelOf(found));
  return { kind: 'rejected', rejection: outcome, found, facts: factsOf(options, startedAt, look) };
}

/** Sends a poll; `waitSeconds` above 0 asks the partner to hold its answer until the payment changes (decision 24). */
async function poll(
  options: CallContext,
  partner: Partner,
  order: CallOrder,
  call: CallOptions & { readonly waitSeconds: number },
): Promise<Extract<PaymentEvent, { kind: 'polled' }>> {
  const startedAt = options.monotonic();
  const answer = await options.client.poll(partner, order, call);
  const outcome = judgePoll(order, answer);
  options.metrics.polled(partner.partner_id, labelOf(outcome));
  const facts = factsOf(options, startedAt, answer);
  // A partner may claim it waited yet reply at once; trusting that would poll it in a tight loop.
  const hasWaited =
    facts.waited &&
    (outcome.kind !== 'processing' || options.monotonic() - startedAt >= LEAST_HELD_MS);
  return { kind: 'polled', outcome, facts: { ...facts, waited: hasWaited } };
}

function factsOf({ now }: CallContext, startedAt: number, answer: Exchange | NotSent): AnswerFacts {
  return {
    startedAt,
    status: answer.kind === 'reply' ? answer.status : undefined,
    retryAfterMs: retryAfterMs(answer.kind === 'no_reply' ? undefined : answer.retryAfter, now()),
    waited: answer.kind === 'reply' && answer.waited,
  };
}

/** An outcome as a metric label. */
function labelOf(outcome: SubmitOutcome | PollOutcome): string {
  switch (outcome.kind) {
    case 'unknown':
    case 'held':
      return `${outcome.kind}_${outcome.reason}`;
    case 'processing':
    case 'ended':
    case 'incomplete':
    case 'mismatch':
    case 'rejected':
    case 'not_found':
      return outcome.kind;
  }
}
