/**
 * What the answers of its payments say about a partner as a whole: its breaker, the note that operators see, breaches, metrics.
 *
 * enters: the signal of a decision (payment-steps.ts).  leaves: the state of the partner's queue, a line in the log, a note in its row.
 * holds:  no payment waits for a note, and one is written at a time for each partner.
 */
import { messageOf, type Clock, type Log } from '@duebridge/runtime';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import type { ActivePayment, PaymentGroup } from './active-payment.ts';
import type { EngineMetrics } from './metrics.ts';
import type { HoldReason } from './outcome.ts';
import type { PartnerCalls } from './partner-calls.ts';
import type { PartnerSignal } from './payment-steps.ts';

/** What heeding a signal depends on. */
interface Dependencies {
  readonly clock: Clock;
  readonly log: Log;
  readonly registry: Pick<PartnerRegistry, 'hold'>;
  readonly metrics: EngineMetrics;
  readonly workerId: string;
  /** Called when a partner that had failed answers again. */
  readonly recovered: (calls: PartnerCalls<ActivePayment>) => void;
}

/** The signals of one worker's partners. */
export class PartnerSignals {
  readonly #on: Dependencies;
  /** Partners whose hold is being noted, and what is to be noted in the end. */
  readonly #holdNotes = new Map<string, string | null>();

  constructor(dependencies: Dependencies) {
    this.#on = dependencies;
  }

  /** Acts on what an answer says about the partner as a whole. */
  heed({ partner: calls, biller_id }: PaymentGroup, partner: Partner, signal: PartnerSignal): void {
    const { clock, log, metrics, recovered } = this.#on;
    const { partner_id, queue } = calls;
    const now = clock.monotonic();
    if (signal.kind === 'works') {
      if (queue.worked(biller_id, now)) {
        log.info({ partner_id, biller_id }, 'partner recovered');
        metrics.broken(partner_id, queue.isTroubled);
        recovered(calls);
      }
      if (partner.pause_reason !== null || this.#holdNotes.has(partner_id)) {
        void this.#noteHold(partner_id, null);
      }
      return;
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
    const note = hold === undefined ? DOWN_TEXT : HOLD_TEXTS[hold];
    if (isNoted && partner.pause_reason !== note) void this.#noteHold(partner_id, note);
  }

  /**
   * Notes for operators why a partner is held, or null when it no longer is. One write at a time: every answer of the partner asks for
   * it, and while something locks the partner's row the writes would take all connections of the engine. If the last one fails, the
   * next refusal, or the next normal answer, repeats it.
   */
  async #noteHold(partner_id: string, reason: string | null): Promise<void> {
    const { log, registry, workerId } = this.#on;
    const isUnderWay = this.#holdNotes.has(partner_id);
    this.#holdNotes.set(partner_id, reason);
    if (isUnderWay) return;
    let noted: string | null | undefined;
    while (noted !== this.#holdNotes.get(partner_id)) {
      noted = this.#holdNotes.get(partner_id) ?? null;
      try {
        await registry.hold(partner_id, noted, workerId);
      } catch (error) {
        log.warn({ partner_id, error: messageOf(error) }, 'could not note why a partner is held');
      }
    }
    this.#holdNotes.delete(partner_id);
  }

  /** Counts and logs a breach of the interface. */
  breach({ platform_payment_id, group }: ActivePayment, kind: string): void {
    const { partner_id } = group.partner;
    this.#on.metrics.breached(partner_id, kind);
    this.#on.log.warn(
      { platform_payment_id, partner_id, kind },
      'the partner violates the interface',
    );
  }
}

/** What an operator sees next to a partner that stays down, and in the story of each payment that waits for it. */
const DOWN_TEXT =
  'The partner does not answer, or answers with errors; one call at a time is tried until one succeeds.';

/** What an operator sees next to a partner whose calls an operator has to make possible again. */
const HOLD_TEXTS: Readonly<Record<HoldReason, string>> = {
  credentials:
    'The partner refuses the credentials; one call at a time is tried until one succeeds.',
  scope:
    'The credentials do not cover what is asked (scope); one call at a time is tried until one succeeds.',
  certificate:
    'The certificate of the partner is not valid; one call at a time is tried until one succeeds.',
  address:
    'The host resolves to an address that may not be called; one call at a time is tried until one succeeds.',
};

/** Whether an operator reads already that he has to act; that the partner also fails does not replace it. */
function isHoldText({ pause_reason }: Partner): boolean {
  return Object.values(HOLD_TEXTS).includes(pause_reason ?? '');
}
