/**
 * The payments of one worker: as objects while something is done with them, as bytes while they only wait (waiting.ts).
 *
 * A lane of a partner's queue turns one into the other: what is pushed into it becomes bytes, and the payment that is next becomes an
 * object again. So a million due payments of a partner that is paused cost no more than a million that are due in an hour.
 *
 * holds: a payment is in memory once, as an object or as bytes. Its bytes are in exactly one lane. A payment that is removed while
 *        it is in a lane stays there, and is dropped when its turn comes.
 */
import type { ActivePayment } from './active-payment.ts';
import { DueHeap, LATEST_AMONG, type Lane } from './due-heap.ts';
import { WaitingPayments } from './waiting.ts';

/** A payment that was removed. */
export interface Removed {
  readonly platform_payment_id: string;
  readonly slot: number;
  /** Undefined if it was bytes. */
  readonly object: ActivePayment | undefined;
}

/** The payments of one worker. */
export class HeldPayments {
  readonly #objects = new Map<string, ActivePayment>();
  readonly #waiting = new WaitingPayments();
  readonly #mayWait: (payment: ActivePayment) => boolean;

  /** `mayWait` is false for a payment that somebody else still holds as an object: it stays one. */
  constructor(mayWait: (payment: ActivePayment) => boolean) {
    this.#mayWait = mayWait;
  }

  get size(): number {
    return this.#objects.size + this.#waiting.size;
  }

  has(platform_payment_id: string): boolean {
    return (
      this.#objects.has(platform_payment_id) ||
      this.#waiting.find(platform_payment_id) !== undefined
    );
  }

  /** When the next step of a payment is due; undefined for one that is not in here. */
  dueAt(platform_payment_id: string): number | undefined {
    const object = this.#objects.get(platform_payment_id);
    if (object !== undefined) return object.at;
    const record = this.#waiting.find(platform_payment_id);
    return record === undefined ? undefined : this.#waiting.atOf(record);
  }

  /** Adds a payment that is not in here yet. */
  add(payment: ActivePayment): void {
    this.#objects.set(payment.platform_payment_id, payment);
  }

  /** Removes a payment if this object is its current state. */
  remove(payment: ActivePayment): Removed | undefined {
    if (this.#objects.get(payment.platform_payment_id) !== payment) return undefined;
    const { platform_payment_id, slot } = payment;
    this.#objects.delete(platform_payment_id);
    payment.forget();
    return { platform_payment_id, slot, object: payment };
  }

  /** Removes a payment, in whichever form it is. */
  removeById(platform_payment_id: string): Removed | undefined {
    const payment = this.#objects.get(platform_payment_id);
    if (payment !== undefined) return this.remove(payment);
    const record = this.#waiting.find(platform_payment_id);
    return record === undefined ? undefined : this.#drop(record);
  }

  /** Removes the payments of these slots. */
  *removeSlots(slots: ReadonlySet<number>): Generator<Removed> {
    for (const payment of this.#objects.values()) {
      const removed = slots.has(payment.slot) ? this.remove(payment) : undefined;
      if (removed !== undefined) yield removed;
    }
    for (const record of this.#waiting.records()) {
      if (slots.has(this.#waiting.slotOf(record))) yield this.#drop(record);
    }
  }

  /** Visits `createdAt` of every payment, the objects' first: a call for each, because a generator takes ten times as long for a million. */
  eachCreationTime(visit: (createdAt: number) => void): void {
    for (const payment of this.#objects.values()) visit(payment.createdAt);
    this.#waiting.eachCreationTime(visit);
  }

  /** A lane for payments of this worker. */
  newLane(): Lane<ActivePayment> {
    return new WaitingLane(this.#waiting, {
      park: (payment) => this.#park(payment),
      recall: (record) => this.#recall(record),
    });
  }

  /** Turns a payment into bytes. Undefined if it has to stay an object. */
  #park(payment: ActivePayment): number | undefined {
    const { platform_payment_id } = payment;
    if (!this.#mayWait(payment) || this.#objects.get(platform_payment_id) !== payment)
      return undefined;
    const record = this.#waiting.put(payment);
    if (record === undefined) return undefined;
    this.#objects.delete(platform_payment_id);
    payment.forget();
    return record;
  }

  #recall(record: number): ActivePayment {
    const payment = this.#waiting.take(record);
    this.#objects.set(payment.platform_payment_id, payment);
    return payment;
  }

  #drop(record: number): Removed {
    const removed = {
      platform_payment_id: this.#waiting.idOf(record),
      slot: this.#waiting.slotOf(record),
      object: undefined,
    };
    this.#waiting.drop(record);
    return removed;
  }
}

/** How a lane turns a payment into bytes and back. */
interface Forms {
  readonly park: (payment: ActivePayment) => number | undefined;
  readonly recall: (record: number) => ActivePayment;
}

/** A lane whose payments are bytes, except for the next one and those that have to stay objects. */
class WaitingLane implements Lane<ActivePayment> {
  readonly #waiting: WaitingPayments;
  readonly #forms: Forms;
  readonly #objects = new DueHeap<ActivePayment>();
  readonly #records: RecordHeap;

