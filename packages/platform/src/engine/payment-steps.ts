/**
 * What happens to a payment next: one pure function from the payment and an event to a decision.
 *
 * enters: what memory holds of a payment, an event (an answer of the partner, judged by outcome.ts, or of the funding port), the
 *         state of the partner's queue, the time and a source of randomness.
 * leaves: a decision: what to remember, what the answer says about the partner, the one write, and when the next step is due.
 * holds:  no clock, no network, no database, so that a simulator runs the same rules as production.
 *
 * The life of a payment, by `stage`. `created`: the intent is durable; the next step authorizes the funds, if the
 * method reserves any (earlier versions wrote `authorized` after it). `dispatching`: a PUT may have left; the next step is the PUT. `accepted`: the
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
import type { Authorization, Collection, Hold, SettledFunds } from '../funding.ts';
import {
  NO_REASON,
  reasonText,
  type Acceptance,
  type Anomaly,
} from '../partners/payment-record.ts';
import type { Ending, StepWrite } from '../store/steps.ts';
import type { EngineTimes } from './options.ts';
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
  /** A PUT may have left before this database knew of the payment, whatever its stage says. */
  readonly maybeSent: boolean;
  /** Why its funds were declined, while its partner is asked whether it has the payment anyway. */
  declined: string | undefined;
  /** The partner's id, once it has told one. */
  payment_id: string | null;
  /** Monotonic time of acceptance, in milliseconds. */
  acceptedAt: number;
  /** Its age since the acceptance, in milliseconds, at the last poll that found it processing. */
  processingMs: number;
  /** Polls since acceptance. */
  polls: number;
  /** Failures in a row. */
  tries: number;
  /** Monotonic time of the last failure since the partner last answered this payment normally. */
  failedAt: number | undefined;
  /** Consecutive failures of this payment alone: the partner answered others normally meanwhile. */
  ownFaults: number;
  /** Answers about another payment since the last right one, at most three: crossed on a connection, or wrong (F27). */
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
  if (payment.declined !== undefined) return 'poll';
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
  /** Monotonic times at which the call was due, and at which it left. */
  readonly dueAt: number;
  readonly startedAt: number;
  /** What Retry-After asked for, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The partner held the answer back, as `Prefer: wait` asked (decision 24). */
  readonly waited: boolean;
  /** It was asked to. */
  readonly askedToWait: boolean;
}

/** The events of a payment. */
export type PaymentEvent =
  /** The port's answer. */
  | Authorization
  | { readonly kind: 'funding_failed' }
  /** `settled`: what became of the funds, where the payment's status does not say it. */
  | { readonly kind: 'funds_settled'; readonly settled?: SettledFunds | undefined }
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
  /** How long a call of a process that died may still be under way. */
  readonly callsEndMs: number;
  /** When the payment's method takes the money. */
  readonly collection: Collection;
  /** Codes of this partner that refuse a payment for good (decision 21). */
  readonly refusals: readonly string[];
  /** How long this partner takes to end its payments. */
  readonly settlements: SettlementTimes;
  /** The next read may ask the partner to wait. */
  readonly canWait: boolean;
  /** Monotonic time at which the partner last answered any payment normally. */
  readonly workedAt: number;
}

/** The delays of a payment. */
type StepTimes = Pick<EngineTimes, 'retryMs' | 'maxRetryMs' | 'pollMs' | 'trialMs'>;

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
      readonly hold?: HoldReason | undefined;
    };

/**
 * What to do, in this order: `signal`, `breach`, `memory`, `write`, and, when the write changed the row, `next`. The next step need
 * not wait for the write of an acceptance: the partner has the payment, and a crash before that write only repeats the PUT (RU5).
 */
