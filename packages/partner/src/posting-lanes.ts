/**
 * Which payments share a transaction, and which are tried alone, when accounts live in the kit's own database.
 *
 * enters:  payments from apply.ts, one by one; `attempt`, which runs one transaction over some of them.
 * leaves:  what became of each.
 * holds:   a payment whose posting fails, hangs or waits for a lock delays one group, and after that only what is in trouble too.
 *
 * The group lane takes up to 512 payments per transaction, one transaction after the other, because each gathers more that way and
 * two would meet at the same accounts. When one fails nobody knows whose fault it is: its payments go to the single lane, where
 * each is tried alone, seven at a time, billers by turns. Until one of theirs was posted alone, their accounts (and, unless it was a
 * lock, their billers) stay out of the groups.
 *
 * An account whose payment waited alone in vain, for a lock or for the account system, rests; so does a biller of which two accounts in
 * succession hung. Each time for twice as long, up to five seconds. A payment that is posted ends both.
 */
import { DatabaseUnavailable, sqlState, type Clock, type Database } from '@duebridge/runtime';
import { CallPlaces, FairQueue, type OpenCall } from './call-places.ts';
import { Lanes, TooLate, type Poster, type Tried, type Waiting } from './poster.ts';
import type { PaymentRow } from './store.ts';

/** Maximum payments in one transaction: more would gain little throughput and delay the first payment. */
const MAX_BATCH = 512;
/** Payments that are tried alone at the same time, each on a connection of a pool of ten; and of these, payments that failed before. */
const alone = { places: 7, repeats: 1 };
/** How long an account or a biller rests, in milliseconds; and after how long without a try it is forgotten. */
const restMs = { first: 500, longest: 5_000, forget: 60_000 };

/** The limits of one transaction, in milliseconds. */
export interface Limits {
  /** Of one statement, by PostgreSQL; and of the time in which the account system runs none. */
  readonly stepMs: number;
  /** Of the wait for one lock, by PostgreSQL. */
  readonly lockMs: number;
}

/**
 * All payments of a group wait for the slowest: with the time alone it has to stay below the two seconds that a neighbour may wait. A
 * lock is waited for less than a second, after which PostgreSQL would look for deadlocks and might end the biller's transaction. A
 * payment that failed before has time enough for a slow account system. No limit counts the way to the database, however far it is.
 */
const limits = {
  group: { stepMs: 800, lockMs: 100 },
  first: { stepMs: 500, lockMs: 250 },
  repeat: { stepMs: 10_000, lockMs: 250 },
} as const satisfies Record<string, Limits>;

/** A payment in a lane. */
export interface Item extends Waiting {
  readonly account: string;
  readonly isRepeat: boolean;
}

/** Runs a transaction, and resolves all items but those whose account is locked, which it returns. Throws when it changed nothing. */
export type Attempt = (items: readonly Item[], limits: Limits) => Promise<readonly Item[]>;

/** Why an account or a biller stays out of the groups. */
export type Trouble =
  /** It was in a group that failed, or a payment of it failed; of a biller: one of account `failed` waited alone in vain. */
  | { readonly kind: 'suspect'; readonly failed?: string; readonly at: number }
  | {
      readonly kind: 'resting';
      readonly until: number;
      readonly pauseMs: number;
      readonly at: number;
    };

/** The trouble after a wait in vain. An account rests at once, a biller (`of` names the account) after a second account. */
export function afterWait(before: Trouble | undefined, now: number, of?: string): Trouble {
  if (before?.kind === 'resting') return rest(now, before.pauseMs * 2);
  const isSecond = before?.failed !== undefined && before.failed !== of;
  return of === undefined || isSecond
    ? rest(now, restMs.first)
    : { kind: 'suspect', failed: of, at: now };
}

function rest(now: number, wantedMs: number): Trouble {
  const pauseMs = Math.min(restMs.longest, wantedMs);
  return { kind: 'resting', until: now + pauseMs, pauseMs, at: now };
}

