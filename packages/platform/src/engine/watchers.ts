/**
 * Whoever watches a payment: its customer's page, at whichever process.
 *
 * enters: that a payment of this worker has changed, and a turn of the engine's clock for those that other workers drive.  leaves: the row
 *         to each of its watchers, once for each change.
 * holds:  one read after the other, so that an older row never reaches a watcher after a newer one; what changes in one turn of the event
 *         loop is read together. A change whose row could not be read is read at the next look.
 */
import { setImmediate as immediate } from 'node:timers/promises';
import { messageOf, type Database, type Log } from '@duebridge/runtime';
import { findNews, type WatchedPayment } from '../store/payments.ts';

/** The watchers of one engine. */
export class Watchers {
  readonly #on: { readonly database: Database; readonly log: Log };
  /** By payment: whom to tell, and what they were told last. */
  readonly #watched = new Map<
    string,
    { readonly watchers: Set<(payment: WatchedPayment) => void>; told: string }
  >();
  /** Payments of this worker that have changed. */
  readonly #news = new Set<string>();
  #reading: Promise<void> = Promise.resolve();

  constructor(on: { readonly database: Database; readonly log: Log }) {
    this.#on = on;
  }

  /** See Engine.watch. */
  watch(id: string, changed: (payment: WatchedPayment) => void): () => void {
    const watched = this.#watched.get(id) ?? { watchers: new Set(), told: '' };
    this.#watched.set(id, watched);
    watched.watchers.add(changed);
    return () => {
      const wasHere = watched.watchers.delete(changed);
      if (wasHere && watched.watchers.size === 0) this.#watched.delete(id);
    };
  }

  /** A payment of this worker has changed. */
  noticed(id: string): void {
    if (!this.#watched.has(id)) return;
    const isFirst = this.#news.size === 0;
    this.#news.add(id);
    // What could not be read is read with the payments of other workers.
    if (isFirst) void immediate().then(() => this.look(() => false).catch(() => undefined));
  }

  /** Reads what has changed, and the payments that others drive. */
  look(isForeign: (id: string) => boolean): Promise<void> {
    const looked = this.#reading.then(() => this.#look(isForeign));
    this.#reading = looked.catch(() => undefined);
    return looked;
  }

  async #look(isForeign: (id: string) => boolean): Promise<void> {
    const news = new Set(this.#news);
    this.#news.clear();
    const ids = [...this.#watched.keys()].filter((id) => news.has(id) || isForeign(id));
    const told = ids.map((id) => this.#watched.get(id)?.told ?? '');
    if (ids.length === 0) return;
    try {
      for (const row of await findNews(this.#on.database, ids, told)) this.#tell(row);
    } catch (error) {
      for (const id of news) this.#news.add(id);
      throw error;
    }
  }

  #tell(row: WatchedPayment): void {
    const watched = this.#watched.get(row.platform_payment_id);
    const news = `${row.stage} ${row.status}`;
    if (watched === undefined || watched.told === news) return;
    watched.told = news;
    for (const changed of watched.watchers) {
      try {
        changed(row);
      } catch (error) {
        this.#on.log.error({ error: messageOf(error) }, 'a watcher failed');
      }
    }
  }
}
