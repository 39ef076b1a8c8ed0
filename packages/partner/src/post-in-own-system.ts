/**
 * Posts payments to the biller's own system, by calls outside any transaction.
 *
 * enters:  payments, one by one; posting.ts says which is next.
 * leaves:  what became of each; ended rows to `announce` after their commit.
 * holds:   an id is in at most one call at a time, at this replica and all living ones; while its outcome is unknown it is posted
 *          only after a look-up that does not know it, and never canceled. An answer counts however late it comes; calls that hang
 *          leave places to others (posting.ts).
 *
 * What is known of a payment stands in its row: it is claimed before its first call, the claim ends with it, and an answer `later`
 * gives the claim back unless it forbids a cancel. So a payment that is claimed already when it is to be called for has an unknown
 * outcome, whether an answer was lost, could not be stored, or a replica died; no memory can disagree (claims.ts).
 *
 * A call beyond its deadline gives its place to others and goes on; its payments stay with it until it returns, or throws after its
 * signal aborted. Only the life of this process bounds a call that does neither; `settle` ends its payments.
 */
import assert from 'node:assert/strict';
import { DatabaseUnavailable, groupCommit } from '@duebridge/runtime';
import {
  checkedOutcome,
  checkedOutcomes,
  describeAccountSystemError,
  toPosting,
  within,
  WrongAnswer,
  type AccountsInOwnSystem,
  type CheckedOutcome,
} from './account-system.ts';
import { refusals } from './business-rules.ts';
import { claimPayments, type Lease } from './claims.ts';
import { endByHand } from './end-by-hand.ts';
import type { Tried, Try, Way, WayOptions } from './posting.ts';
import {
  endPayments,
  lockPayments,
  postponePayments,
  type PaymentEnd,
  type PaymentRow,
  type Postponed,
} from './store.ts';

const defaults = { concurrency: 16, deadlineMs: 10_000 };
/** A call is given up after so many deadlines. */
const DEADLINES = 6;
/** Least deadline of a look-up in milliseconds. It has as long as a call: what is slow to post is slow to look up, and cut off it never ends. */
const LOOKUP_MS = 5_000;
/** Maximum payments in one statement, and waiting for one: several wait for their commit together. */
const group = { maxBatch: 512, maxQueued: 100_000 };

type OwnSystemOptions = WayOptions<AccountsInOwnSystem> & { readonly lease: Lease };

/** Posting by calls of the biller's own system. */
export class InOwnSystem implements Way {
  readonly places: number;
  readonly repeats: number;
  readonly #on: OwnSystemOptions;
  readonly #deadlineMs: number;
  readonly #claims;
  readonly #records;

  constructor(options: OwnSystemOptions) {
    const { concurrency, deadlineMs } = { ...defaults, ...options.accounts.calls };
    assert(concurrency >= 1 && deadlineMs > 0, 'calls needs numbers of at least one');
    this.#on = options;
    this.places = concurrency;
    this.repeats = Math.max(1, Math.floor(concurrency / 2));
    this.#deadlineMs = deadlineMs;
    this.#claims = groupCommit({ ...group, flush: (list: Claim[]) => this.#claim(list) });
    const flush = (list: (PaymentEnd | Postponed)[]): Promise<boolean[]> => this.#store(list);
    this.#records = groupCommit({ ...group, flush });
  }

  /** Claims the payment, looks it up if its outcome is unknown, and posts it. */
  async alone(one: Try): Promise<Tried> {
    const { lease, log, metrics } = this.#on;
    let isAsked = false;
    try {
      const permit = await this.#permit(one.payment);
      if (!('under' in permit)) return permit;
      // At the last moment: a process that was suspended in between may have lost its claims.
      if (one.aborting.signal.aborted || !lease.covers(permit.under)) return { result: 'busy' };
      isAsked = true;
      return await this.#post(one, permit.under);
    } catch (error) {
      // Before the call, that the kit's own database is away says nothing about the payment.
      if (!isAsked && error instanceof DatabaseUnavailable) return { result: 'outage', error };
      if (isAsked) metrics.count('post_errors');
      if (one.isLate) log.warn({ error: describeAccountSystemError(error) }, 'a late call failed');
      return { result: 'failed', error };
    }
  }

