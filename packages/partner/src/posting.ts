/**
 * Which payments are tried together, which alone, and in which order.
 *
 * enters:  payments from apply.ts, one by one; the way of posting (post-in-transaction.ts, post-in-own-system.ts).
 * leaves:  what became of each.
 * holds:   a payment that fails, hangs or waits for a lock delays one group, and after that only what is in trouble too (LV3).
 *
 * Where the way posts several at once, a group takes up to 512 payments, one group after the other, because each gathers more that way and
 * two would meet at the same accounts. When a group fails nobody knows whose fault it is: its payments are tried alone, and until one of
 * theirs was posted alone, their accounts (and, unless it was a lock, their billers) stay out of the groups. Payments that are tried
 * alone share a few places by the rules of call-places.ts. What is not posted then waits in apply.ts.
 */
import type { Clock } from '@duebridge/runtime';
import { within } from './account-system.ts';
import { accountOf, CallPlaces, FairQueue } from './call-places.ts';
import type { KitMetrics } from './metrics.ts';
import type { PaymentRow } from './store.ts';

/** Maximum payments in one group: more would gain little throughput and delay the first payment. */
const MAX_GROUP = 512;
/** Accounts and billers that are remembered to stay out of the groups. Beyond that all are forgotten: a group that fails finds them again. */
const MAX_SUSPECTS = 10_000;
/** How long a stop waits for what is in hand; then it gives back what has not begun, and waits for a quarter of that once more. */
const STOP_MS = 4_000;

/**
 * The result of one try. `done`: it has ended, here or elsewhere. Otherwise it stays processing. `later`: the account system
 * postponed it. `busy`: nothing was tried, because a call, a lock or another replica holds the payment or its account. `failed`:
 * the try ended in an error that this payment may have caused. `outage`: it ended in an error that says nothing about the
 * payment.
 */
export type Tried =
  | { readonly result: 'done' }
  | { readonly result: 'later'; readonly until: string | null }
  | { readonly result: 'busy' }
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
  /** Tries several in one transaction; `failed` and `busy` say that nothing was changed. Without it each is tried alone. */
  readonly together?: (payments: readonly PaymentRow[]) => Promise<readonly Tried[]>;
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
  readonly #tries = new Set<Try>();
  readonly #places: CallPlaces;
  readonly #firsts: FairQueue<Item>;
  readonly #again: FairQueue<Item>;
  /** Accounts and billers that stay out of the groups; an account with a payment that is tried alone, or is to be, is one of them. */
  readonly #suspects = new Set<string>();
  readonly #whenIdle: (() => void)[] = [];
  readonly #stopped = new AbortController();
  #isGroupUnderWay = false;
  #isScheduled = false;
  #isStopping = false;

  constructor(way: Way, { clock, metrics }: { clock: Clock; metrics: KitMetrics }) {
    this.#way = way;
    this.#clock = clock;
    // Two payments of one account in two transactions would wait for each other.
    this.#places = new CallPlaces(way.places, this.#tries, way.together !== undefined);
    this.#firsts = new FairQueue(this.#places);
    this.#again = new FairQueue(this.#places);
    if (way.together) metrics.watch('locked_accounts', () => this.#suspects.size);
    else {
      metrics.watch('calls_open', () => this.#tries.size);
      metrics.watch('calls_late', () => [...this.#tries].filter(({ isLate }) => isLate).length);
    }
  }

  /** Tries one payment. Never throws. `isRepeat`: an earlier try failed or left it claimed, so it must not delay first tries. */
  post(payment: PaymentRow, isRepeat: boolean): Promise<Tried> {
    const { platform_payment_id: id } = payment;
    const isTried = [...this.#tries].some((one) => one.payment.platform_payment_id === id);
    if (this.#isStopping || isTried) return Promise.resolve({ result: 'busy' });
    this.#places.note(payment);
    return new Promise<Tried>((resolve) => {
      const item = { payment, isRepeat, resolve };
      if (isRepeat || !this.#way.together) this.#push(item);
      else this.#group.push(item);
      this.#schedule();
    });
  }

  /** Whether a call to a biller's own system is open; payments in hand may then be waiting for its answer. */
  isCalling(): boolean {
    return this.#way.together === undefined && this.#tries.size > 0;
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
    for (const { aborting } of this.#tries) aborting.abort();
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
    const items = [...this.#group.splice(0), ...this.#firsts.takeAll(), ...this.#again.takeAll()];
    for (const { resolve } of items) resolve({ result: 'busy' });
  }

  #start(): void {
    if (this.#way.together && !this.#isGroupUnderWay) {
      const items: Item[] = [];
      for (const item of this.#group.splice(0, MAX_GROUP)) {
        if (this.#keys(item).some((key) => this.#suspects.has(key))) this.#push(item);
        else items.push(item);
      }
      if (items.length > 0) void this.#tryTogether(items, this.#way.together);
    }
    for (let item = this.#next(); item; item = this.#next()) void this.#tryAlone(item);
  }

  /** `posted`: what was just posted. */
  #next(posted?: PaymentRow): Item | undefined {
    if (this.#places.free() <= 0) return undefined;
    const repeats = [...this.#tries].filter((one) => one.isRepeat && !one.isLate).length;
    const again = repeats < this.#way.repeats ? this.#again.take() : undefined;
    return again ?? (posted && this.#firsts.take(posted)) ?? this.#firsts.take();
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
      this.#suspect(item, one);
      if (one.result === 'failed' || one.result === 'busy') this.#push(item);
      else item.resolve(one);
    });
    this.#schedule();
  }

  async #tryAlone(item: Item): Promise<void> {
    const { payment, isRepeat, resolve } = item;
    const returned = new AbortController();
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
      over: AbortSignal.any([returned.signal, this.#stopped.signal]),
    };
    this.#tries.add(one);
    const tried = await this.#way.alone(one);
    this.#tries.delete(one);
    returned.abort();
    this.#suspect(item, tried);
    if (tried.result === 'done' || tried.result === 'later') this.#clear(item);
    resolve(tried);
    // Its account and its biller are not what hangs: others of theirs need not wait for their turns behind what does.
    if (this.#way.together && tried.result === 'done' && !this.#isStopping) {
      const next = this.#next(payment);
      if (next) void this.#tryAlone(next);
    }
    this.#schedule();
  }

  #push(item: Item): void {
    if (this.#way.together) this.#suspects.add(accountOf(item.payment));
    (item.isRepeat ? this.#again : this.#firsts).push(item);
  }

  /** Keeps out of the groups what this result speaks against. A lock says nothing about the biller. */
  #suspect(item: Item, { result }: Tried): void {
    if (!this.#way.together || result !== 'failed') return;
    if (this.#suspects.size > MAX_SUSPECTS) this.#suspects.clear();
    for (const key of this.#keys(item)) this.#suspects.add(key);
  }

  #clear(item: Item): void {
    const [account, ...biller] = this.#keys(item);
    for (const key of biller) this.#suspects.delete(key);
    const isWaiting = this.#firsts.has(item.payment) || this.#again.has(item.payment);
    if (account !== undefined && !isWaiting) this.#suspects.delete(account);
  }

  /** The account, and the biller where there are others to protect from it. */
  #keys({ payment }: Item): string[] {
    const account = accountOf(payment);
    return this.#places.hasBillers ? [account, payment.biller_id] : [account];
  }
}
