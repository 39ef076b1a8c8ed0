/** A token bucket per key (decision 16). */
import { Refusal } from '@duebridge/contract';
import { systemClock, type Clock } from '../clock.ts';

/**
 * Limits calls per key to `perSecond` with bursts of `burst` (decision 16). Keeps at most `maxKeys` buckets and evicts the least
 * recently used one, which then starts full again: memory stays bounded. The limits are per process, so those of several
 * processes add up.
 */
export function rateLimiter(options: {
  perSecond: number;
  burst: number;
  maxKeys: number;
  clock?: Clock;
}) {
  const { perSecond, burst, maxKeys, clock = systemClock } = options;
  const buckets = new Map<string, { left: number; at: number }>();
  return {
    /** Takes one from the key's bucket; returns the refusal of a caller who has to wait: TOO_MANY_REQUESTS with Retry-After. */
    take(key: string): Refusal | undefined {
      const now = clock.monotonic();
      const before = buckets.get(key) ?? { left: burst, at: now };
      const left = Math.min(burst, before.left + ((now - before.at) / 1000) * perSecond);
      const ok = left >= 1;
      // Delete and re-insert: a Map keeps insertion order, so the first key is the least recently used.
      buckets.delete(key);
      buckets.set(key, { left: ok ? left - 1 : left, at: now });
      if (buckets.size > maxKeys) {
        const oldest = buckets.keys().next();
        if (oldest.done !== true) buckets.delete(oldest.value);
      }
      if (ok) return undefined;
      const seconds = Math.max(1, Math.ceil((1 - left) / perSecond));
      return new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': String(seconds) } });
    },
  };
}
