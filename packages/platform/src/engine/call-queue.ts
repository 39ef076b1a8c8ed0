/**
 * Which call may start next: one queue for each partner, and one for each funding method (decision 25).
 *
 * enters: payments whose next step is a call, by `push`.  leaves: the payment whose call may start now, by `take`; it has a place
 *         until `ended`.
 * holds:  never more calls at once than `places`, nor more a second than `rate`. No timers and no calls: the dispatcher passes the
 *         time of its monotonic clock, and asks again when a call ends or at the time that `take` names.
 *
 * A queue serves parties: the billers of a partner, or those of all partners of a funding method. They take turns, and while a second party
 * has payments here, each has at most half of the places. The payments of a party wait in four lanes, which take turns by weight and
 * have a part of the places each. A call that hangs keeps its place until its own deadline, and no other.
 *
 * A breaker for each party and one for the whole queue open after five failures in a row (payment-steps.ts decides which failures are
 * the payment's own and count for neither). Open, they let one call through every `trialMs`, and the first normal answer closes
 * them. While the failures are answers, they hold back retries alone: a payment that has not failed costs the other side one short
 * call, and may be the one that it can take.
 */
import TinyQueue from 'tinyqueue';

/** Something that is due at a time. */
export interface Due {
  /** Monotonic milliseconds. */
  at: number;
}

/** Where a payment waits: for its first call, for its first polls, for further ones, or for another try after a failure. */
export type Lane = 'new' | 'poll' | 'again' | 'retry';

const LANES: readonly Lane[] = ['new', 'poll', 'again', 'retry'];
/**
 * Turns of each lane while all have something due. A customer waits for the first two, and each payment needs one PUT and at least one
 * poll: with fewer turns for polls they fall behind in every burst, and each payment then costs a second write, for its acceptance.
 */
const TURNS: Readonly<Record<Lane, number>> = { new: 4, poll: 4, again: 1, retry: 1 };
/** Fraction of the places that a lane may have, so that calls of one lane that hang leave room for the others. */
const PARTS: Readonly<Record<Lane, number>> = { new: 0.75, poll: 0.75, again: 0.5, retry: 0.5 };
/** Fraction of the places of one party while there are others. */
const PARTY_PART = 0.5;
/** Failures in a row after which a breaker opens: fewer would open it for one bad connection. */
const THRESHOLD = 5;
/** Seconds of calls that an idle queue saves up: enough for an even stream, too little for a burst that would strain a partner. */
const BURST_S = 0.1;
/** A first call that has been due for longer than this stands in a backlog. */
const BACKLOG_MS = 1_000;

/** A call under way. */
export interface RunningCall {
  readonly party: string;
  readonly lane: Lane;
}

/** What could start now. */
export type Turn<T> =
  | { readonly kind: 'start'; readonly item: T; readonly call: RunningCall }
  /** Nothing may start before this time. */
  | { readonly kind: 'wait'; readonly until: number }
  /** Nothing waits, or only for a call to end. */
  | { readonly kind: 'idle' };

/** What one party has in the queue. */
interface Party<T extends Due> {
  readonly lanes: Readonly<Record<Lane, TinyQueue<T>>>;
  readonly underWay: Record<Lane, number>;
  /** By lane, when its next turn comes: each turn moves it on by 1 divided by the lane's weight. The earliest is next. */
  readonly turns: Record<Lane, number>;
  turn: number;
  readonly breaker: Breaker;
}

/** One queue with its budget. */
export class CallQueue<T extends Due> {
  /** Calls at once; waiting reads count. */
  places: number;
  /** Calls per second. */
  rate: number;
  /** How long one may take. */
  callMs = 0;
  inFlight = 0;
  readonly #trialMs: number;
  /** In the order of turns: the party served last is last. */
  readonly #parties = new Map<string, Party<T>>();
  readonly #breaker: Breaker;
  #closedUntil = 0;
  #startedAt = Number.NEGATIVE_INFINITY;
  #saved = 0;
  #savedAt = Number.NEGATIVE_INFINITY;

  constructor(
    trialMs: number,
    { places, rate }: { readonly places: number; readonly rate: number },
  ) {
    this.#trialMs = trialMs;
    this.#breaker = new Breaker(trialMs);
    this.places = places;
    this.rate = rate;
  }

  push(item: T, party: string, lane: Lane): void {
    this.#partyOf(party).lanes[lane].push(item);
  }