export interface Decision {
  readonly signal?: PartnerSignal | undefined;
  /** A breach of the interface to count and to log. */
  readonly breach?: string | undefined;
  /** How long the partner took for this payment, in milliseconds, where that is known: its polls are planned by it. */
  readonly tookMs?: number | undefined;
  readonly memory: Partial<PaymentMemory>;
  /** Answers were crossed on a connection: discard all open connections (F27). */
  readonly resetConnections?: boolean;
  readonly write?: StepWrite | undefined;
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
/** Answers about other payments, with no right one in between, after which the partner itself is taken to be wrong (F27). */
const CROSSED_TRIES = 4;
/** Up to this age an open read replaces polls; beyond it, a connection would be held for a payment that nobody is waiting for. */
export const WAITING_AGE_MS = 10 * 60_000;

type Payment = Readonly<PaymentMemory>;

const WORKS: PartnerSignal = { kind: 'works' };
/** What a normal answer about the payment resets. */
const ANSWERED = { tries: 0, failedAt: undefined, ownFaults: 0, crossed: 0 } as const;

/** Decides what an event leads to. Pure. */
export function decide(payment: Payment, event: PaymentEvent, around: Surroundings): Decision {
  switch (event.kind) {
    case 'authorized': {
      // The hold is written with `dispatching`, when the PUT leaves.
      const hold: Hold = event.expires_at === undefined ? {} : { expires_at: event.expires_at };
      return { memory: { tries: 0, hold }, next: 0 };
    }
    case 'declined':
      // What was never sent fails. What may have been sent may be posted (PL5): its partner is asked, once no call can be under way any
      // more that would bring it there after the answer.
      if (!payment.maybeSent) return failsUnsent(event.reason);
      return { memory: { declined: event.reason, tries: 0 }, next: around.callsEndMs };
    case 'waits':
      return { memory: { tries: 0 }, next: event.afterMs };
    case 'funding_failed': {
      const tries = payment.tries + 1;
      return { memory: { tries }, next: retryIn(tries, around) };
    }
    case 'funds_settled':
      return { memory: {}, write: { kind: 'settle', settled: event.settled }, next: 'forget' };
    case 'submitted':
      return learnt(payment, event.outcome, event.facts, around);
    case 'rejected':
      return rejected(payment, event, around);
    case 'polled':
      return polled({ ...payment, polls: payment.polls + 1 }, event, around);
  }
}

function failsUnsent(reason: string): Decision {
  const write = { kind: 'end', by: 'funding', ending: failedEnding(reason) } as const;
  return { memory: { tries: 0 }, write, next: 0 };
}

/** Of a payment whose funds were declined, and which its partner may have: only what the partner itself says of it lets it fail. */
function lookedFor(
  payment: Payment,
  reason: string,
  outcome: PollOutcome,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  // One that failed or was canceled there needs no money: it ends as its partner says.
  if (outcome.kind === 'ended' && outcome.ending.status !== 'succeeded')
    return learnt(payment, outcome, facts, around);
  switch (outcome.kind) {
    case 'not_found':
      return outcome.believed
        ? { ...failsUnsent(reason), signal: WORKS }
        : failed(payment, 'not_found', undefined, facts, around);
    case 'unknown':
    case 'held':
      return learnt(payment, outcome, facts, around);
    case 'processing':
    case 'incomplete':
    case 'ended':
    case 'mismatch': {
      const review_reason = 'declined_after_loss';
      const write = { kind: 'advance', to: 'review', review_reason, detail: { reason } } as const;
      return { signal: WORKS, memory: {}, write, next: 'forget' };
    }
  }
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
  payment: Payment,
  { rejection, found, facts }: Extract<PaymentEvent, { kind: 'rejected' }>,
  around: Surroundings,
): Decision {
  if (found.kind !== 'not_found') return learnt(payment, found, facts, around);
  const { code, message, status } = rejection;
  // Only an operator may end a payment that the partner once accepted: it may have been posted before the partner lost it.
  const isFinal = code !== undefined && around.refusals.includes(code);
  if (!isFinal || !found.believed || payment.payment_id !== null) {
    return review(`rejected_${status}${code === undefined ? '' : `_${code}`}`, message);
  }
  return {
    signal: WORKS,
    memory: { tries: 0 },
    write: {
      kind: 'end',
      by: 'refusal',
      ending: failedEnding(message ?? NO_REASON),
      settles: around.collection === 'elsewhere',
    },
    next: 0,
  };
}

function polled(
  payment: Payment,
  { outcome, facts }: Extract<PaymentEvent, { kind: 'polled' }>,
  around: Surroundings,
): Decision {
  const { polls, declined: why } = payment;
  if (why !== undefined) return lookedFor(payment, why, outcome, facts, around);
  if (outcome.kind !== 'not_found') {
    const isFound = outcome.kind === 'processing' || outcome.kind === 'incomplete';
    const processingMs = Math.floor(facts.startedAt - payment.acceptedAt);
    const found = {
      polls,
      ...(isFound && { losses: 0 }),
      ...(outcome.kind === 'processing' && { processingMs }),
    };
    const decision = learnt({ ...payment, ...found }, outcome, facts, around);
    return { ...decision, memory: { ...found, ...decision.memory } };
  }
  // Accepted earlier, now a 404: a breach that proves nothing. Send the same PUT again (F15, decision 22). If the partner itself
  // says that it does not know the payment, record that: it may then accept it under a new id.
  const losses = payment.losses + 1;
  const reason = 'accepted_payment_not_found';
  // A partner that takes the same PUT again and again, and knows nothing of it when it is asked, does so until a person asks why.
  if (outcome.believed && losses > MAX_LOSSES) {
    return { ...review(reason), memory: { polls, losses } };
  }
  const fault = ownFault(payment, around);
  return {
    signal: WORKS,
    breach: reason,
    memory: { ...fault, polls, losses, resubmit: true },
    write: outcome.believed
      ? { kind: 'advance', to: 'dispatching', detail: { reason } }
      : undefined,
    next: later(retryIn(Math.max(fault.tries, losses), around), facts, around),
  };
}

/** What an answer about the payment leads to, PUT and GET alike. */
function learnt(
  payment: Payment,
  outcome: AnswerOutcome,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  switch (outcome.kind) {
    case 'processing': {
      const accepted = acceptance(payment, outcome.acceptance, around);
      const { anomaly } = outcome;
      const memory = { ...ANSWERED, resubmit: false, anomaly, ...accepted?.memory };
      const ms = Math.max(
        pollIn({ ...payment, ...memory }, facts, around),
        // PUT and poll of a payment that the partner has lost must not follow each other at once for ever.
        payment.losses === 0 ? 0 : retryIn(payment.losses, around),
      );
      return {
        signal: WORKS,
        breach: newAnomaly(payment, anomaly),
        memory,
        write: accepted?.write,
        next: later(ms, facts, around),
      };
    }
    case 'ended':
      return {
        signal: WORKS,
        breach: newAnomaly(payment, outcome.anomaly),
        tookMs: tookMs(payment, outcome.ending, facts, around),
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
      const breach = 'succeeded_without_posted_at';
      const grace = payment.grace + 1;
      if (grace > GRACE_POLLS && payment.stage === 'accepted') {
        return { ...review(breach), memory: { grace } };
      }
      const accepted = acceptance(payment, outcome.acceptance, around);
      return {
        signal: WORKS,
        breach,
        memory: { ...ANSWERED, grace, ...accepted?.memory },
        write: accepted?.write,
        next: later(around.times.pollMs, facts, around),
      };
    }
    case 'mismatch':
      return outcome.field === 'platform_payment_id' && payment.crossed + 1 < CROSSED_TRIES
        ? crossed(payment, around)
        : review(`mismatch_${outcome.field}`);
    case 'held':
      return failed(payment, outcome.reason, outcome.reason, facts, around);
    case 'unknown':
      // Our own stop ended a waiting read, or connections were replaced: the call is repeated.
      return outcome.reason === 'stopped'
        ? { memory: {}, next: around.times.retryMs }
        : failed(payment, outcome.reason, undefined, facts, around);
  }
}

/** What records the acceptance; undefined when it was recorded before. */
function acceptance({ stage }: Payment, accepted: Acceptance, { now }: Surroundings) {
  if (stage === 'accepted') return undefined;
  return {
    memory: { acceptedAt: now, polls: 0, payment_id: accepted.payment_id },
    write: { kind: 'advance', to: 'accepted', ...accepted },
  } as const;
}

/**
 * How long the partner took for a payment that has ended, in milliseconds; undefined where nobody can tell. A read that was held ended
 * with the payment. Both times of the record come from the partner's own clock, so their difference is exact whatever that clock shows.
 * It is believed if it lies between the poll that last found the payment processing and the time at which this one was due: some partners
 * date a posting back, and some by the poll that asks for it, which polls planned by it would make later and later.
 */
function tookMs(
  { stage, tries, acceptedAt, processingMs }: Payment,
  { posted_at, initiated_at }: Ending,
  { askedToWait, dueAt }: AnswerFacts,
  { now }: Surroundings,
): number | undefined {
  if (askedToWait) return now - acceptedAt;
  if (posted_at === null || initiated_at === null) return undefined;
  const ms = Date.parse(posted_at) - Date.parse(initiated_at);
  const dueMs = stage === 'accepted' && tries === 0 ? dueAt - acceptedAt : Infinity;
  return ms >= processingMs && ms < dueMs ? ms : undefined;
}

/**
 * The answer is about another payment, perhaps crossed on a connection. Ask again on fresh connections, a few times, before involving
 * an operator (F27): a gateway that mixes up one answer in ten does so twice in a row for one payment in a hundred.
 */
function crossed(payment: Payment, around: Surroundings): Decision {
  const fault = ownFault(payment, around);
  return {
    breach: 'crossed_answer',
    memory: { ...fault, crossed: payment.crossed + 1 },
    resetConnections: true,
    next: retryIn(fault.tries, around),
  };
}

/** A failure that concerns this payment alone. */
function ownFault({ tries, ownFaults }: Payment, { now }: Surroundings) {
  return { tries: tries + 1, failedAt: now, ownFaults: ownFaults + 1 };
}

/**
 * The outcome is unknown, or the call was refused as a whole (`hold`: 401, 403 and the like), which usually concerns every payment of the
 * partner. But if the partner keeps answering others, it fails only this payment: this one waits, and the others do not (LV3).
 */
function failed(
  payment: Payment,
  reason: UnknownReason | HoldReason,
  hold: HoldReason | undefined,
  facts: AnswerFacts,
  around: Surroundings,
): Decision {
  const tries = payment.tries + 1;
  const { status, retryAfterMs } = facts;
  // Without an answer a refusal is that of the token endpoint or of our own guard, and concerns them all.
  const ownFaults = hold && status === undefined ? 0 : countOwn(payment, facts, around);
  // 429 that names no time concerns the payments that get it: each keeps a growing delay of its own.
  const isOwn = ownFaults > 0 || (reason === 'too_many_requests' && retryAfterMs === undefined);
  const isAnswer = !hold && status !== undefined;
  const refusedAlone = isOwn && hold ? `refused_alone_${hold}` : undefined;
  // One that fails as the others do has to be there as soon as the partner's breaker, which bounds the calls, allows a trial.
  const longestMs = isOwn ? Infinity : around.times.trialMs;
  return {
    signal: isOwn ? undefined : { kind: 'fails', reason, isAnswer, hold },
    breach: reason === 'redirect' ? reason : refusedAlone,
    memory: { tries, failedAt: around.now, ownFaults },
    next: later(Math.min(retryIn(tries, around), longestMs), facts, around),
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
  { failedAt, ownFaults }: Payment,
  { startedAt }: AnswerFacts,
  { workedAt, now }: Surroundings,
): number {
  if (workedAt > (failedAt ?? startedAt)) return ownFaults + 1;
  const isSuspected = ownFaults > 0 && now - workedAt < SUSPECTED_MS;
  return isSuspected || ownFaults >= PROVEN_FAULTS ? ownFaults : 0;
}

function review(review_reason: string, rejection_message?: string): Decision {
  return {
    signal: WORKS,
    breach: review_reason,
    memory: {},
    write: { kind: 'advance', to: 'review', review_reason, rejection_message },
    next: 'forget',
  };
}

function newAnomaly(payment: Payment, anomaly: Anomaly | undefined): Anomaly | undefined {
  return payment.anomaly === anomaly ? undefined : anomaly;
}

function retryIn(tries: number, { random, times }: Surroundings): number {
  return retryMs(tries, random(), times.retryMs, times.maxRetryMs);
}

function pollIn(payment: Payment, facts: AnswerFacts, around: Surroundings): number {
  const age = around.now - payment.acceptedAt;
  // An open read replaces polls while the partner holds it; the first poll finds out whether it does.
  if (age < WAITING_AGE_MS && around.canWait && (facts.waited || payment.polls === 0)) return 0;
  const { settlements, times, random } = around;
  return nextPollMs(settlements, age, payment.polls, random(), times.pollMs);
}

/**
 * The longer of our own delay and the partner's Retry-After, on any answer (decision 23, F09), with jitter that only adds: calling
 * earlier would ignore the request.
 */
function later(ms: number, { retryAfterMs }: AnswerFacts, { random }: Surroundings): number {
  return retryAfterMs === undefined ? ms : Math.max(ms, retryAfterMs * (1 + random() * 0.1));
}
