/**
 * What happens to a payment next: one pure function from the payment and an event to a decision.
 *
 * enters: what memory holds of a payment, an event (an answer of the partner, judged by outcome.ts, or of the funding port), the
 *         state of the partner's queue, the time and a source of randomness.
 * leaves: a decision: what to remember, what the answer says about the partner, the one write, and when the next step is due.
 * holds:  no clock, no network, no database, so that a simulator runs the same rules as production.
 *
 * The life of a payment, by `stage`. `created`: the intent is durable; the next step authorizes the funds, if the
 * method reserves any. `authorized`: the funds are reserved and the partner cannot be called yet. `dispatching`: a PUT may have left; the next step is the PUT. `accepted`: the
 * partner has it; the next step is a poll, or the same PUT again when the partner no longer finds it. `ended`: the status is
 * terminal; the next step captures or releases the funds, and then the payment is forgotten. `review`: an operator has to look.
 *
 * `dispatching` is written when the first PUT is about to leave, not ahead of it: until then an operator can withdraw the payment
 * (decision 18). A payment whose method reserves nothing begins as `dispatching` if its PUT can leave at once (decision 66). A crash
 * between the insert and the PUT then repeats nothing: whoever takes over sends it.
 *
 * After a crash these calls are repeated. Before `dispatching` is written: the authorization. Between it and the write of the
 * acceptance: the PUT, with the same bytes. Between the acceptance and the end: a poll. Between the end and the settlement: the
 * capture or the release. Funds that are collected elsewhere need no settlement: the end is the last write.
 *
 * One file because it is one decision: every rule that moves a payment is read here, in the order of its life.
 */
import type { PaymentStage, PaymentStatus } from '@duebridge/contract';
import type { Collection, Hold, SettledFunds } from '../funding.ts';
import { reasonText, type Acceptance, type Anomaly } from '../partners/payment-record.ts';
import type { AuditDetail, Ending } from '../store/payments.ts';
import type {
  AnswerOutcome,
  HoldReason,
  PollOutcome,
  SubmitOutcome,
  UnknownReason,
} from './outcome.ts';
import { nextPollMs, retryMs, type SettlementTimes } from './poll-schedule.ts';

/** The in-memory state of a payment in addition to its intent, kept minimal because a worker holds up to a million. */
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
  /** Monotonic time of the last failure since the partner last answered this payment normally. */
  failedAt: number | undefined;
  /** Consecutive failures of this payment alone: the partner answered others normally meanwhile. */
  ownFaults: number;
  /** Answers about another payment since the last right one, at most three: crossed on a connection, or wrong (F50). */
  crossed: number;
  /** Polls that showed succeeded without posted_at. */
  grace: number;
  /** How often the partner answered a poll with 404 since a poll last found the payment, whatever its PUTs were answered. */
  losses: number;
  /** Accepted earlier, now a 404 that may not be the partner's own: the next call is the same PUT (F15). */
  resubmit: boolean;
  /** The funds that the port reserved, as it last said; undefined until it is asked, and once they expire too soon to be relied on. */
  hold: Hold | undefined;
  /** The last anomaly logged: each kind is logged once in a row. */
  anomaly: Anomaly | undefined;
}

/** The call that a payment needs next. */
export type Step = 'authorize' | 'settle' | 'submit' | 'poll';

/** Which call comes next. Pure. */
export function nextStep(payment: Readonly<PaymentMemory>, collection: Collection): Step {
  if (payment.stage === 'ended') return 'settle';
  // A hold is known to this process alone. Whoever takes the payment over asks again: every operation of the port is idempotent.
  if (isUnsent(payment) && collection === 'reserved' && payment.hold === undefined) {
    return 'authorize';
  }
  return payment.stage === 'accepted' && !payment.resubmit ? 'poll' : 'submit';
}

/** No PUT can have left. */
export function isUnsent({ stage }: Pick<PaymentMemory, 'stage'>): boolean {
  return stage === 'created' || stage === 'authorized';
}

