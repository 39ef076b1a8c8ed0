/**
 * Reads of payments (B3, B5), and the waiting read (decision 24).
 *
 * enters:  the id of a payment; for a waiting read, how long.
 * leaves:  its current row from the primary (KT8, KT9), or its row after a status change.
 * holds:   a reader registers before it reads, so that no change is missed. It is woken at once by payments that this replica ended
 *          (apply.ts and admin.ts announce them), and by those of another replica within the polling pause below.
 *
 * The poll reads all awaited ids in one statement, ten times a second: at most 4,000 ids, which take PostgreSQL about ten milliseconds. LISTEN/NOTIFY was rejected: every notifying commit queues behind a lock of the whole database
 * server, which is expensive under many postings, and its payload holds 200 ids at most.
 */
import { abortWith, messageOf } from '@duebridge/runtime';
import type { KitContext } from './metrics.ts';
import { findEnded, findPayments, type AccountPath, type PaymentRow } from './store.ts';

/**
 * Maximum of concurrent waiting reads; further ones are answered at once, as if waiting were not supported. Each holds a
 * connection, so the limit is well below the 10,000 of a server, and at most half the connections of a smaller one.
 */
const MAX_WAITING = 4_000;
/** Longest wait granted, in milliseconds; below the 30 s after which many proxies cut a silent connection. */
const LONGEST_WAIT_MS = 25_000;
/** Pause between two polls for payments that other replicas ended: half of it is the mean delay of such a reader. */
const LOOK_PAUSE_MS = 100;

/** Creates the reading end. `maxConnections`: those of the server; undefined: unknown. */
export function openStatusReads(options: KitContext & { readonly maxConnections?: number }) {
  const { database, metrics, log, clock } = options;
  const limit = Math.min(MAX_WAITING, Math.floor((options.maxConnections ?? Infinity) / 2));
  const waiters = new Map<string, Set<(payment: PaymentRow) => void>>();
  const stopped = new AbortController();
  let waiting = 0;
  let looking: Promise<void> | undefined;
  metrics.watch('waiting_reads', () => waiting);

  /** Returns the payment, or undefined when there is none, or it is of another account than that of the path (decision 9). */
  const read = async (id: string, of?: AccountPath): Promise<PaymentRow | undefined> => {
    const payment = (await findPayments(database, [id])).get(id);
    const isOther =
      of && (payment?.biller_id !== of.biller_id || payment.account_id !== of.account_id);
    return isOther === true ? undefined : payment;
  };

  /** Wakes the readers of these payments; call it after the commit that ended them. */
  const announce = (ended: readonly PaymentRow[]): void => {
    for (const payment of ended) {
      for (const wake of waiters.get(payment.platform_payment_id) ?? []) wake(payment);
    }
  };

  /** Runs while any read waits. */
  const look = async (): Promise<void> => {
    while (waiters.size > 0 && !stopped.signal.aborted) {
      try {
        announce(await findEnded(database, [...waiters.keys()]));
      } catch (error) {
        log.warn({ error: messageOf(error) }, 'could not look for ended payments');
      }
      await clock.sleep(LOOK_PAUSE_MS, stopped.signal);
    }
    looking = undefined;
  };

  return {
    read,
    announce,
    /**
     * Returns the payment as soon as it has ended, or as it is when `ms` milliseconds have passed or `signal` aborts. One of another
     * account is answered as absent, at once. `applied` is false when too many reads wait already and this one did not wait.
     */
    async readWaiting(
      id: string,
      of: AccountPath,
      ms: number,
      signal: AbortSignal,
    ): Promise<{ payment: PaymentRow | undefined; applied: boolean }> {
      if (waiting >= limit || stopped.signal.aborted) {
        return { payment: await read(id, of), applied: false };
      }
      waiting += 1;
      const over = new AbortController();
      const unlink = [signal, stopped.signal].map((one) => abortWith(over, one));
      const ended = Promise.withResolvers<PaymentRow>();
      const own = waiters.get(id) ?? new Set();
      waiters.set(id, own.add(ended.resolve));
      try {
        const payment = await read(id, of);
        if (payment?.status !== 'processing') return { payment, applied: true };
        looking ??= look();
        const changed = await Promise.race([
          ended.promise,
          clock.sleep(Math.min(ms, LONGEST_WAIT_MS), over.signal).then(() => undefined),
        ]);
        return { payment: changed ?? payment, applied: true };
      } finally {
        waiting -= 1;
        own.delete(ended.resolve);
        if (own.size === 0) waiters.delete(id);
        for (const one of unlink) one();
        over.abort();
      }
    },
    /** Ends all waiting immediately and permanently. */
    async stop(): Promise<void> {
      stopped.abort();
      await looking;
    },
  };
}

/**
 * The seconds of `Prefer: wait=N` (RFC 7240); 0 when there is no such preference or it is malformed, which the RFC says to
 * ignore. Of several preferences the first counts.
 */
export function waitPreference(header: string | readonly string[] | undefined): number {
  for (const preference of [header ?? ''].flat().join(',').split(',')) {
    const match = /^\s*wait\s*=\s*"?(\d{1,6})"?\s*(?:;.*)?$/i.exec(preference);
    if (match) return Number(match[1]);
  }
  return 0;
}
