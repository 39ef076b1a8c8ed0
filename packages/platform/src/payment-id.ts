/**
 * Ids of payments: UUIDv7 (decision 13), whose first 48 bits are milliseconds since 1970. Pure.
 *
 * A flow's ids are a fixed sequence: each follows from the flow's own id, from its place in the sequence and from the instant at which it
 * was minted. The page learns the next one before the customer confirms. A confirm that is repeated after the database has lost the
 * first one therefore carries the same id, and the partner, which keeps ids for good (RU5), posts it once.
 */
import { createHmac } from 'node:crypto';

/** How long before its confirm an id may have been minted: a page that has been open for longer reads its session again. */
export const MINTED_BEFORE_MS = 2 * 3_600_000;
/** Maximum difference between the clocks of the platform's processes, which mint the ids, and the database's clock. */
const CLOCK_MARGIN_MS = 10 * 60_000;

/** The instant in an id, in milliseconds since 1970: of the confirm, or at most MINTED_BEFORE_MS earlier. */
export function madeAt(platform_payment_id: string): number {
  return Number.parseInt(platform_payment_id.replaceAll('-', '').slice(0, 12), 16);
}

/** The smallest id of a millisecond since 1970. */
export function firstIdAt(ms: number): string {
  return `${stampOf(ms)}-7000-8000-000000000000`;
}

/** An id below that of every payment confirmed at or after `ms`. */
export function idBefore(ms: number): string {
  return firstIdAt(ms - MINTED_BEFORE_MS - CLOCK_MARGIN_MS);
}

/** An id above that of every payment confirmed before `ms`. */
export function idAfter(ms: number): string {
  return firstIdAt(ms + CLOCK_MARGIN_MS);
}

/**
 * The smallest and the largest of some ids, at least one. A statement that names them beside the ids opens the partitions of their months
 * only, instead of every month that there is. All ids have one form, so that they sort alike here and by every collation of a database.
 */
export function spanOf(ids: readonly string[]): readonly [first: string, last: string] {
  const sorted = ids.toSorted();
  return [sorted[0] ?? '', sorted.at(-1) ?? ''];
}

/** The id of a flow's payment number `place` (the first is 0), minted at `ms`. Without the flow's id, nobody can tell it. */
export function flowPaymentId(flow_id: Buffer, place: number, ms: number): string {
  const stamp = stampOf(ms);
  const bits = createHmac('sha256', flow_id).update(`payment ${place} ${stamp}`).digest('hex');
  const variant = (0x8 | (Number.parseInt(bits.slice(3, 4), 16) & 0x3)).toString(16);
  return `${stamp}-7${bits.slice(0, 3)}-${variant}${bits.slice(4, 7)}-${bits.slice(7, 19)}`;
}

/** The place of an id among the first `places` of a flow; undefined for any other id. */
export function placeInFlow(
  flow_id: Buffer,
  platform_payment_id: string,
  places: number,
): number | undefined {
  const ms = madeAt(platform_payment_id);
  if (Number.isNaN(ms)) return undefined;
  // From the end: the one that is asked for is the next one, or the latest.
  for (let place = places - 1; place >= 0; place -= 1) {
    if (flowPaymentId(flow_id, place, ms) === platform_payment_id) return place;
  }
  return undefined;
}

function stampOf(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(12, '0').slice(-12);
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}
