/**
 * The payments that this replica has claimed for the biller's own system: claims them, keeps what is known of each, stores the outcomes
 * that the system reports, and decides about cancels.
 *
 * enters:  payments that are to be handed over, outcomes, cancels of this replica and of others.
 * leaves:  permission to hand a payment over, ended rows to `announce` after their commit.
 * holds:   claim-steps.ts decides every move, and a move follows the commit that it stands for. What is not in memory is read from
 *          the row as claimed before, so of unknown outcome.
 */
import { groupCommit, type Clock, type Database, type Log } from '@duebridge/runtime';
import type { CheckedOutcome } from './account-system.ts';
import { refusals, type Rules } from './business-rules.ts';
import {
  cancelPayment,
  dropCancelRequest,
  findCancelRequests,
  isCancelRequested,
  requestCancel,
  type CancelOutcome,
  type ClaimedOutcome,
} from './cancel.ts';
import { isInUse, step, type ClaimEvent, type ClaimState } from './claim-steps.ts';
import { claimPayments, findHeld, type Lease } from './claims.ts';
import type { KitMetrics } from './metrics.ts';
import { endOf, type Tried } from './poster.ts';
import {
  endPayments,
  findPayments,
  lockPayments,
  postponePayments,
  writeAudit,
  type PaymentEnd,
  type PaymentRow,
  type UnfinishedPayment,
} from './store.ts';

/** Maximum payments in one statement, and waiting for one: several wait for their commit together. */
const group = { maxBatch: 512, maxQueued: 100_000 };
/** How long a cancel waits for the replica that has claimed the payment, and how often it looks, in milliseconds. */
const askCancelMs = { atMost: 5_000, pause: 100 };
/** Maximum payments that one look for those that ended elsewhere asks about; the next look goes on with others. */
const FORGET_ROWS = 1_000;

/** What these payments depend on. */
export interface ClaimedPaymentsOptions {
  readonly database: Database;
  readonly rules: Rules;
  readonly lease: Lease;
  readonly announce: (ended: readonly PaymentRow[]) => void;
  readonly metrics: KitMetrics;
  readonly log: Log;
  readonly clock: Clock;
}

/** The claimed payments of this replica. */
export class ClaimedPayments {
  readonly #on: ClaimedPaymentsOptions;
  readonly #states = new Map<string, ClaimState>();
  readonly #claims;
  readonly #held;
  readonly #ends;

  constructor(options: ClaimedPaymentsOptions) {
    const { clock } = options;
    this.#on = options;
    this.#claims = groupCommit({ ...group, clock, flush: (list: Claim[]) => this.#claim(list) });
    this.#held = groupCommit({ ...group, clock, flush: (list: Claim[]) => this.#findHeld(list) });
    this.#ends = groupCommit({ ...group, clock, flush: (list: PaymentEnd[]) => this.#end(list) });
  }

