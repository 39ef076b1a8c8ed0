/**
 * The calls of a payment: sends one step, and returns the answer as an event for payment-steps.ts.
 *
 * enters: a payment that is due, and its next step.  leaves: an event; nothing here decides or writes.
 * holds:  a transaction never spans a call. `free` releases the slot in the partner's queue as soon as the answer arrives, before
 *         it is recorded.
 */
import { retryAfterMs } from '../partners/oauth-client.ts';
import type { CallOptions, NotSent, PartnerClient, PaymentOrder } from '../partners/client.ts';
import type { Exchange } from '../partners/http-call.ts';
import type { Intent } from '../partners/payment-record.ts';
import type { Partner } from '../partners/registry.ts';
import type { Funding, FundingOrder } from '../funding.ts';
import { judgePoll, judgeSubmit, type PollOutcome, type SubmitOutcome } from './outcome.ts';
import type { AnswerFacts, PaymentEvent } from './payment-steps.ts';

/** A payment as its calls carry it. */
export type CallOrder = PaymentOrder & Intent & FundingOrder;

/** What the calls depend on. */
export interface CallContext {
  readonly client: PartnerClient;
  /** Wall time in milliseconds, for Retry-After dates. */
  readonly now: () => number;
  /** Monotonic milliseconds. */
  readonly monotonic: () => number;
  /** Counts an answer by its outcome. */
  readonly counted: (call: 'submit' | 'poll', partner_id: string, outcome: string) => void;
}

/** An answer without news that arrives sooner was not held, whatever it claims. Waits are requested in whole seconds. */
const LEAST_HELD_MS = 900;

/** Asks the funding port for the authorization. Throws what the port throws, and when `signal` is aborted, whatever the port does. */
export async function authorizeFunds(
  funding: Funding,
  order: FundingOrder,
  signal: AbortSignal,
): Promise<PaymentEvent> {
  const authorization = await unlessAborted(funding.authorize(order, { signal }), signal);
  return authorization.kind === 'waits'
    ? { kind: 'funding_waits', afterMs: authorization.afterMs }
    : authorization;
}

/** Captures the funds of a payment that succeeded, releases those of any other. Throws as `authorizeFunds` does. */
export async function settleFunds(
  funding: Funding,
  order: FundingOrder,
  succeeded: boolean,
  signal: AbortSignal,
): Promise<PaymentEvent> {
  const act = succeeded ? funding.capture(order, { signal }) : funding.void(order, { signal });
  const settled = await unlessAborted(act, signal);
  return { kind: 'funds_settled', ...(settled ? { settled } : {}) };
}

/** The port's own promise, or a rejection as soon as the signal is aborted: a port that ignores it must not delay others. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(new Error('the funding port did not answer in time'));
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** Sends the PUT. If the partner rejects it as invalid, sends one GET to find out whether it has the payment anyway (F11). */
export async function submit(
  options: CallContext,
  partner: Partner,
  order: CallOrder,
  call: CallOptions,
  sent: () => void,
): Promise<PaymentEvent> {
  const startedAt = options.monotonic();
  const answer = await options.client.submit(partner, order, call);
  sent();
  const outcome = judgeSubmit(order, answer);
  options.counted('submit', partner.partner_id, labelOf(outcome));
  if (outcome.kind !== 'rejected') {
    return { kind: 'submitted', outcome, facts: factsOf(options, startedAt, answer) };
  }
  const look = await options.client.poll(partner, order, call);
  const found = judgePoll(order, look);
  options.counted('poll', partner.partner_id, labelOf(found));
  return { kind: 'rejected', rejection: outcome, found, facts: factsOf(options, startedAt, look) };
}

/** Sends a poll; `waitSeconds` above 0 asks the partner to hold its answer until the payment changes (decision 24). */
export async function poll(
  options: CallContext,
  partner: Partner,
  order: CallOrder,
  call: CallOptions & { readonly waitSeconds: number },
): Promise<Extract<PaymentEvent, { kind: 'polled' }>> {
  const startedAt = options.monotonic();
  const answer = await options.client.poll(partner, order, call);
  const outcome = judgePoll(order, answer);
  options.counted('poll', partner.partner_id, labelOf(outcome));
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
