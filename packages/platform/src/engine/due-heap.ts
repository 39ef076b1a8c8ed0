/** Items by due time: what a lane of a queue is made of. */

/** Something that is due at a time. */
export interface Due {
  /** Monotonic milliseconds. */
  at: number;
}

/** Reading this many takes some ten microseconds; reading the million that a worker may hold would take milliseconds at each call. */
export const LATEST_AMONG = 4_096;

/** What waits in one lane, by due time. */
export interface Lane<T> {
  readonly size: number;
  /** The item that is due first. */
  peek(): T | undefined;
  push(item: T): void;
  pop(): T | undefined;
  /** Takes the item that became due last, among those due at `now`; an earlier one where more than LATEST_AMONG wait. */
  popLatest(now: number): T | undefined;
  /** Empties the lane; in no order. */
  takeAll(): T[];
}

/** A heap by due time. */
export class DueHeap<T extends Due> implements Lane<T> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  peek(): T | undefined {
    return this.#items[0];
  }

  push(item: T): void {
    this.#items.push(item);
    this.#rise(this.#items.length - 1, item);
  }

  /** Empties the heap; in no order. */
  takeAll(): T[] {
    return this.#items.splice(0);
  }

  pop(): T | undefined {
    return this.#remove(0);
  }

  /**
   * Takes the item that became due last, among those due at `now`. Where more than LATEST_AMONG wait it looks only at the end of the
   * heap, where the last ones to come usually are, and may take an earlier one.
   */
  popLatest(now: number): T | undefined {
    const items = this.#items;
    let latest = (items[0]?.at ?? Number.POSITIVE_INFINITY) <= now ? 0 : undefined;
    let latestAt = items[0]?.at ?? 0;
    for (let index = Math.max(1, items.length - LATEST_AMONG); index < items.length; index += 1) {
      const at = items[index]?.at ?? Number.POSITIVE_INFINITY;
      if (at > now || at < latestAt) continue;
      latest = index;
      latestAt = at;
    }
    return latest === undefined ? undefined : this.#remove(latest);
  }

  #remove(at: number): T | undefined {
    const items = this.#items;
    const removed = items[at];
    const last = items.pop();
    if (last === undefined || at === items.length) return removed;
    const above = items[(at - 1) >> 1];
    if (at > 0 && above !== undefined && above.at > last.at) this.#rise(at, last);
    else this.#sink(at, last);
    return removed;
  }

  #rise(from: number, item: T): void {
    const items = this.#items;
    let at = from;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = items[parent];
      if (above === undefined || above.at <= item.at) break;
      items[at] = above;
      at = parent;
    }
    items[at] = item;
  }

  #sink(from: number, item: T): void {
    const items = this.#items;
    let at = from;
    for (;;) {
      const left = items[2 * at + 1];
      const right = items[2 * at + 2];
      const lesser = right !== undefined && left !== undefined && right.at < left.at ? right : left;
      if (lesser === undefined || lesser.at >= item.at) break;
      items[at] = lesser;
      at = 2 * at + (lesser === right ? 2 : 1);
    }
    items[at] = item;
  }
}