  /** Returns the lease under which a call may be made, or what became of the payment without one. */
  async #permit(payment: PaymentRow): Promise<Tried | { readonly under: string }> {
    const id = payment.platform_payment_id;
    const under = await this.#on.lease.hold();
    const claim = await this.#claims.add({ id, by: under });
    if ('result' in claim) return claim;
    if (!claim.is_known && this.#on.accounts.lookup) {
      const known = await this.#lookUp(id);
      if (known !== undefined) return this.#record(id, under, checkedOutcome(known));
    }
    return { under };
  }

  async #lookUp(id: string): Promise<unknown> {
    const { accounts, metrics, clock } = this.#on;
    const began = clock.monotonic();
    const aborting = new AbortController();
    try {
      const asking = Promise.resolve().then(() => accounts.lookup?.(id, aborting.signal));
      const ms = Math.max(LOOKUP_MS, this.#deadlineMs);
      const answer = await within(clock, ms, 'the lookup in the account system', asking);
      metrics.observeCore('lookup', (clock.monotonic() - began) / 1000);
      return answer;
    } finally {
      aborting.abort();
    }
  }

  /** One call of the account system. Throws when its outcome is not known, or could not be stored. */
  async #post(one: Try, under: string): Promise<Tried> {
    const { accounts, clock, metrics } = this.#on;
    const { payment, aborting, late } = one;
    const began = clock.monotonic();
    void this.#after(this.#deadlineMs, one, late);
    void this.#after(this.#deadlineMs * DEADLINES, one, () => aborting.abort());
    const answer = await accounts.post([toPosting(payment)], aborting.signal);
    metrics.observeCore('post', (clock.monotonic() - began) / 1000);
    const [outcome] = checkedOutcomes(answer, 1);
    assert(outcome);
    return this.#record(payment.platform_payment_id, under, outcome);
  }

  /** Does something after `ms`, unless the try is over. */
  async #after(ms: number, { over }: Try, work: () => void): Promise<void> {
    await this.#on.clock.sleep(ms, over);
    if (!over.aborted) work();
  }

  /** Stores an outcome. Throws when it could not be stored: then the system has to be asked again. */
  async #record(id: string, under: string, outcome: CheckedOutcome): Promise<Tried> {
    if (!('status' in outcome)) {
      if (outcome.outcome === 'locked')
        throw new WrongAnswer('locked is for the kit’s transaction');
      const { until, cancelable } = outcome;
      await this.#records.add({ platform_payment_id: id, until, frees: cancelable ? under : null });
      return { result: 'later', until };
    }
    const end = { platform_payment_id: id, ...outcome };
    if (await this.#records.add(end)) return { result: 'done' };
    // `settle` came first.
    await endByHand(this.#on, end, { actor: 'account system', event: 'settled' });
    return { result: 'done' };
  }

  async #claim(list: readonly Claim[]): Promise<(Tried | { readonly is_known: boolean })[]> {
    const { database, rules, announce } = this.#on;
    const by = list[0]?.by ?? '';
    const { ended, claims, failed } = await database.transaction(async (tx) => {
      const all = list.map(({ id }) => id);
      const { rows, held } = await lockPayments(tx, all);
      const ids = rows.map((payment) => payment.platform_payment_id);
      const own = await claimPayments(tx, ids, by);
      // A payment that was handed over before may already be posted there: no rule may fail it now.
      const fresh = rows.filter((payment) => own.get(payment.platform_payment_id)?.is_first);
      const broken = await refusals(tx, rules, fresh);
      return {
        claims: own,
        ended: new Set(all.filter((id) => broken.has(id) || !(held.has(id) || ids.includes(id)))),
        failed: broken.size === 0 ? [] : await endPayments(tx, [...broken.values()]),
      };
    });
    announce(failed);
    return list.map((one) => {
      if (ended.has(one.id)) return { result: 'done' };
      // Claims of two leases in one group: the lease was lost in between.
      return (one.by === by ? claims.get(one.id) : undefined) ?? { result: 'busy' };
    });
  }

  /** Ends payments, and puts others off; returns for each whether it was still processing. */
  async #store(list: readonly (PaymentEnd | Postponed)[]): Promise<boolean[]> {
    const { database, announce } = this.#on;
    const later = list.filter((one) => 'until' in one);
    if (later.length > 0) await postponePayments(database, later);
    const ended = await endPayments(
      database,
      list.filter((one) => 'status' in one),
    );
    announce(ended);
    const ids = new Set(ended.map((row) => row.platform_payment_id));
    return list.map((one) => 'until' in one || ids.has(one.platform_payment_id));
  }
}

interface Claim {
  readonly id: string;
  readonly by: string;
}