  /** Takes what may start at `now`. `isCurrent` is false for an entry that must be dropped instead. */
  take(now: number, random: number, isCurrent: (item: T) => boolean): Turn<T> {
    if (this.inFlight >= this.places) return { kind: 'idle' };
    const rateAt = this.#rateAt(now);
    let until = Number.POSITIVE_INFINITY;
    for (const [name, party] of this.#parties) {
      let chosen: Lane | undefined;
      for (const lane of LANES) {
        const head = currentHead(party.lanes[lane], isCurrent);
        if (head === undefined || this.#isFull(party, lane)) continue;
        const at = Math.max(head.at, rateAt, this.#opensAt(party, lane));
        if (at > now) until = Math.min(until, at);
        else if (chosen === undefined || turnOf(party, lane) < turnOf(party, chosen)) chosen = lane;
      }
      const item = chosen === undefined ? undefined : party.lanes[chosen].pop();
      if (chosen === undefined || item === undefined) {
        this.#forgetIdle(name, party);
        continue;
      }
      return { kind: 'start', item, call: this.#start(now, random, name, chosen) };
    }
    return until === Number.POSITIVE_INFINITY ? { kind: 'idle' } : { kind: 'wait', until };
  }

  /** Releases the place of a call that has ended. */
  ended({ party, lane }: RunningCall): void {
    this.inFlight -= 1;
    this.#partyOf(party).underWay[lane] -= 1;
  }

  /** Records a normal answer. True if it closed a breaker. */
  worked(party: string, now: number): boolean {
    const { breaker } = this.#partyOf(party);
    const [ofParty, ofAll] = [breaker.worked(now), this.#breaker.worked(now)];
    return ofParty || ofAll;
  }

  /**
   * Records a failure that is not the payment's own; `isAnswer` when the other side did answer, and does not refuse every call. Says
   * which breaker it opened.
   */
  failed(
    party: string,
    now: number,
    random: number,
    isAnswer: boolean,
  ): 'all' | 'party' | undefined {
    const ofParty = this.#partyOf(party).breaker.failed(now, random, isAnswer);
    if (this.#breaker.failed(now, random, isAnswer)) return 'all';
    return ofParty ? 'party' : undefined;
  }

  /** Monotonic time of the party's last normal answer. */
  workedAt(party: string): number {
    return this.#parties.get(party)?.breaker.workedAt ?? Number.NEGATIVE_INFINITY;
  }

  /** True while a breaker is open, of any party or of all. */
  get isTroubled(): boolean {
    for (const { breaker } of this.#parties.values()) if (breaker.isOpen) return true;
    return this.#breaker.isOpen;
  }

  /** True while the breaker of all parties is open. */
  get isOut(): boolean {
    return this.#breaker.isOpen;
  }

  /** True once the other side has been failing for longer than a trial takes: it did not only falter. */
  isDown(now: number): boolean {
    return this.#breaker.isOpen && now - this.#breaker.openedAt >= this.#trialMs;
  }

  /** Whether a first call would leave at once: nothing is closed, and nobody's first call stands in a backlog. */
  isOpen(now: number): boolean {
    if (this.#closedUntil > now || this.isTroubled) return false;
    for (const { lanes } of this.#parties.values()) {
      if ((lanes.new.peek()?.at ?? now) < now - BACKLOG_MS) return false;
    }
    return true;
  }

  /** Starts nothing before `until`: an operator has paused the partner. */
  closeUntil(until: number): void {
    this.#closedUntil = until;
  }

  /**
   * For how long a call has been due although one could have started: since it was due, since a breaker let it through, and since a call
   * last started, whichever is latest, and no sooner than one under way has to end, whose place may be the one that is missing. A queue whose
   * budget is small still starts a call now and then; one whose engine has died does not (LV2).
   */
  stalledMs(now: number): number {
    let first = Number.POSITIVE_INFINITY;
    for (const party of this.#parties.values()) {
      for (const lane of LANES) {
        const head = party.lanes[lane].peek();
        if (head === undefined) continue;
        first = Math.min(first, Math.max(head.at, this.#opensAt(party, lane)));
      }
    }
    const endsMs = this.inFlight > 0 ? this.callMs : 0;
    return Math.max(0, now - Math.max(first, this.#startedAt + endsMs));
  }

  #partyOf(name: string): Party<T> {
    let party = this.#parties.get(name);
    if (party === undefined) {
      party = {
        lanes: byLane(() => new TinyQueue<T>([], (a, b) => a.at - b.at)),
        underWay: byLane(() => 0),
        turns: byLane(() => 0),
        turn: 0,
        breaker: new Breaker(this.#trialMs),
      };
      this.#parties.set(name, party);
    }
    return party;
  }

  /** A party that has nothing here any more takes no places from others. */
  #forgetIdle(name: string, { lanes, underWay, breaker }: Party<T>): void {
    const isIdle = LANES.every((lane) => lanes[lane].length === 0 && underWay[lane] === 0);
    if (isIdle && !breaker.isOpen) this.#parties.delete(name);
  }

  #isFull({ underWay }: Party<T>, lane: Lane): boolean {
    if (underWay[lane] >= Math.max(1, Math.ceil(this.places * PARTS[lane]))) return true;
    if (this.#parties.size === 1) return false;
    const ofParty = LANES.reduce((sum, one) => sum + underWay[one], 0);
    return ofParty >= Math.max(1, Math.ceil(this.places * PARTY_PART));
  }

  /** When a call of the lane is let through; 0 if nothing holds it back. */
  #opensAt({ breaker }: Party<T>, lane: Lane): number {
    return Math.max(this.#closedUntil, breaker.opensAt(lane), this.#breaker.opensAt(lane));
  }

  /** When the rate lets the next call start. */
  #rateAt(now: number): number {
    const most = Math.max(1, this.rate * BURST_S);
    const more = this.rate === Infinity ? most : ((now - this.#savedAt) / 1_000) * this.rate;
    this.#saved = Math.min(most, this.#saved + more);
    this.#savedAt = now;
    return this.#saved >= 1 ? now : now + ((1 - this.#saved) / this.rate) * 1_000;
  }

  #start(now: number, random: number, name: string, lane: Lane): RunningCall {
    const party = this.#partyOf(name);
    this.#parties.delete(name);
    this.#parties.set(name, party);
    party.turn = turnOf(party, lane);
    party.turns[lane] = party.turn + 1 / TURNS[lane];
    party.underWay[lane] += 1;
    for (const breaker of [party.breaker, this.#breaker]) breaker.started(now, random, lane);
    this.inFlight += 1;
    this.#saved -= 1;
    this.#startedAt = now;
    return { party: name, lane };
  }
}

function byLane<V>(make: () => V): Record<Lane, V> {
  return { new: make(), poll: make(), again: make(), retry: make() };
}

/** A lane that had nothing due has not saved its turns up: it would otherwise start thousands of calls one after the other. */
function turnOf({ turns, turn }: Party<Due>, lane: Lane): number {
  return Math.max(turns[lane], turn);
}

/** The first entry that is still current; those before it are dropped. */
function currentHead<T extends Due>(
  heap: TinyQueue<T>,
  isCurrent: (item: T) => boolean,
): T | undefined {
  for (let head = heap.peek(); head !== undefined; head = heap.peek()) {
    if (isCurrent(head)) return head;
    heap.pop();
  }
  return undefined;
}

/** Failures in a row, and what they still let through. */
class Breaker {
  workedAt = Number.NEGATIVE_INFINITY;
  /** When it opened, if it is open. */
  openedAt = Number.NEGATIVE_INFINITY;
  readonly #trialMs: number;
  #failures = 0;
  /** The last failure was an answer. */
  #isAnswered = false;
  #trialAt = 0;

  constructor(trialMs: number) {
    this.#trialMs = trialMs;
  }

  get isOpen(): boolean {
    return this.#failures >= THRESHOLD;
  }

  opensAt(lane: Lane): number {
    return this.isOpen && (lane === 'retry' || !this.#isAnswered) ? this.#trialAt : 0;
  }

  /** A call has started: while nothing else passes, it is the trial. */
  started(now: number, random: number, lane: Lane): void {
    if (this.opensAt(lane) > 0) this.#pause(now, random);
  }

  /** True if it closes. */
  worked(now: number): boolean {
    const was = this.isOpen;
    this.workedAt = now;
    this.#failures = 0;
    return was;
  }

  /** True if it opens. */
  failed(now: number, random: number, isAnswer: boolean): boolean {
    this.#failures += 1;
    this.#isAnswered = isAnswer;
    if (this.#failures !== THRESHOLD) return false;
    this.openedAt = now;
    this.#pause(now, random);
    return true;
  }

  /** Jitter only earlier: `trialMs` bounds how late a recovery is noticed. */
  #pause(now: number, random: number): void {
    this.#trialAt = now + this.#trialMs * (0.75 + random / 4);
  }
}