  constructor(waiting: WaitingPayments, forms: Forms) {
    this.#waiting = waiting;
    this.#forms = forms;
    this.#records = new RecordHeap(waiting);
  }

  get size(): number {
    return this.#objects.size + this.#records.size;
  }

  push(payment: ActivePayment): void {
    const record = this.#forms.park(payment);
    if (record === undefined) this.#objects.push(payment);
    else this.#records.push(record);
  }

  peek(): ActivePayment | undefined {
    this.#recallNext();
    return this.#objects.peek();
  }

  pop(): ActivePayment | undefined {
    this.#recallNext();
    return this.#objects.pop();
  }

  popLatest(now: number): ActivePayment | undefined {
    const object = this.#objects.popLatest(now);
    const place = this.#records.latest(now);
    if (place === undefined) return object;
    const record = this.#records.recordAt(place);
    if (object !== undefined) {
      if (object.at >= this.#waiting.atOf(record)) return object;
      this.#objects.push(object);
    }
    this.#records.remove(place);
    return this.#forms.recall(record);
  }

  takeAll(): ActivePayment[] {
    const all = this.#objects.takeAll();
    while (this.#records.size > 0) {
      const record = this.#records.remove(0);
      if (this.#waiting.holds(record)) all.push(this.#forms.recall(record));
      else this.#waiting.release(record);
    }
    return all;
  }

  /** Makes sure that the payment that is due first is an object. */
  #recallNext(): void {
    while (this.#records.size > 0) {
      const record = this.#records.recordAt(0);
      if (!this.#waiting.holds(record)) {
        this.#records.remove(0);
        this.#waiting.release(record);
        continue;
      }
      const object = this.#objects.peek();
      if (object !== undefined && object.at <= this.#waiting.atOf(record)) return;
      this.#records.remove(0);
      this.#objects.push(this.#forms.recall(record));
    }
  }
}

/** Records by due time: the heap of due-heap.ts over numbers, at four bytes for each. */
class RecordHeap {
  readonly #waiting: WaitingPayments;
  #records = new Uint32Array(16);
  #size = 0;

  constructor(waiting: WaitingPayments) {
    this.#waiting = waiting;
  }

  get size(): number {
    return this.#size;
  }

  recordAt(place: number): number {
    return this.#records[place] ?? 0;
  }

  push(record: number): void {
    if (this.#size === this.#records.length) {
      const larger = new Uint32Array(2 * this.#size);
      larger.set(this.#records);
      this.#records = larger;
    }
    this.#size += 1;
    this.#rise(this.#size - 1, record);
  }

  /** The place of the payment that became due last, among those due at `now`: as `DueHeap.popLatest` looks for it. */
  latest(now: number): number | undefined {
    let latest = this.#isDue(0, now) ? 0 : undefined;
    for (let place = Math.max(1, this.#size - LATEST_AMONG); place < this.#size; place += 1) {
      if (!this.#isDue(place, now)) continue;
      if (latest === undefined || this.#atOf(place) >= this.#atOf(latest)) latest = place;
    }
    return latest;
  }

  #isDue(place: number, now: number): boolean {
    return (
      place < this.#size && this.#atOf(place) <= now && this.#waiting.holds(this.recordAt(place))
    );
  }

  /** Removes and returns the record at a place. */
  remove(place: number): number {
    const removed = this.recordAt(place);
    this.#size -= 1;
    const last = this.recordAt(this.#size);
    if (place === this.#size) return removed;
    const parent = (place - 1) >> 1;
    if (place > 0 && this.#atOf(parent) > this.#waiting.atOf(last)) this.#rise(place, last);
    else this.#sink(place, last);
    return removed;
  }

  #atOf(place: number): number {
    return this.#waiting.atOf(this.recordAt(place));
  }

  #rise(from: number, record: number): void {
    const at = this.#waiting.atOf(record);
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (this.#atOf(parent) <= at) break;
      this.#records[place] = this.recordAt(parent);
      place = parent;
    }
    this.#records[place] = record;
  }

  #sink(from: number, record: number): void {
    const at = this.#waiting.atOf(record);
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= this.#size) break;
      if (child + 1 < this.#size && this.#atOf(child + 1) < this.#atOf(child)) child += 1;
      if (this.#atOf(child) >= at) break;
      this.#records[place] = this.recordAt(child);
      place = child;
    }
    this.#records[place] = record;
  }
}
