/**
 * What happens to a payment next: one pure function from the payment and an event to a decision.
 *
 * enters: what memory holds of a payment, an event (an answer of the partner, judged by outcome.ts, or of the funding port), the
 *         partner's queue as it stands, the time and a source of chance.
 * leaves: a decision: what to remember, what the answer says about the partner, the one write, and when the next step is due.
 * holds:  no clock, no network, no database, so that a simulator drives the very rules that production runs.
 *
 * The life of a payment, by `stage`. `created`: the intent is durable; the next step authorizes the funds. `authorized`: the funds
 * are reserved and the partner cannot be called yet. `dispatching`: a PUT may have left; the next step is the PUT. `accepted`: the
 * partner has it; the next step is a poll, or the same PUT again when the partner no longer finds it. `ended`: the status is
 * terminal; the next step captures or releases the funds, and then the payment is forgotten. `review`: an operator has to look.
 */
import type { PaymentStage, PaymentStatus } from '@duebridge/contract';
import type { Acceptance, Anomaly } from '../partners/payment-record.ts';
import type { AuditDetail, Ending } from '../store/payments.ts';
import type { AnswerOutcome, HoldReason, PollOutcome, SubmitOutcome } from './outcome.ts';
import { nextPollMs, retryMs, type SettlementTimes } from './poll-schedule.ts';

/** What memory holds of a payment beside its intent: as little as can be, because a worker holds up to a million. */
export interface PaymentMemory {
  stage: PaymentStage;
  status: PaymentStatus;
  /** The partner's id, once it has told one. */
  payment_id: string | null;
  /** Monotonic time of acceptance, in milliseconds. */
  acceptedAt: number;
  /** Polls since acceptance. */
  polls: number;
  /** Failures in a row. */
  tries: number;
  /** Polls that showed succeeded without posted_at. */
  grace: number;
  /** Accepted earlier, now a 404 that may not be the partner's own: the next call is the same PUT (F15). */
  resubmit: boolean;
  /** This worker has had the funds authorized. */
  funded: boolean;
  /** The last anomaly logged: each kind is logged once in a row. */
  anomaly: Anomaly | undefined;
}

/** The call that a payment needs next. */
export type Step = 'authorize' | 'settle' | 'submit' | 'poll';

/** Which call comes next. Pure. */
export function nextStep(payment: Readonly<PaymentMemory>): Step {
  if (payment.stage === 'ended') return 'settle';
  if (payment.stage === 'created' && !payment.funded) return 'authorize';
  return payment.stage === 'accepted' && !payment.resubmit ? 'poll' : 'submit';
}

/** What an answer says beside the record in it. */
export interface AnswerFacts {
  /** The HTTP status; undefined when there was no reply. */
  readonly status: number | undefined;
  /** What Retry-After asked for, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The partner held the answer back, as `Prefer: wait` asked (decision 24). */
  readonly waited: boolean;
}

/** What can happen to a payment. */
export type PaymentEvent =
  | { readonly kind: 'authorized' }
  | { readonly kind: 'declined'; readonly reason: string }
  | { readonly kind: 'funding_failed' }
  | { readonly kind: 'funds_settled' }
  /** The partner answered the PUT. */
  | {
      readonly kind: 'submitted';
      readonly outcome: Exclude<SubmitOutcome, { kind: 'rejected' }>;
      readonly facts: AnswerFacts;
    }
  /** The partner called the request wrong (400, 422), and was then asked by a GET whether it has the payment all the same (F11). */
  | {
      readonly kind: 'rejected';
      readonly rejection: Extract<SubmitOutcome, { kind: 'rejected' }>;
      readonly found: PollOutcome;
      readonly facts: AnswerFacts;
    }
  | { readonly kind: 'polled'; readonly outcome: PollOutcome; readonly facts: AnswerFacts };

/** What a decision depends on beside the payment and the event. */
export interface Surroundings {
  /** Monotonic milliseconds. */
  readonly now: number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly times: StepTimes;
  /** Codes of this partner that refuse a payment for good (decision 21). */
  readonly refusals: readonly string[];
  /** The partner could be called at once: neither paused nor held back. */
  readonly partnerIsOpen: boolean;
  /** How long this partner takes to end its payments. */
  readonly settlements: SettlementTimes;
  /** Another waiting read fits in, and the partner may be asked for one. */
  readonly canWait: boolean;
  /** Whether the partner applies `Prefer: wait`; undefined until it has answered one. */
  readonly waits: boolean | undefined;
}

/** The delays of a payment in milliseconds; see poll-schedule.ts. */
export interface StepTimes {
  readonly retryMs: number;
  readonly maxRetryMs: number;
  readonly pollMs: number;
}

/** What an answer says about the partner as a whole. */
export type PartnerSignal =
  | { readonly kind: 'works' }
  /** It did not answer as one that works; `counts` for the breaker, `closeMs` when it asked for rest. */
  | {
      readonly kind: 'fails';
      readonly reason: string;
      readonly counts: boolean;
      readonly closeMs: number | undefined;
    }
  /** An operator has to look before calls can succeed. */
  | { readonly kind: 'held'; readonly reason: HoldReason };