/** Facts about an answer apart from the record in it. */
export interface AnswerFacts {
  /** The HTTP status; undefined when there was no reply. */
  readonly status: number | undefined;
  /** Monotonic time at which the call left. */
  readonly startedAt: number;
  /** What Retry-After asked for, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The partner held the answer back, as `Prefer: wait` asked (decision 24). */
  readonly waited: boolean;
}

/** The events of a payment. */
export type PaymentEvent =
  | ({ readonly kind: 'authorized' } & Hold)
  | { readonly kind: 'declined'; readonly reason: string }
  /** The customer or the processor has yet to act on the authorization. */
  | { readonly kind: 'funding_waits'; readonly afterMs: number }
  | { readonly kind: 'funding_failed' }
  /** `settled`: what became of the funds, where the payment's status does not say it. */
  | { readonly kind: 'funds_settled'; readonly settled?: SettledFunds }
  /** The partner answered the PUT. */
  | {
      readonly kind: 'submitted';
      readonly outcome: Exclude<SubmitOutcome, { kind: 'rejected' }>;
      readonly facts: AnswerFacts;
    }
  /** The partner rejected the request as invalid (400, 422), and a GET then asked whether it has the payment anyway (F11). */
  | {
      readonly kind: 'rejected';
      readonly rejection: Extract<SubmitOutcome, { kind: 'rejected' }>;
      readonly found: PollOutcome;
      readonly facts: AnswerFacts;
    }
  | { readonly kind: 'polled'; readonly outcome: PollOutcome; readonly facts: AnswerFacts };

/** What a decision depends on apart from the payment and the event. */
export interface Surroundings {
  /** Monotonic milliseconds. */
  readonly now: number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly times: StepTimes;
  /** When the payment's method takes the money. */
  readonly collection: Collection;
  /** Codes of this partner that refuse a payment for good (decision 21). */
  readonly refusals: readonly string[];
  /** The partner could be called at once: neither paused nor held back. */
  readonly partnerIsOpen: boolean;
  /** How long this partner takes to end its payments. */
  readonly settlements: SettlementTimes;
  /** The next read may ask the partner to wait. */
  readonly canWait: boolean;
  /** Monotonic time at which the partner last answered any payment normally. */
  readonly workedAt: number;
}

/** The delays of a payment in milliseconds; see options.ts. */
export interface StepTimes {
  readonly retryMs: number;
  readonly maxRetryMs: number;
  readonly pollMs: number;
  readonly trialMs: number;
}

/** What an answer says about the partner as a whole. */
export type PartnerSignal =
  | { readonly kind: 'works' }
  /**
   * It failed to answer normally, which counts for its breaker. `isAnswer`: it did answer, and may answer others normally. `hold`: it
   * probably refuses every call until an operator acts.
   */
  | {
      readonly kind: 'fails';
      readonly reason: string;
      readonly isAnswer: boolean;
      readonly hold?: HoldReason;
    };

/** The one write of a step. */
export type StepWrite =
  | {
      readonly kind: 'advance';
      readonly to: 'authorized' | 'dispatching' | 'accepted' | 'review';
      readonly acceptance?: Acceptance;
      readonly review_reason?: string;
      readonly rejection_message?: string;
      readonly detail?: AuditDetail;
      /** Notes in the same statement that these funds are reserved. */
      readonly hold?: Hold | undefined;
    }
  | {
      readonly kind: 'end';
      readonly by: 'partner' | 'refusal' | 'funding';
      readonly ending: Ending;
      /** Nothing is left to do for the funds: they are collected elsewhere. */
      readonly settles?: boolean;
    }
  | { readonly kind: 'settle'; readonly settled?: SettledFunds };

/**
 * What to do, in this order: `signal`, `breaches`, `memory`, `write`, and, when the write changed the row, `next`. The next step need
 * not wait for the write of an acceptance: the partner has the payment, and a crash before that write only repeats the PUT (RU5).
 */