  /** How many are in one of these states. */
  count(...kinds: ClaimState['kind'][]): number {
    let count = 0;
    for (const { kind } of this.#states.values()) if (kinds.includes(kind)) count += 1;
    return count;
  }

  isInUse(id: string): boolean {
    return isInUse(this.#states.get(id));
  }

  isUnknown(id: string): boolean {
    return this.#states.get(id)?.kind === 'unknown';
  }

  /**
   * Claims a payment, or sees that the claim still holds. Returns the id of the lease under which it does; or what became of the
   * payment instead: it has ended, or another replica, a call or a cancel has it.
   */
  async claim(payment: UnfinishedPayment): Promise<{ readonly under: string } | Tried> {
    const id = payment.platform_payment_id;
    const by = await this.#on.lease.hold();
    if (this.isInUse(id)) return { result: 'busy' };
    // A payment claimed at an earlier attempt is only read: asking again for many that were postponed writes nothing.
    const isMine = payment.claimed_by === by;
    const claimed = await (isMine ? this.#held : this.#claims).add({ id, by });
    if (claimed === 'ended') this.#states.delete(id);
    if (claimed === 'ended') return { result: 'done' };
    if (claimed === 'busy' || !this.#move(id, claimed)) return { result: 'busy' };
    return { under: by };
  }

  /** Permits one call for a payment claimed under this lease, in the same moment; false when it must not be made. */
  mayCall(id: string, under: string, isAbsent: boolean): boolean {
    return this.#on.lease.covers(under) && this.#move(id, { kind: 'call', isAbsent });
  }

  /** A call ended without an outcome, or it could not be stored. */
  lose(id: string): void {
    this.#move(id, { kind: 'lost' });
  }

  /** Stores an outcome. Throws when it could not be stored: then the system has to be asked again. */
  async record(id: string, outcome: CheckedOutcome): Promise<Tried> {
    const end = endOf(id, outcome);
    if (end) {
      if (!(await this.#ends.add(end))) await this.#noteContradiction(end);
      this.#states.delete(id);
      return { result: 'done' };
    }
    const { until, cancelable } = outcome as CheckedOutcome & { outcome: 'later' };
    if (until !== null) {
      await postponePayments(this.#on.database, [{ platform_payment_id: id, until }]);
    }
    this.#move(id, { kind: 'later', cancelable });
    return { result: 'later', until };
  }

  /** Cancels a payment that a replica has claimed: here, or by asking the replica that has it. */
  async cancel(
    { by, payment }: ClaimedOutcome,
    actor: string,
    reason: string,
  ): Promise<CancelOutcome> {
    const { database, lease, clock } = this.#on;
    const id = payment.platform_payment_id;
    if (by === lease.replica_id) {
      const outcome = await this.#cancelMine(id, actor, reason);
      return outcome.outcome === 'claimed' ? { outcome: 'too_late', payment } : outcome;
    }
    await requestCancel(database, id, by, actor, reason);
    const until = clock.monotonic() + askCancelMs.atMost;
    while (clock.monotonic() < until && (await isCancelRequested(database, id))) {
      await clock.sleep(askCancelMs.pause);
    }
    await dropCancelRequest(database, id);
    const now = (await findPayments(database, [id])).get(id) ?? payment;
    return { outcome: now.status === 'canceled' ? 'canceled' : 'too_late', payment: now };
  }

  /** Answers the cancels that other replicas asked for; returns the rows of those canceled. */
  async answerCancels(): Promise<PaymentRow[]> {
    const { database, lease } = this.#on;
    const canceled: PaymentRow[] = [];
    for (const request of await findCancelRequests(database, lease.replica_id)) {
      const { platform_payment_id: id, actor, reason } = request;
      const outcome = await this.#cancelMine(id, actor, reason);
      if (outcome.outcome === 'canceled') canceled.push(outcome.payment);
      else await dropCancelRequest(database, id);
    }
    return canceled;
  }

  /** Forgets payments that ended elsewhere (`settle`, at any replica), or that another replica has claimed since. */
  async forgetEnded(): Promise<void> {
    const { database, lease } = this.#on;
    const ids = [...this.#states.keys()].filter((id) => !this.isInUse(id)).slice(0, FORGET_ROWS);
    if (ids.length === 0) return;
    const own = await findHeld(database, ids, lease.replica_id);
    for (const id of ids) {
      const state = this.#states.get(id);
      if (state === undefined || isInUse(state)) continue;
      this.#states.delete(id);
      // At the end: the next look begins with others.
      if (own.has(id)) this.#states.set(id, state);
    }
  }

  #move(id: string, event: ClaimEvent): boolean {
    const next = step(this.#states.get(id), event);
    if (next) this.#states.set(id, next);
    return next !== undefined;
  }

  async #claim(list: readonly Claim[]): Promise<Claimed[]> {
    const { database, rules, announce } = this.#on;
    const ids = list.map(({ id }) => id);
    const by = list[0]?.by ?? '';
    const { claimed, failed, still } = await database.transaction(async (tx) => {
      const locked = await lockPayments(tx, ids);
      const found = locked.map((payment) => payment.platform_payment_id);
      const isFirst = await claimPayments(tx, found, by);
      // A payment that was handed over before may already be posted there: no rule may fail it now.
      const fresh = locked.filter((payment) => isFirst.get(payment.platform_payment_id));
      const refused = await refusals(tx, rules, fresh);
      return {
        claimed: isFirst,
        failed: refused.size === 0 ? [] : await endPayments(tx, [...refused.values()]),
        still: new Set(found.filter((id) => !refused.has(id))),
      };
    });
    announce(failed);
    return list.map((one) => {
      if (!still.has(one.id)) return 'ended';
      const isFirst = claimed.get(one.id);
      // Claims of two leases in one group: the lease was lost in between.
      return isFirst === undefined || one.by !== by ? 'busy' : { kind: 'claimed', isFirst };
    });
  }

  async #findHeld(list: readonly Claim[]): Promise<Claimed[]> {
    const by = list[0]?.by ?? '';
    const ids = list.map(({ id }) => id);
    const own = await findHeld(this.#on.database, ids, by);
    return list.map((one) => {
      if (one.by !== by) return 'busy';
      return own.has(one.id) ? { kind: 'held' } : 'ended';
    });
  }

  /** Ends payments; returns for each whether it was still processing. */
  async #end(list: readonly PaymentEnd[]): Promise<boolean[]> {
    const ended = await endPayments(this.#on.database, list);
    this.#on.announce(ended);
    const ids = new Set(ended.map((row) => row.platform_payment_id));
    return list.map((end) => ids.has(end.platform_payment_id));
  }

  /** The system reports another end than the one recorded (settle came first): log it and count it. */
  async #noteContradiction(end: PaymentEnd): Promise<void> {
    const { database, metrics, log } = this.#on;
    const id = end.platform_payment_id;
    const stored = (await findPayments(database, [id])).get(id);
    if (!stored || stored.status === end.status) return;
    metrics.contradicted.inc();
    log.error(
      { platform_payment_id: id, here: stored.status, there: end.status },
      'the account system reports a different result than the one recorded',
    );
    await writeAudit(database, [
      {
        platform_payment_id: id,
        actor: 'account system',
        event: 'contradicted',
        detail: { status: end.status },
      },
    ]);
  }

  async #cancelMine(
    id: string,
    actor: string,
    reason: string,
  ): Promise<CancelOutcome | ClaimedOutcome> {
    const { database, lease } = this.#on;
    if (!this.#move(id, { kind: 'cancel' })) return cancelPayment(database, id, actor, reason);
    try {
      const outcome = await cancelPayment(database, id, actor, reason, lease.replica_id);
      if (outcome.outcome !== 'claimed') this.#states.delete(id);
      else this.#move(id, { kind: 'kept' });
      return outcome;
    } catch (error) {
      this.#move(id, { kind: 'kept' });
      throw error;
    }
  }
}

interface Claim {
  readonly id: string;
  readonly by: string;
}

/** What became of a claim: the event that it is, or that the payment has ended, or is another replica's. */
type Claimed = (ClaimEvent & { kind: 'claimed' | 'held' }) | 'ended' | 'busy';