/** The one write of a step. */
export type StepWrite =
  | {
      readonly kind: 'advance';
      readonly to: 'authorized' | 'dispatching' | 'accepted' | 'review';
      readonly acceptance?: Acceptance;
      readonly review_reason?: string;
      readonly rejection_message?: string;
      readonly detail?: AuditDetail;
    }
  | {
      readonly kind: 'end';
      readonly by: 'partner' | 'refusal' | 'funding';
      readonly ending: Ending;
    }
  | { readonly kind: 'settle' };

/** What to do, in this order: `signal`, `breaches`, `memory`, `write`, and, when the write changed the row, `next`. */
export interface Decision {
  readonly signal?: PartnerSignal;
  /** Breaches of the interface to count and to log. */
  readonly breaches: readonly string[];
  readonly memory: Partial<PaymentMemory>;
  /** Answers were crossed on a connection: none of those open is used again (F50). */
  readonly resetConnections?: boolean;
  readonly write?: StepWrite;
  /** Milliseconds until the next step is due; `forget` when there is none. */
  readonly next: number | 'forget';
}

/** Polls that show succeeded without posted_at before the payment goes to review (F35). */
const GRACE_POLLS = 5;
/** Up to this age an open read replaces polls; longer, it would hold a connection for a payment that nobody waits for. */
export const WAITING_AGE_MS = 10 * 60_000;

/** Decides what an event leads to. Pure. */
export function decide(
  payment: Readonly<PaymentMemory>,
  event: PaymentEvent,
  around: Surroundings,
): Decision {
  switch (event.kind) {
    case 'authorized':
      return authorized(payment, around);
    case 'declined':
      return {
        breaches: [],
        memory: FUNDED,
        write: { kind: 'end', by: 'funding', ending: failedEnding(event.reason) },
        next: 0,
      };
    case 'funding_failed': {
      const tries = payment.tries + 1;
      return { breaches: [], memory: { tries }, next: retryIn(tries, around) };
    }
    case 'funds_settled':
      return { breaches: [], memory: {}, write: { kind: 'settle' }, next: 'forget' };
    case 'submitted':
      return learnt(payment, event.outcome, event.facts, around);
    case 'rejected':
      return rejected(payment, event, around);
    case 'polled':
      return polled({ ...payment, polls: payment.polls + 1 }, event, around);
  }
}

const WORKS: PartnerSignal = { kind: 'works' };
const FUNDED: Partial<PaymentMemory> = { funded: true, tries: 0 };

/** A payment that has to wait for its partner stays `authorized`: until a PUT can leave, an operator can withdraw it (decision 18). */
function authorized(payment: Readonly<PaymentMemory>, around: Surroundings): Decision {
  const to = around.partnerIsOpen ? 'dispatching' : 'authorized';
  return {
    breaches: [],
    memory: FUNDED,
    ...(payment.stage === to ? {} : { write: { kind: 'advance', to } }),
    next: 0,
  };
}

/** The reason for the customer when the partner gave none with its refusal. */
export function refusalText(code: string | undefined): string {
  return code === undefined
    ? 'The biller refused the payment.'
    : `The biller refused the payment (${code}).`;
}

/** A payment that failed without the partner having accepted it. */
function failedEnding(reason: string): Ending {
  return {
    status: 'failed',
    payment_id: null,
    initiated_at: null,
    posted_at: null,
    failure_reason: reason.slice(0, 500),
  };
}

function rejected(
  payment: Readonly<PaymentMemory>,
  event: Extract<PaymentEvent, { kind: 'rejected' }>,
  around: Surroundings,
): Decision {
  const { rejection, found, facts } = event;
  if (found.kind !== 'not_found') return learnt(payment, found, facts, around);
  const { code, message, status } = rejection;
  // A payment that the partner once accepted is a person's to end: it may have been posted before it was forgotten.
  const isFinal = code !== undefined && around.refusals.includes(code);
  if (isFinal && found.believed && payment.payment_id === null) {
    return {
      signal: WORKS,
      breaches: [],
      memory: { tries: 0 },
      write: { kind: 'end', by: 'refusal', ending: failedEnding(message ?? refusalText(code)) },
      next: 0,
    };
  }
  return review(`rejected_${status}${code === undefined ? '' : `_${code}`}`, message);
}

function polled(
  payment: Readonly<PaymentMemory>,
  event: Extract<PaymentEvent, { kind: 'polled' }>,
  around: Surroundings,
): Decision {
  const { outcome, facts } = event;
  const { polls } = payment;
  if (outcome.kind !== 'not_found') {
    const decision = learnt(payment, outcome, facts, around);
    return { ...decision, memory: { polls, ...decision.memory } };
  }
  // It answered 200 to the PUT and does not find it now: a breach, and no proof of anything. The same PUT again (F15, decision 22).
  // Where the partner itself says that it does not know the payment, this is written down: it may then take it under a new id.
  const tries = payment.tries + 1;
  const reason = 'accepted_payment_not_found';
  return {
    signal: WORKS,
    breaches: [reason],
    memory: { polls, tries, resubmit: true },
    ...(outcome.believed
      ? { write: { kind: 'advance', to: 'dispatching', detail: { reason } } }
      : {}),
    next: later(retryIn(tries, around), facts, around),
  };
}

