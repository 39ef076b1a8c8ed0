/**
 * What this worker knows of one partner: its queue of calls, its part of the partner's budget, how long its payments take, whether it
 * applies `Prefer: wait`, and why it is held.
 *
 * enters: what the answers of its payments say about the partner as a whole (payment-steps.ts).  leaves: the state of its queue, lines
 *         in the log, a note for operators in its row.
 * holds:  no payment waits for a note, and one is written at a time.
 */
import { messageOf } from '@duebridge/runtime';
import type { Partner } from '../partners/registry.ts';
import { CallQueue, type Due } from './call-queue.ts';
import type { WorkerGround } from './options.ts';
import type { HoldReason } from './outcome.ts';
import type { PartnerSignal } from './payment-steps.ts';
import { SettlementTimes } from './poll-schedule.ts';

/** A partner that does not apply Prefer: wait is asked again after this, since it may have been upgraded. */
const ASK_TO_WAIT_AGAIN_MS = 10 * 60_000;

/** This worker among those that live: `rank` is its place in the order of their ids. */
export interface Part {
  readonly of: number;
  readonly rank: number;
}

/** One partner, as one worker calls it. */
export class PartnerCalls<T extends Due> {
  readonly partner_id: string;
  readonly queue: CallQueue<T>;
  readonly settlements = new SettlementTimes();
  /** Waiting reads under way: at most half of the places, so that plain calls always find room. */
  waiting = 0;
  /** Whether the partner applies Prefer: wait; undefined until it has answered one. */
  waits: boolean | undefined;
  /** Monotonic time at which it was last asked to wait. */
  askedToWaitAt = Number.NEGATIVE_INFINITY;
  readonly #on: WorkerGround;
  #budget: Pick<Partner['budget'], 'max_concurrent_calls' | 'max_calls_per_second'> = {
    // Until the registration has been read: the first call reads it.
    max_concurrent_calls: 1,
    max_calls_per_second: 1,
  };
  #part: Part;
  /** Why the partner is held, while a note of it is being written. */
  #toNote: string | null | undefined;

  constructor(on: WorkerGround, partner_id: string, part: Part) {
    this.#on = on;
    this.partner_id = partner_id;
    this.#part = part;
    this.queue = new CallQueue(on.times.trialMs, { places: 1, rate: 1 });
  }

  /** What the partner allows all workers together, per second. */
  get callsPerSecond(): number {
    return this.#budget.max_calls_per_second;
  }

  /** Sets what the partner allows all workers together. True if that is news. */
  applyBudget(budget: Partner['budget']): boolean {
    if (budget === this.#budget) return false;
    this.#budget = budget;
    // A step of a payment is two calls at most, of which one may wait.
    this.queue.callMs = 2 * budget.call_timeout_ms + 1_000 * budget.wait_seconds;
    this.applyPart(this.#part);
    return true;
  }

  /** Divides the budget by the workers that live. Each has one place at least, or its payments would never move. */
  applyPart(part: Part): void {
    this.#part = part;
    const { max_concurrent_calls: places, max_calls_per_second: rate } = this.#budget;
    const { of, rank } = part;
    this.queue.places = Math.max(1, Math.floor(places / of) + (rank < places % of ? 1 : 0));
    this.queue.rate = rate / of;
  }

  /**
   * Whether a read may ask to wait now. Until the partner is known to apply it, only one read at a time asks, because a waiting
   * read notices a stalled partner only after its wait.
   */
  canWait(partner: Partner | undefined, now: number): boolean {
    if (partner === undefined || partner.budget.wait_seconds <= 0) return false;
    if (this.queue.isTroubled || this.waiting >= Math.floor(this.queue.places / 2)) return false;
    if (this.waits === true) return true;
    if (this.waiting > 0) return false;
    return this.waits === undefined || now - this.askedToWaitAt >= ASK_TO_WAIT_AGAIN_MS;
  }

  /** Acts on what an answer says about the partner as a whole. True if calls that were held back may start. */
  heed(partner: Partner, biller_id: string, signal: PartnerSignal): boolean {
    const { clock, log, metrics } = this.#on;
    const { partner_id, queue } = this;
    const now = clock.monotonic();
    if (signal.kind === 'works') {
      const isBack = queue.worked(biller_id, now);
      if (isBack) {
        log.info({ partner_id, biller_id }, 'partner recovered');
        metrics.broken(partner_id, queue.isTroubled);
      }
      if (partner.pause_reason !== null || this.#toNote !== undefined) void this.#note(null);
      return isBack;
    }
    const { reason, hold } = signal;
    const opened = queue.failed(biller_id, now, clock.random(), signal.isAnswer);
    if (opened !== undefined) {
      const what = opened === 'all' ? { partner_id, reason } : { partner_id, biller_id, reason };
      log.error(what, 'the partner is failing; one call at a time is tried until one succeeds');
      metrics.broken(partner_id, true);
    }
    // Not when it opens, so that a partner that falters fills no audit, unless an operator has to act.
    const isNoted = hold === undefined ? queue.isDown(now) && !isHoldText(partner) : queue.isOut;
    const note = HOLD_TEXTS[hold ?? 'down'];
    if (isNoted && partner.pause_reason !== note) void this.#note(note);
    return false;
  }

  /**
   * Notes for operators why the partner is held, or null when it no longer is. One write at a time: every answer of the partner asks for
   * it, and while something locks the partner's row the writes would take all connections of the engine. If the last one fails, the
   * next refusal, or the next normal answer, repeats it.
   */
  async #note(reason: string | null): Promise<void> {
    const { log, registry, workerId } = this.#on;
    const { partner_id } = this;
    const isUnderWay = this.#toNote !== undefined;
    this.#toNote = reason;
    if (isUnderWay) return;
    let noted: string | null | undefined;
    while (noted !== this.#toNote) {
      noted = this.#toNote;
      try {
        await registry.hold(partner_id, noted, workerId);
      } catch (error) {
        log.warn({ partner_id, error: messageOf(error) }, 'could not note why a partner is held');
      }
    }
    this.#toNote = undefined;
  }
}

const TRIED = 'one call at a time is tried until one succeeds.';
/** What an operator sees next to a partner that stays down or whose calls he has to make possible again, and in the story of its payments. */
const HOLD_TEXTS: Readonly<Record<HoldReason | 'down', string>> = {
  down: `The partner does not answer, or answers with errors; ${TRIED}`,
  credentials: `The partner refuses the credentials; ${TRIED}`,
  scope: `The credentials do not cover what is asked (scope); ${TRIED}`,
  certificate: `The certificate of the partner is not valid; ${TRIED}`,
  address: `The host resolves to an address that may not be called; ${TRIED}`,
};

/** Whether an operator reads already that he has to act; that the partner also fails does not replace it. */
function isHoldText({ pause_reason }: Partner): boolean {
  const { down: _, ...toActOn } = HOLD_TEXTS;
  return Object.values(toActOn).includes(pause_reason ?? '');
}
