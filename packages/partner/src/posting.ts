/**
 * Which payments are tried together, which alone, and in which order.
 *
 * enters:  payments from apply.ts, one by one; the way of posting (post-in-transaction.ts, post-in-own-system.ts).
 * leaves:  what became of each.
 * holds:   a payment that fails, hangs or waits for a lock delays one group, and after that only what is in trouble too (LV3).
 *
 * Where the way posts several at once, a group takes up to 512 payments, one group after the other, because each gathers more that way and
 * two would meet at the same accounts. When a group fails nobody knows whose fault it is: its payments are tried alone, and until one of
 * theirs was posted alone, their accounts (and, unless it was a lock, their billers) stay out of the groups.
 *
 * Payments that are tried alone share a few places: billers take turns, and the accounts of each, and an account has one place. A call to
 * a biller's own system may hang, so there a biller has at most as many places as are free: half, while nothing else hangs. A call beyond
 * its deadline gives its place back; its account gets no other before it returns. With one place nothing can be left: a call that hangs delays all others until its deadline.
 */
import { abortWith, type Clock } from '@duebridge/runtime';
import { within } from './account-system.ts';
import type { Rules } from './business-rules.ts';
import type { KitContext } from './metrics.ts';
import { accountKey, type PaymentRow } from './store.ts';

/** Maximum payments in one group: more would gain little throughput and delay the first payment. */
const MAX_GROUP = 512;
/** How long an account or biller in trouble stays out of the groups when none of its payments is posted here: perhaps another replica did. */
const SUSPECT_MS = 60_000;
/** Accounts and billers that are remembered to stay out. Beyond that all are forgotten: a group that fails finds them again. */
const MAX_SUSPECTS = 10_000;
/**
 * Calls of one biller beyond their deadline, as a multiple of the places. They are given up after six deadlines, so only a system that
 * ignores its signal comes here: it gets no more.
 */
const LATE_FACTOR = 4;
/** How long a stop waits for what is in hand; then it gives back what has not begun, and waits for a quarter of that once more. */
const STOP_MS = 4_000;

/**
 * The result of one try. `done`: it has ended, here or elsewhere. Otherwise it stays processing. `later`: the account system
 * postponed it. `busy`: nothing was tried, because a call or another replica holds the payment. `locked`: its account is locked.
 * `failed`: the try ended in an error that this payment may have caused. `outage`: it ended in an error that says nothing about
 * the payment.
 */
export type Tried =
  | { readonly result: 'done' }
  | { readonly result: 'later'; readonly until: string | null }
  | { readonly result: 'busy' }
  | { readonly result: 'locked' }
  | { readonly result: 'failed'; readonly error: unknown }
  | { readonly result: 'outage'; readonly error: unknown };

/** A payment that is tried alone. */
export interface Try {
  readonly payment: PaymentRow;
  /** An earlier try failed or left it claimed. */
  readonly isRepeat: boolean;
  /** It is beyond its deadline, and has no place. */
  isLate: boolean;
  /** Gives its place to others; the payment stays with the try until that returns. */
  readonly late: () => void;
  /** Aborts when the try is given up, or the stop should not wait for it. */
  readonly aborting: AbortController;
  /** Aborts when the try has returned, or nobody waits for it any more. */
  readonly over: AbortSignal;
}

/** A way of posting. Its functions never throw. */
export interface Way {
  /** How many payments are tried alone at the same time; and of these, repeats. */
  readonly places: number;
  readonly repeats: number;
  /** Tries one payment. */
  alone(one: Try): Promise<Tried>;
  /** Tries several in one transaction; `failed` and `locked` say that it may be tried alone. Without it each is tried alone. */
  readonly together?: (payments: readonly PaymentRow[]) => Promise<readonly Tried[]>;
}

/** What a way of posting to these accounts is opened with. */
export interface WayOptions<Accounts> extends KitContext {
  readonly accounts: Accounts;
  readonly rules: Rules;
  readonly announce: (ended: readonly PaymentRow[]) => void;
}

/** A payment that waits for its try. */
interface Item {
  readonly payment: PaymentRow;
  readonly isRepeat: boolean;
  readonly resolve: (tried: Tried) => void;
}