/** What an answer about the payment leads to, PUT and GET alike. */
function learnt(
  payment: Readonly<PaymentMemory>,
  outcome: AnswerOutcome,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  switch (outcome.kind) {
    case 'processing': {
      const accepts = acceptance(payment, outcome.acceptance, around);
      const memory = { tries: 0, resubmit: false, anomaly: outcome.anomaly, ...accepts.memory };
      return {
        signal: WORKS,
        breaches: newAnomaly(payment, outcome.anomaly),
        memory,
        ...accepts.write,
        next: later(pollIn({ ...payment, ...memory }, facts, around), facts, around),
      };
    }
    case 'ended':
      return {
        signal: WORKS,
        breaches: newAnomaly(payment, outcome.anomaly),
        memory: { tries: 0, anomaly: outcome.anomaly },
        write: { kind: 'end', by: 'partner', ending: outcome.ending },
        next: 0,
      };
    case 'incomplete': {
      const reason = 'succeeded_without_posted_at';
      const grace = payment.grace + 1;
      if (grace > GRACE_POLLS && payment.stage === 'accepted') {
        return { ...review(reason), breaches: [reason, reason], memory: { grace } };
      }
      const accepts = acceptance(payment, outcome.acceptance, around);
      return {
        signal: WORKS,
        breaches: [reason],
        memory: { grace, ...accepts.memory },
        ...accepts.write,
        next: later(around.times.pollMs, facts, around),
      };
    }
    case 'mismatch':
      return {
        ...review(`mismatch_${outcome.field}`),
        resetConnections: outcome.field === 'platform_payment_id',
      };
    case 'held':
      return {
        signal: { kind: 'held', reason: outcome.reason },
        breaches: [],
        memory: {},
        next: 0,
      };
    case 'unknown':
      return unknown(payment, outcome.reason, facts, around);
  }
}

/** Records the acceptance, once. */
function acceptance(
  payment: Readonly<PaymentMemory>,
  told: Acceptance,
  around: Surroundings,
): { readonly memory: Partial<PaymentMemory>; readonly write?: { readonly write: StepWrite } } {
  if (payment.stage === 'accepted') return { memory: {} };
  return {
    memory: { acceptedAt: around.now, polls: 0 },
    write: { write: { kind: 'advance', to: 'accepted', acceptance: told } },
  };
}

function unknown(
  payment: Readonly<PaymentMemory>,
  reason: string,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  // Our own stop ended a waiting read, or connections were replaced: the call is repeated.
  if (reason === 'stopped') return { breaches: [], memory: {}, next: around.times.retryMs };
  const tries = payment.tries + 1;
  const asksForRest = facts.status === 429 || facts.status === 503;
  const told = retryAfter(facts, around);
  return {
    signal: {
      kind: 'fails',
      reason,
      counts: reason !== 'too_many_requests',
      closeMs: asksForRest ? told : undefined,
    },
    breaches: reason === 'redirect' ? ['redirect'] : [],
    memory: { tries },
    next: later(retryIn(tries, around), facts, around),
  };
}

function review(review_reason: string, rejection_message?: string): Decision {
  return {
    signal: WORKS,
    breaches: [review_reason],
    memory: {},
    write: {
      kind: 'advance',
      to: 'review',
      review_reason,
      ...(rejection_message === undefined ? {} : { rejection_message }),
    },
    next: 'forget',
  };
}

function newAnomaly(
  payment: Readonly<PaymentMemory>,
  anomaly: Anomaly | undefined,
): readonly string[] {
  return anomaly !== undefined && payment.anomaly !== anomaly ? [anomaly] : [];
}

function retryIn(tries: number, { random, times }: Surroundings): number {
  return retryMs(tries, random(), times.retryMs, times.maxRetryMs);
}

function pollIn(
  payment: Readonly<PaymentMemory>,
  facts: AnswerFacts,
  around: Surroundings,
): number {
  const age = around.now - payment.acceptedAt;
  // An open read replaces polls while the partner holds it; the first poll finds out whether it does.
  const untried = payment.polls === 0 && around.waits !== false;
  if (age < WAITING_AGE_MS && around.canWait && (facts.waited || untried)) return 0;
  return nextPollMs(around.settlements, age, payment.polls, around.random(), {
    firstMs: around.times.pollMs,
  });
}

/** Our own delay, or the partner's Retry-After when that is longer, on any answer (decision 23, F09). */
function later(ms: number, facts: AnswerFacts, around: Surroundings): number {
  return Math.max(ms, retryAfter(facts, around) ?? 0);
}

/** Jitter only upwards: earlier would not be what was asked for. */
function retryAfter(facts: AnswerFacts, { random }: Surroundings): number | undefined {
  return facts.retryAfterMs === undefined ? undefined : facts.retryAfterMs * (1 + random() * 0.1);
}