export interface Decision {
  readonly signal?: PartnerSignal;
  /** Breaches of the interface to count and to log. */
  readonly breaches: readonly string[];
  readonly memory: Partial<PaymentMemory>;
  /** Answers were crossed on a connection: discard all open connections (F50). */
  readonly resetConnections?: boolean;
  readonly write?: StepWrite;
  /** Milliseconds until the next step is due; `forget` when there is none. */
  readonly next: number | 'forget';
}

/** Polls that show succeeded without posted_at before the payment goes to review (F35). */
const GRACE_POLLS = 5;
/**
 * How often an accepted payment may not be found before it goes to review: with delays that double up to a minute, a copy that the
 * partner reads from has five minutes to catch up.
 */
const MAX_LOSSES = 12;
/** Answers about other payments, with no right one in between, after which the partner itself is taken to be wrong (F50). */
const CROSSED_TRIES = 4;
/** Up to this age an open read replaces polls; beyond it, a connection would be held for a payment that nobody is waiting for. */
export const WAITING_AGE_MS = 10 * 60_000;

/** Decides what an event leads to. Pure. */
export function decide(
  payment: Readonly<PaymentMemory>,
  event: PaymentEvent,
  around: Surroundings,
): Decision {
  switch (event.kind) {
    case 'authorized':
      return authorized(payment, event, around);
    case 'declined':
      return {
        breaches: [],
        memory: { tries: 0 },
        write: { kind: 'end', by: 'funding', ending: failedEnding(event.reason) },
        next: 0,
      };
    case 'funding_waits':
      return { breaches: [], memory: { tries: 0 }, next: event.afterMs };
    case 'funding_failed': {
      const tries = payment.tries + 1;
      return { breaches: [], memory: { tries }, next: retryIn(tries, around) };
    }
    case 'funds_settled':
      return {
        breaches: [],
        memory: {},
        write: { kind: 'settle', ...(event.settled ? { settled: event.settled } : {}) },
        next: 'forget',
      };
    case 'submitted':
      return learnt(payment, event.outcome, event.facts, around);
    case 'rejected':
      return rejected(payment, event, around);
    case 'polled':
      return polled({ ...payment, polls: payment.polls + 1 }, event, around);
  }
}

const WORKS: PartnerSignal = { kind: 'works' };
const ANSWERED: Partial<PaymentMemory> = {
  tries: 0,
  failedAt: undefined,
  ownFaults: 0,
  crossed: 0,
};

/** The hold is written with `dispatching`, when the PUT leaves; at once only if the payment has to wait for its partner. */
function authorized(
  payment: Readonly<PaymentMemory>,
  { expires_at }: Hold,
  around: Surroundings,
): Decision {
  const hold: Hold = expires_at === undefined ? {} : { expires_at };
  const waits = !around.partnerIsOpen && payment.stage === 'created';
  return {
    breaches: [],
    memory: { tries: 0, hold },
    ...(waits ? { write: { kind: 'advance', to: 'authorized', hold } } : {}),
    next: 0,
  };
}