/** The two lanes. */
export class PostingLanes extends Lanes implements Poster {
  readonly #attempt: Attempt;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #noteError: () => void;
  readonly #group: Item[] = [];
  readonly #alone = new FairQueue<Item>();
  /** How many payments of an account are in the single lane: others of it follow them. */
  readonly #inSingleLane = new Map<string, number>();
  readonly #underWay = new Set<OpenCall & { readonly item: Item }>();
  readonly #places = new CallPlaces(alone.places, this.#underWay);
  /** By account and by biller. */
  readonly #troubles = new Map<string, Trouble>();
  #isGroupUnderWay = false;

  constructor(options: {
    attempt: Attempt;
    database: Database;
    clock: Clock;
    /** Called for each transaction that failed. */
    noteError: () => void;
  }) {
    super(options.clock);
    this.#attempt = options.attempt;
    this.#database = options.database;
    this.#clock = options.clock;
    this.#noteError = options.noteError;
  }

  /** Accounts and billers whose payments are tried alone. */
  get troubles(): number {
    return this.#troubles.size;
  }

  post(payment: PaymentRow, isRepeat: boolean): Promise<Tried> {
    const account = JSON.stringify([payment.biller_id, payment.account_id]);
    if (this.isStopping || this.#isResting(account, payment)) {
      return Promise.resolve({ result: 'busy' });
    }
    this.#places.note(payment);
    return new Promise<Tried>((resolve) => {
      const item = { payment, account, isRepeat, resolve };
      if (isRepeat) this.#toSingleLane(item);
      else this.#group.push(item);
      this.schedule();
    });
  }

  isCalling(): boolean {
    return false;
  }

  stop(): Promise<void> {
    return this.drain();
  }

  protected override giveBack(): Item[] {
    return [...this.#group.splice(0), ...this.#alone.takeAll()];
  }

  protected override isIdle(): boolean {
    const waiting = this.#group.length + this.#alone.size;
    return waiting === 0 && this.#underWay.size === 0 && !this.#isGroupUnderWay;
  }

  protected override start(): void {
    if (!this.#isGroupUnderWay) {
      const items = this.#nextGroup();
      if (items.length > 0) {
        this.#isGroupUnderWay = true;
        void this.#runGroup(items).finally(() => {
          this.#isGroupUnderWay = false;
          this.schedule();
        });
      }
    }
    for (let item = this.#nextAlone(); item; item = this.#nextAlone()) this.#startAlone(item);
    this.#forget();
  }

  #nextGroup(): Item[] {
    const items: Item[] = [];
    while (items.length < MAX_BATCH) {
      const item = this.#group.shift();
      if (!item) break;
      if (this.#isInTrouble(item)) this.#toSingleLane(item);
      else items.push(item);
    }
    return items;
  }

  #nextAlone(): Item | undefined {
    for (;;) {
      if (this.#places.free() <= 0) return undefined;
      const inUse = new Set([...this.#underWay].map(({ item }) => item.account));
      const item = this.#alone.take({
        mayCallBiller: (biller_id) => this.#places.mayCallBiller(biller_id),
        mayCallAccount: ({ biller_id, account_id }, next) =>
          !inUse.has(JSON.stringify([biller_id, account_id])) &&
          !(next.isRepeat && this.#repeatsUnderWay() >= alone.repeats),
      });
      if (!item || !this.#isResting(item.account, item.payment)) return item;
      this.#leave(item);
      item.resolve({ result: 'busy' });
    }
  }

  #repeatsUnderWay(): number {
    return [...this.#underWay].filter(({ item }) => item.isRepeat).length;
  }

  async #runGroup(items: Item[]): Promise<void> {
    try {
      const locked = await this.#attempt(items, limits.group);
      for (const item of locked) this.#sendAlone(item, false);
    } catch (error) {
      this.#noteError();
      if (await this.#isOutage(error)) {
        for (const { resolve } of items) resolve({ result: 'outage', error });
        return;
      }
      for (const item of items) this.#sendAlone(item, !isLockWait(error));
    }
  }

  #sendAlone(item: Item, withBiller: boolean): void {
    this.#mark(item, withBiller);
    this.#toSingleLane(item);
  }

