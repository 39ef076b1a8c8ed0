/**
 * Whose payment is tried next, so that tries that hang or are slow leave places to others. Written for calls to a biller's own system; a
 * payment that is tried alone in the kit's transaction is a call as well.
 *
 * enters: payments that wait for a call, and the calls that are open.  leaves: the payment of the next call.
 * holds:  billers take turns, and so do the accounts of each. One biller has at most half of the places that the others leave, and
 *         three quarters while no other is known; one account has half of what the other accounts of its biller leave. So with eight
 *         places, four billers have to hang before a fifth waits, and then until the deadline of their calls. A call beyond its
 *         deadline has no place; its account gets no other call before it returns, and its biller at most as many such calls as there
 *         are places.
 *
 * With a concurrency of one nothing can be left: a call that hangs delays all others until its deadline.
 */

/** Calls tolerated beyond their deadline, as a multiple of the concurrent calls: a hung system gets no more. */
const LATE_FACTOR = 8;

/** What is known here of a payment. */
interface Owned {
  readonly biller_id: string;
  readonly account_id: string;
}

/** A call from the moment its payment is taken until it returns. */
export interface OpenCall {
  readonly payment: Owned;
  /** It is beyond its deadline. */
  readonly isLate: boolean;
}

/** Both ids in one text. */
export function accountOf({ biller_id, account_id }: Owned): string {
  return JSON.stringify([biller_id, account_id]);
}

/** The places for calls. */
export class CallPlaces {
  readonly #concurrency: number;
  readonly #calls: ReadonlySet<OpenCall>;
  readonly #oneAnAccount: boolean;
  readonly #billers = new Set<string>();

  /** `oneAnAccount`: an account has one call at a time. */
  constructor(concurrency: number, calls: ReadonlySet<OpenCall>, oneAnAccount = false) {
    this.#concurrency = concurrency;
    this.#calls = calls;
    this.#oneAnAccount = oneAnAccount;
  }

  /** Learns that payments of this biller exist. */
  note(payment: Owned): void {
    if (this.#billers.size < 2) this.#billers.add(payment.biller_id);
  }

  /** Whether payments of two billers are known. */
  get hasBillers(): boolean {
    return this.#billers.size > 1;
  }

  /** Places that are free. */
  free(): number {
    const { places, late } = this.#count(() => true);
    return late >= this.#concurrency * LATE_FACTOR ? 0 : this.#concurrency - places;
  }

  /** Whether the biller may have another place. */
  mayCallBiller(biller_id: string): boolean {
    if (this.#concurrency < 2) return true;
    const own = this.#count((payment) => payment.biller_id === biller_id);
    const left = this.#concurrency - (this.#count(() => true).places - own.places);
    // Calls that hang now would keep out a biller that comes next.
    const alone = this.#concurrency - Math.max(1, Math.floor(this.#concurrency / 4));
    const most = this.hasBillers ? Math.ceil(left / 2) : alone;
    return own.places < most && own.late < this.#concurrency;
  }

  /** Whether the account may have another place, if its biller may. */
  mayCallAccount(payment: Owned): boolean {
    if (this.#concurrency < 2) return true;
    const account = accountOf(payment);
    const own = this.#count((other) => accountOf(other) === account);
    const biller = this.#count((other) => other.biller_id === payment.biller_id);
    const all = this.hasBillers ? this.#concurrency / 2 : this.#concurrency;
    const left = all - (biller.places - own.places);
    const most = this.#oneAnAccount ? 1 : Math.max(1, Math.ceil(left / 2));
    return own.places < most && own.late === 0;
  }

  /** Calls that have such a payment: at most a place each and the late ones, so that counting them is cheap. */
  #count(isOf: (payment: Owned) => boolean): { places: number; late: number } {
    let [places, late] = [0, 0];
    for (const call of this.#calls) {
      if (!isOf(call.payment)) continue;
      if (call.isLate) late += 1;
      else places += 1;
    }
    return { places, late };
  }
}

/** Payments that wait for a call, by biller and account. */
export class FairQueue<T extends { readonly payment: Owned }> {
  readonly #places: Pick<CallPlaces, 'mayCallBiller' | 'mayCallAccount'>;
  readonly #billers = new Map<string, Map<string, T[]>>();
  #size = 0;

  constructor(places: Pick<CallPlaces, 'mayCallBiller' | 'mayCallAccount'>) {
    this.#places = places;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether an item of this account waits. */
  has({ biller_id, account_id }: Owned): boolean {
    return this.#billers.get(biller_id)?.has(account_id) === true;
  }

  push(item: T): void {
    const { biller_id, account_id } = item.payment;
    const accounts = this.#billers.get(biller_id) ?? new Map<string, T[]>();
    const items = accounts.get(account_id) ?? [];
    items.push(item);
    accounts.set(account_id, items);
    this.#billers.set(biller_id, accounts);
    this.#size += 1;
  }

  /**
   * Removes and returns an item that may be called for. Those whose turn it was go to the end. `posted`: a payment that was just
   * posted; only items of its account, else of its biller, are looked at.
   */
  take(posted?: Owned): T | undefined {
    for (const biller_id of posted ? [posted.biller_id] : this.#billers.keys()) {
      const accounts = this.#billers.get(biller_id);
      if (!accounts || !this.#places.mayCallBiller(biller_id)) continue;
      const own = posted && this.#takeOf(biller_id, accounts, [posted.account_id]);
      const item = own ?? this.#takeOf(biller_id, accounts, accounts.keys());
      if (item) return item;
    }
    return undefined;
  }

  #takeOf(biller_id: string, accounts: Map<string, T[]>, of: Iterable<string>): T | undefined {
    for (const account_id of of) {
      const items = accounts.get(account_id);
      const [item] = items ?? [];
      if (!items || !item || !this.#places.mayCallAccount(item.payment)) continue;
      items.shift();
      accounts.delete(account_id);
      if (items.length > 0) accounts.set(account_id, items);
      this.#billers.delete(biller_id);
      if (accounts.size > 0) this.#billers.set(biller_id, accounts);
      this.#size -= 1;
      return item;
    }
    return undefined;
  }

  /** Removes and returns all. */
  takeAll(): T[] {
    const all = [...this.#billers.values()].flatMap((accounts) => [...accounts.values()].flat());
    this.#billers.clear();
    this.#size = 0;
    return all;
  }
}