/** The write with which a payment of which no PUT can have left is sent. Pure. */
export function leaving({ stage, hold }: Pick<PaymentMemory, 'stage' | 'hold'>): StepWrite {
  return { kind: 'advance', to: 'dispatching', ...(stage === 'created' ? { hold } : {}) };
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
    // A processor's words: a NUL among them would be refused by the database, each time anew.
    failure_reason: reasonText(reason) ?? '',
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
  // Only an operator may end a payment that the partner once accepted: it may have been posted before the partner lost it.
  const isFinal = code !== undefined && around.refusals.includes(code);
  if (isFinal && found.believed && payment.payment_id === null) {
    return {
      signal: WORKS,
      breaches: [],
      memory: { tries: 0 },
      write: {
        kind: 'end',
        by: 'refusal',
        ending: failedEnding(message ?? refusalText(code)),
        settles: around.collection === 'elsewhere',
      },
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
    const isFound = outcome.kind === 'processing' || outcome.kind === 'incomplete';
    const found = isFound && payment.losses > 0 ? { losses: 0 } : {};
    const decision = learnt({ ...payment, ...found }, outcome, facts, around);
    return { ...decision, memory: { polls, ...found, ...decision.memory } };
  }
  // Accepted earlier, now a 404: a breach that proves nothing. Send the same PUT again (F15, decision 22). If the partner itself
  // says that it does not know the payment, record that: it may then accept it under a new id.
  const tries = payment.tries + 1;
  const losses = payment.losses + 1;
  const reason = 'accepted_payment_not_found';
  // A partner that takes the same PUT again and again, and knows nothing of it when it is asked, does so until a person asks why.
  if (outcome.believed && losses > MAX_LOSSES) {
    return { ...review(reason), memory: { polls, losses } };
  }
  return {
    signal: WORKS,
    breaches: [reason],
    memory: {
      polls,
      losses,
      tries,
      failedAt: around.now,
      ownFaults: payment.ownFaults + 1,
      resubmit: true,
    },
    ...(outcome.believed
      ? { write: { kind: 'advance', to: 'dispatching', detail: { reason } } }
      : {}),
    next: later(retryIn(Math.max(tries, losses), around), facts, around),
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
      const memory = {
        ...ANSWERED,
        resubmit: false,
        anomaly: outcome.anomaly,
        ...accepts.memory,
      };
      return {
        signal: WORKS,
        breaches: newAnomaly(payment, outcome.anomaly),
        memory,
        ...accepts.write,
        next: later(
          Math.max(pollIn({ ...payment, ...memory }, facts, around), lossIn(payment, around)),
          facts,
          around,
        ),
      };
    }
    case 'ended':
      return {
        signal: WORKS,
        breaches: newAnomaly(payment, outcome.anomaly),
        memory: { ...ANSWERED, anomaly: outcome.anomaly },
        write: {
          kind: 'end',
          by: 'partner',
          ending: outcome.ending,
          settles: around.collection === 'elsewhere',
        },
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
        memory: { ...ANSWERED, grace, ...accepts.memory },
        ...accepts.write,
        next: later(around.times.pollMs, facts, around),
      };
    }
    case 'mismatch':
      return outcome.field === 'platform_payment_id' && payment.crossed + 1 < CROSSED_TRIES
        ? crossed(payment, around)
        : review(`mismatch_${outcome.field}`);
    case 'held':
      return held(payment, outcome.reason, facts, around);
    case 'unknown':
      return unknown(payment, outcome.reason, facts, around);
  }
}

/** Records the acceptance, once. */
function acceptance(
  payment: Readonly<PaymentMemory>,
  accepted: Acceptance,
  around: Surroundings,
): { readonly memory: Partial<PaymentMemory>; readonly write?: { readonly write: StepWrite } } {
  if (payment.stage === 'accepted') return { memory: {} };
  return {
    memory: { acceptedAt: around.now, polls: 0 },
    write: { write: { kind: 'advance', to: 'accepted', acceptance: accepted } },
  };
}

/**
 * The answer is about another payment, perhaps crossed on a connection. Ask again on fresh connections, a few times, before involving
 * an operator (F50): a gateway that mixes up one answer in ten does so twice in a row for one payment in a hundred.
 */
function crossed(payment: Readonly<PaymentMemory>, around: Surroundings): Decision {
  const tries = payment.tries + 1;
  return {
    breaches: ['crossed_answer'],
    memory: {
      tries,
      failedAt: around.now,
      ownFaults: payment.ownFaults + 1,
      crossed: payment.crossed + 1,
    },
    resetConnections: true,
    next: retryIn(tries, around),
  };
}

/**
 * 401, 403 and the like usually concern every payment of the partner. But if the partner keeps answering others, it refuses only this
 * payment: this one waits, and the others do not (LV3).
 */