  #startAlone(item: Item): void {
    const place = { payment: item.payment, isLate: false, item };
    this.#underWay.add(place);
    void this.#runAlone(item).finally(() => {
      this.#underWay.delete(place);
      this.#leave(item);
      this.schedule();
    });
  }

  async #runAlone(item: Item): Promise<void> {
    try {
      const locked = await this.#attempt([item], item.isRepeat ? limits.repeat : limits.first);
      if (locked.length > 0) this.#rest(item, true);
      else for (const key of this.#keys(item)) this.#troubles.delete(key);
      for (const { resolve } of locked) resolve({ result: 'busy' });
    } catch (error) {
      this.#noteError();
      if (await this.#isOutage(error)) {
        item.resolve({ result: 'outage', error });
        return;
      }
      // A payment that fails at once has a pause of its own (apply.ts), and takes no time from others of its account.
      const isLock = isLockWait(error);
      if (isLock || isTooLong(error)) this.#rest(item, isLock);
      else this.#mark(item, true);
      item.resolve(isLock ? { result: 'busy' } : { result: 'failed', error });
    }
  }

  /** A payment of it waited alone in vain. */
  #rest({ account, payment }: Item, isLock: boolean): void {
    const now = this.#clock.monotonic();
    this.#troubles.set(account, afterWait(this.#troubles.get(account), now));
    if (isLock || !this.#places.hasBillers) return;
    const biller = payment.biller_id;
    this.#troubles.set(biller, afterWait(this.#troubles.get(biller), now, account));
  }

  #mark(item: Item, withBiller: boolean): void {
    const trouble = { kind: 'suspect', at: this.#clock.monotonic() } as const;
    for (const key of withBiller ? this.#keys(item) : [item.account]) {
      if (!this.#troubles.has(key)) this.#troubles.set(key, trouble);
    }
  }

  /** The account, and the biller where there are others to protect from it. */
  #keys({ account, payment }: Pick<Item, 'account' | 'payment'>): string[] {
    return this.#places.hasBillers ? [account, payment.biller_id] : [account];
  }

  #isResting(account: string, payment: PaymentRow): boolean {
    const now = this.#clock.monotonic();
    return this.#keys({ account, payment }).some((key) => {
      const trouble = this.#troubles.get(key);
      return trouble?.kind === 'resting' && now < trouble.until;
    });
  }

  #isInTrouble(item: Item): boolean {
    return (
      this.#inSingleLane.has(item.account) ||
      this.#keys(item).some((key) => this.#troubles.has(key))
    );
  }

  #toSingleLane(item: Item): void {
    this.#inSingleLane.set(item.account, (this.#inSingleLane.get(item.account) ?? 0) + 1);
    this.#alone.push(item);
  }

  #leave({ account }: Item): void {
    const left = (this.#inSingleLane.get(account) ?? 1) - 1;
    if (left > 0) this.#inSingleLane.set(account, left);
    else this.#inSingleLane.delete(account);
  }

  /** Without this, what is never tried again would stay in the map forever. */
  #forget(): void {
    if (this.#troubles.size <= MAX_BATCH) return;
    const before = this.#clock.monotonic() - restMs.forget;
    for (const [key, { at }] of this.#troubles) if (at < before) this.#troubles.delete(key);
  }

  /** Whether the error says nothing about the payments because the database itself is away, and did not just end one transaction. */
  async #isOutage(error: unknown): Promise<boolean> {
    if (!(error instanceof DatabaseUnavailable)) return false;
    const state = sqlState(error) ?? '';
    if (['55P03', '57014', '25P03', '25P04', '40001', '40P01'].includes(state)) return false;
    return this.#database.query('SELECT 1').then(
      () => false,
      () => true,
    );
  }
}

/** Whether PostgreSQL gave up waiting for a lock: that says nothing about a biller. */
function isLockWait(error: unknown): boolean {
  return !(error instanceof TooLate) && sqlState(error) === '55P03';
}

/** Whether a statement, or the account system between two statements, took too long. */
function isTooLong(error: unknown): boolean {
  return error instanceof TooLate || ['57014', '25P03'].includes(sqlState(error) ?? '');
}
