/**
 * Whose payment is called for next in a biller's own system, so that calls that hang or are slow leave places to others.
 *
 * enters: payments that wait for a call, and calls as they begin, get late and return.  leaves: the payments of the next call.
 * holds:  billers take turns, and so do the accounts of each. One account has at most half of the places, and one while a call of it
 *         takes longer than `SLOW_MS`. One biller leaves a quarter of the places to others while its calls return sooner than that, and
 *         half of those that others leave it otherwise. Who is alone has all places. Calls beyond their deadline have no place,
 *         but are limited in the same way.
 *
 * With a concurrency of one nothing can be left: a call that hangs delays all others until its deadline.
 */
import type { Clock } from '@duebridge/runtime';

/** A call that takes longer is slow; neighbours are to wait at most two seconds. */
const SLOW_MS = 1_000;
/** Calls tolerated beyond their deadline, as a multiple of the concurrent calls: a hung system gets no more. */
const LATE_FACTOR = 8;
/** Those of one account. */
const LATE_OF_ACCOUNT = 8;

/** What is known here of a payment. */
interface Owned {
  readonly biller_id: string;
  readonly account_id: string;
}

interface OpenCall {
  readonly billers: ReadonlySet<string>;
  readonly accounts: ReadonlySet<string>;
  readonly since: number;
  readonly isLate: boolean;
}

/** Both ids in one text; neither can contain a colon. */
function accountOf({ biller_id, account_id }: Owned): string {
  return `${biller_id}:${account_id}`;
}

/** The places for calls. */
export class CallPlaces {
  readonly #concurrency: number;
  readonly #clock: Clock;
  readonly #calls = new Set<OpenCall>();
  /** Billers whose latest call returned soon. */
  readonly #quick = new Set<string>();
  #first: Owned | undefined;
  #hasBillers = false;
  #hasAccounts = false;

  constructor(concurrency: number, clock: Clock) {
    this.#concurrency = concurrency;
    this.#clock = clock;
  }

  /** Learns that payments of this biller and account exist: limits begin with the second one. */
  note(payment: Owned): void {
    this.#first ??= payment;
    this.#hasBillers ||= payment.biller_id !== this.#first.biller_id;
    this.#hasAccounts ||= accountOf(payment) !== accountOf(this.#first);
  }

  /** A call for these payments begins, or goes on beyond its deadline without a place. Returns what ends it. */
  begin(payments: readonly Owned[], isLate = false): () => void {
    const call = {
      billers: new Set(payments.map(({ biller_id }) => biller_id)),
      accounts: new Set(payments.map(accountOf)),
      since: this.#clock.monotonic() - (isLate ? SLOW_MS : 0),
      isLate,
    };
    this.#calls.add(call);
    return () => {
      this.#calls.delete(call);
      const isSlow = this.#clock.monotonic() - call.since >= SLOW_MS;
      for (const biller of call.billers) {
        if (isSlow) this.#quick.delete(biller);
        else this.#quick.add(biller);
      }
    };
  }

  /** Places that are free. */
  free(): number {
    const late = this.#count((call) => call.isLate);
    if (late >= this.#concurrency * LATE_FACTOR) return 0;
    return this.#concurrency - (this.#calls.size - late);
  }

  /** Whether the biller may have another place. */
  mayCallBiller(biller_id: string): boolean {
    if (!this.#hasBillers || this.#concurrency < 2) return true;
    const of = this.#standing((call) => call.billers.has(biller_id));
    const others = this.#calls.size - this.#count((call) => call.isLate) - of.places;
    const most =
      of.isSlow || !this.#quick.has(biller_id)
        ? Math.ceil((this.#concurrency - others) / 2)
        : this.#concurrency - Math.max(1, Math.floor(this.#concurrency / 4));
    return of.places < most && of.late < (this.#concurrency * LATE_FACTOR) / 2;
  }

  /** Whether the account may have another place, if its biller may. */
  mayCallAccount(account: string): boolean {
    if (!this.#hasAccounts || this.#concurrency < 2) return true;
    const of = this.#standing((call) => call.accounts.has(account));
    const most = of.isSlow ? 1 : Math.ceil(this.#concurrency / 2);
    return of.places < most && of.late < LATE_OF_ACCOUNT;
  }

  #standing(isOf: (call: OpenCall) => boolean): { places: number; late: number; isSlow: boolean } {
    const slowBefore = this.#clock.monotonic() - SLOW_MS;
    return {
      places: this.#count((call) => !call.isLate && isOf(call)),
      late: this.#count((call) => call.isLate && isOf(call)),
      isSlow: this.#count((call) => call.since <= slowBefore && isOf(call)) > 0,
    };
  }

  /** At most a place each and the late ones: counting them takes less than keeping numbers by biller and account. */
  #count(holds: (call: OpenCall) => boolean): number {
    let count = 0;
    for (const call of this.#calls) if (holds(call)) count += 1;
    return count;
  }
}

/** Payments that wait for a call, by biller and account. */
export class FairQueue<T extends { readonly payment: Owned }> {
  readonly #billers = new Map<string, Map<string, T[]>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(item: T): void {
    const { biller_id } = item.payment;
    const account = accountOf(item.payment);
    const accounts = this.#billers.get(biller_id) ?? new Map<string, T[]>();
    const items = accounts.get(account) ?? [];
    items.push(item);
    accounts.set(account, items);
    this.#billers.set(biller_id, accounts);
    this.#size += 1;
  }

  /** Removes and returns up to `most` items that may be called for. */
  take(most: number, places: CallPlaces): T[] {
    const taken: T[] = [];
    while (taken.length < most) {
      const item = this.#takeOne(places);
      if (item === undefined) break;
      taken.push(item);
    }
    return taken;
  }

  /** Removes and returns all. */
  takeAll(): T[] {
    const all = [...this.#billers.values()].flatMap((accounts) => [...accounts.values()].flat());
    this.#billers.clear();
    this.#size = 0;
    return all;
  }

  /** Those whose turn it was go to the end, so that what is blocked is looked at again and again, but never more than that. */
  #takeOne(places: CallPlaces): T | undefined {
    for (const [biller_id, accounts] of this.#billers) {
      if (!places.mayCallBiller(biller_id)) continue;
      for (const [account, items] of accounts) {
        if (!places.mayCallAccount(account)) continue;
        const item = items.shift();
        accounts.delete(account);
        if (items.length > 0) accounts.set(account, items);
        this.#billers.delete(biller_id);
        if (accounts.size > 0) this.#billers.set(biller_id, accounts);
        this.#size -= 1;
        return item;
      }
    }
    return undefined;
  }
}