function held(
  payment: Readonly<PaymentMemory>,
  reason: HoldReason,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  const ownFaults = facts.status === undefined ? 0 : countOwn(payment, facts, around);
  const isOwn = ownFaults > 0;
  const tries = payment.tries + 1;
  return {
    ...(isOwn ? {} : { signal: { kind: 'fails', reason, isAnswer: false, hold: reason } }),
    breaches: isOwn ? [`refused_alone_${reason}`] : [],
    memory: { tries, failedAt: around.now, ownFaults },
    next: later(isOwn ? retryIn(tries, around) : trialIn(tries, around), facts, around),
  };
}

function unknown(
  payment: Readonly<PaymentMemory>,
  reason: UnknownReason,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  // Our own stop ended a waiting read, or connections were replaced: the call is repeated.
  if (reason === 'stopped') return { breaches: [], memory: {}, next: around.times.retryMs };
  const tries = payment.tries + 1;
  const ownFaults = countOwn(payment, facts, around);
  // 429 that names no time concerns the payments that get it: each keeps a growing delay of its own.
  const isOwn =
    ownFaults > 0 || (reason === 'too_many_requests' && facts.retryAfterMs === undefined);
  return {
    ...(isOwn ? {} : { signal: { kind: 'fails', reason, isAnswer: facts.status !== undefined } }),
    breaches: reason === 'redirect' ? ['redirect'] : [],
    memory: { tries, failedAt: around.now, ownFaults },
    next: later(isOwn ? retryIn(tries, around) : trialIn(tries, around), facts, around),
  };
}

/** A payment that has failed alone this often is itself the cause, whatever the partner does meanwhile. */
const PROVEN_FAULTS = 2;
/** A payment that has failed alone once stays under suspicion while the partner has answered others within this time. */
const SUSPECTED_MS = 2_000;

/**
 * Counts a failure as the payment's own if the partner answered others normally since the payment's previous failure, or since this
 * call left. One such failure may be the first of an outage; only the second is proof.
 */
function countOwn(
  payment: Readonly<PaymentMemory>,
  facts: AnswerFacts,
  around: Surroundings,
): number {
  const { failedAt, ownFaults } = payment;
  if (around.workedAt > (failedAt ?? facts.startedAt)) return ownFaults + 1;
  const isSuspected = ownFaults > 0 && around.now - around.workedAt < SUSPECTED_MS;
  return isSuspected || ownFaults >= PROVEN_FAULTS ? ownFaults : 0;
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

/**
 * The delay of a payment that failed as others of the partner do: its breaker bounds the calls, and a payment must be there to be tried
 * as soon as the breaker allows one.
 */
function trialIn(tries: number, around: Surroundings): number {
  return Math.min(retryIn(tries, around), around.times.trialMs);
}

/** The delay of a poll after the partner has lost the payment, so that PUT and poll do not follow each other at once for ever. */
function lossIn({ losses }: Readonly<PaymentMemory>, around: Surroundings): number {
  return losses === 0 ? 0 : retryIn(losses, around);
}

function pollIn(
  payment: Readonly<PaymentMemory>,
  facts: AnswerFacts,
  around: Surroundings,
): number {
  const age = around.now - payment.acceptedAt;
  // An open read replaces polls while the partner holds it; the first poll finds out whether it does.
  if (age < WAITING_AGE_MS && around.canWait && (facts.waited || payment.polls === 0)) return 0;
  return nextPollMs(around.settlements, age, payment.polls, around.random(), {
    firstMs: around.times.pollMs,
  });
}

/** The longer of our own delay and the partner's Retry-After, on any answer (decision 23, F09). */
function later(ms: number, facts: AnswerFacts, around: Surroundings): number {
  return Math.max(ms, retryAfter(facts, around) ?? 0);
}

/** Add jitter only: calling earlier than Retry-After would ignore the request. */
function retryAfter(facts: AnswerFacts, { random }: Surroundings): number | undefined {
  return facts.retryAfterMs === undefined ? undefined : facts.retryAfterMs * (1 + random() * 0.1);
}