/** The payments in hand of one way. */
export class Posting {
  readonly #way: Way;
  readonly #clock: Clock;
  readonly #group: Item[] = [];
  /** Payments that wait to be tried alone, for the first time and again. */
  readonly #firsts = new Turns();
  readonly #again = new Turns();
  /** The open tries alone, by the id of their payment. */
  readonly #tries = new Map<string, Try>();
  /** Accounts and billers that stay out of the groups, and until when. */
  readonly #suspects = new Map<string, number>();
  /** Two billers at most: whether there are others to protect from one. */
  readonly #billers = new Set<string>();
  readonly #whenIdle: (() => void)[] = [];
  readonly #stopped = new AbortController();
  #isGroupUnderWay = false;
  #isScheduled = false;
  #isStopping = false;

  constructor(way: Way, { clock, metrics }: Pick<KitContext, 'clock' | 'metrics'>) {
    this.#way = way;
    this.#clock = clock;
    if (way.together) {
      metrics.watch('locked_accounts', () => {
        return [...this.#suspects.keys()].filter((key) => this.#isSuspect(key)).length;
      });
    } else {
      const open = (): Try[] => [...this.#tries.values()];
      metrics.watch('calls_open', () => open().length);
      metrics.watch('calls_late', () => open().filter(({ isLate }) => isLate).length);
    }
  }

  /** Tries one payment. Never throws. `isRepeat`: an earlier try failed or left it claimed, so it must not delay first tries. */
  post(payment: PaymentRow, isRepeat: boolean): Promise<Tried> {
    if (this.#isStopping || this.#tries.has(payment.platform_payment_id)) {
      return Promise.resolve({ result: 'busy' });
    }
    if (this.#billers.size < 2) this.#billers.add(payment.biller_id);
    return new Promise<Tried>((resolve) => {
      const item = { payment, isRepeat, resolve };
      if (isRepeat || !this.#way.together) this.#waitAlone(item);
      else this.#group.push(item);
      this.#schedule();
    });
  }

  /** Resolves when all work in progress has ended or a limit has passed; what has not begun is found in the table by the next start. */
  async stop(): Promise<void> {
    const idle = new Promise<void>((resolve) => {
      this.#whenIdle.push(resolve);
      this.#schedule();
    });
    await within(this.#clock, STOP_MS, 'the stop', idle).catch(() => undefined);
    this.#isStopping = true;
    this.#schedule();
    for (const { aborting } of this.#tries.values()) aborting.abort();
    await within(this.#clock, STOP_MS / 4, 'the stop', idle).catch(() => undefined);
    this.#stopped.abort();
  }

  /** Starts in the next turn of the event loop: payments accepted in this turn share a group. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#isStopping) this.#giveBack();
      else this.#start();
      const waiting = this.#group.length + this.#firsts.size + this.#again.size;
      if (waiting > 0 || this.#tries.size > 0 || this.#isGroupUnderWay) return;
      for (const done of this.#whenIdle.splice(0)) done();
    });
  }

  #giveBack(): void {
    const all = new Set<string>();
    const next = (): Item | undefined =>
      this.#group.pop() ?? this.#firsts.take(all) ?? this.#again.take(all);
    for (let item = next(); item; item = next()) item.resolve({ result: 'busy' });
  }

  #start(): void {
    if (this.#way.together && !this.#isGroupUnderWay) {
      const items: Item[] = [];
      for (const item of this.#group.splice(0, MAX_GROUP)) {
        if (this.#keys(item).some((key) => this.#isSuspect(key))) this.#waitAlone(item);
        else items.push(item);
      }
      if (items.length > 0) void this.#tryTogether(items, this.#way.together);
    }
    for (let item = this.#next(); item; item = this.#next()) void this.#tryAlone(item);
  }

  /** The next payment that has a place. `posted`: a payment that was just posted alone. */
  #next(posted?: PaymentRow): Item | undefined {
    const open = [...this.#tries.values()];
    const placed = open.filter(({ isLate }) => !isLate);
    const free = this.#way.places - placed.length;
    if (free <= 0) return undefined;
    // Two payments of one account in two transactions would wait for each other.
    const closed = new Set(open.map(({ payment }) => accountKey(payment)));
    if (!this.#way.together) {
      for (const [biller, own] of Map.groupBy(open, ({ payment }) => payment.biller_id)) {
        const late = own.filter(({ isLate }) => isLate).length;
        if (own.length - late >= free || late >= this.#way.places * LATE_FACTOR) closed.add(biller);
      }
    }
    const repeats = placed.filter(({ isRepeat }) => isRepeat).length;
    const again = repeats < this.#way.repeats ? this.#again.take(closed) : undefined;
    return again ?? (posted && this.#firsts.take(closed, posted)) ?? this.#firsts.take(closed);
  }

  async #tryTogether(
    items: readonly Item[],
    together: NonNullable<Way['together']>,
  ): Promise<void> {
    this.#isGroupUnderWay = true;
    const tried = await together(items.map(({ payment }) => payment));
    this.#isGroupUnderWay = false;
    items.forEach((item, index) => {
      const one = tried[index] ?? { result: 'busy' };
      this.#learn(item, one);
      if (one.result === 'failed' || one.result === 'locked') this.#waitAlone(item);
      else item.resolve(one);
    });
    this.#schedule();
  }

  async #tryAlone(item: Item): Promise<void> {
    const { payment, isRepeat, resolve } = item;
    const over = new AbortController();
    const unlink = abortWith(over, this.#stopped.signal);
    const one: Try = {
      payment,
      isRepeat,
      isLate: false,
      late: () => {
        one.isLate = true;
        resolve({ result: 'busy' });
        this.#schedule();
      },
      aborting: new AbortController(),
      over: over.signal,
    };
    this.#tries.set(payment.platform_payment_id, one);
    const tried = await this.#way.alone(one);
    this.#tries.delete(payment.platform_payment_id);
    unlink();
    over.abort();
    this.#learn(item, tried);
    resolve(tried);
    // In a transaction its account and its biller are not what hangs: others of theirs need not wait for their turns behind what does.
    // A call may take seconds, so that a long queue would keep its place from those whose turn it is.
    if (this.#way.together && tried.result === 'done' && !this.#isStopping) {
      const next = this.#next(payment);
      if (next) void this.#tryAlone(next);
    }
    this.#schedule();
  }

  #waitAlone(item: Item): void {
    this.#learn(item, { result: 'locked' });
    (item.isRepeat ? this.#again : this.#firsts).push(item);
  }

  /**
   * Keeps out of the groups what this result speaks against; a lock says nothing about the biller. What was posted is suspected no longer.
   */
  #learn(item: Item, { result }: Tried): void {
    if (!this.#way.together || result === 'outage' || result === 'busy') return;
    const [account, ...biller] = this.#keys(item);
    if (result === 'done' || result === 'later') {
      for (const key of [account, ...biller]) this.#suspects.delete(key);
      return;
    }
    if (this.#suspects.size > MAX_SUSPECTS) this.#suspects.clear();
    const until = this.#clock.monotonic() + SUSPECT_MS;
    for (const key of result === 'failed' ? [account, ...biller] : [account]) {
      this.#suspects.set(key, until);
    }
  }

  #isSuspect(key: string): boolean {
    return (this.#suspects.get(key) ?? 0) > this.#clock.monotonic();
  }

  /** The account, and the biller where there are others to protect from it. */
  #keys({ payment }: Item): [account: string, ...biller: string[]] {
    const account = accountKey(payment);
    return this.#billers.size > 1 ? [account, payment.biller_id] : [account];
  }
}

/** Payments that wait to be tried alone. Billers take turns, and the accounts of each, so that a long queue delays only its own. */
class Turns {
  readonly #billers = new Map<string, Map<string, Item[]>>();
  size = 0;

  push(item: Item): void {
    const { biller_id } = item.payment;
    const account = accountKey(item.payment);
    const accounts = this.#billers.get(biller_id) ?? new Map<string, Item[]>();
    const items = accounts.get(account) ?? [];
    items.push(item);
    accounts.set(account, items);
    this.#billers.set(biller_id, accounts);
    this.size += 1;
  }

  /**
   * Removes and returns the next one whose biller and account are not among `closed`; those whose turn it was go to the end. `posted`: a
   * payment that was just posted; only those of its account, else of its biller, are looked at.
   */
  take(closed: ReadonlySet<string>, posted?: PaymentRow): Item | undefined {
    for (const biller of posted ? [posted.biller_id] : this.#billers.keys()) {
      const accounts = this.#billers.get(biller);
      if (!accounts || closed.has(biller)) continue;
      const own = posted ? accountKey(posted) : '';
      const isNext = accounts.has(own) && !closed.has(own);
      for (const account of isNext ? [own] : accounts.keys()) {
        const items = accounts.get(account);
        if (!items || closed.has(account)) continue;
        const item = items.shift();
        accounts.delete(account);
        if (items.length > 0) accounts.set(account, items);
        this.#billers.delete(biller);
        if (accounts.size > 0) this.#billers.set(biller, accounts);
        this.size -= 1;
        return item;
      }
    }
    return undefined;
  }
}
