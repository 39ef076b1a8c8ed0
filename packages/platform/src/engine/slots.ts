/**
 * Who drives which payments: a payment is in one of 1,024 slots, and a worker owns slots (decision 61).
 *
 * Taking over from the dead, and sharing out after a join, changes rows of this one small table, however many payments are in
 * flight. Every worker reads the whole table periodically and computes the same plan: all live workers should own the same number
 * of slots. A worker with too many releases some, and the free ones are divided among those with too few, so that two workers
 * seldom try to take the same slot. If they do, the first one wins, because each change names the owner it expects.
 *
 * The process that creates a payment puts it into a slot of its own worker and drives it at once. One that owns no slot (it has
 * just started, or lost its lease) leaves it in ARRIVALS; the owner of slot 0 moves what arrives there into its own slots.
 */
import { sql } from '@duebridge/runtime';
import { spanOf } from '../payment-id.ts';
import { ARRIVALS, findPayments, type PaymentRow, type Queryable } from '../store/payments.ts';

/** How many slots there are: enough that twenty workers differ by 2 % at most, few enough to be read every second. */
export const SLOTS = 1_024;
/** The owner of this slot distributes ARRIVALS. */
export const ARRIVALS_KEEPER = 0;

/** The slots as they stand in the database. */
interface SlotView {
  /** Owner by slot; null where there is none. */
  readonly owners: readonly (string | null)[];
  /** Workers whose lease has not expired and that read the slots. */
  readonly active: readonly string[];
  /** Workers whose lease has not expired. Only slots that belong to none of them may be taken. */
  readonly living: readonly string[];
}

/** What `me` should do about its slots, from data that every worker sees alike. Pure. */
export function planSlots({ owners, active, living }: SlotView, me: string) {
  const workers = [...new Set([...active, me])].toSorted();
  const alive = new Set([...living, ...workers]);
  const owned = new Map<string, number[]>(workers.map((worker) => [worker, []]));
  const free: number[] = [];
  for (const [slot, owner] of owners.entries()) {
    if (owner === null || !alive.has(owner)) free.push(slot);
    else owned.get(owner)?.push(slot);
  }
  const targets = targetsOf(workers, (worker) => owned.get(worker)?.length ?? 0);
  const mine = owned.get(me) ?? [];
  const target = targets.get(me) ?? 0;
  // Assign the free slots in the order of the workers, to each as many as it lacks.
  let from = 0;
  for (const worker of workers) {
    if (worker === me) break;
    from += Math.max(0, (targets.get(worker) ?? 0) - (owned.get(worker)?.length ?? 0));
  }
  return {
    give: mine.slice(target),
    take: free.slice(from, from + Math.max(0, target - mine.length)),
    /** Slots that this worker should own in the end. */
    target,
  };
}

/** Divides all slots evenly. A remainder goes to the workers that own most, so that no slot moves without need. */
function targetsOf(
  workers: readonly string[],
  owns: (worker: string) => number,
): Map<string, number> {
  const even = Math.floor(SLOTS / workers.length);
  const extra = SLOTS % workers.length;
  const byOwned = workers.toSorted((a, b) => owns(b) - owns(a) || (a < b ? -1 : 1));
  return new Map(byOwned.map((worker, rank) => [worker, even + (rank < extra ? 1 : 0)]));
}

const viewStatement = sql(`
   SELECT s.worker_id, array_agg(s.slot) AS slots FROM duebridge_platform.slots s GROUP BY s.worker_id`);

const workersStatement = sql(`
   SELECT w.worker_id, coalesce(w.round_at > now() - $1 * interval '1 millisecond', false) AS active
     FROM duebridge_platform.workers w
    WHERE w.heartbeat_at > now() - $1 * interval '1 millisecond'
      AND w.heartbeat_at <= now() + $1 * interval '1 millisecond'`);

const roundStatement = sql(`
   UPDATE duebridge_platform.workers SET round_at = now() WHERE worker_id = $1`);

/** Records that this worker reads the slots, and reads them. */
export async function readSlots(
  on: Queryable,
  worker_id: string,
  leaseMs: number,
): Promise<SlotView> {
  await on.query(roundStatement, [worker_id]);
  // The slots first: an owner that they name and that has registered since is then seen to be alive.
  const rows = await on.query<{ worker_id: string | null; slots: number[] }>(viewStatement);
  const workers = await on.query<{ worker_id: string; active: boolean }>(workersStatement, [
    leaseMs,
  ]);
  const owners = Array.from<string | null>({ length: SLOTS }).fill(null);
  for (const { worker_id: owner, slots } of rows) for (const slot of slots) owners[slot] = owner;
  return {
    owners,
    living: workers.map((worker) => worker.worker_id),
    active: workers.filter((worker) => worker.active).map((worker) => worker.worker_id),
  };
}

const takeStatement = sql(
  'slot_take',
  `UPDATE duebridge_platform.slots AS s SET worker_id = $1
     FROM unnest($2::smallint[], $3::text[]) AS e (slot, owner)
    WHERE s.slot = e.slot AND s.worker_id IS NOT DISTINCT FROM e.owner
  RETURNING s.slot`,
);

/** Takes slots from the owners that a view showed, which were dead or null. Returns those that are now this worker's. */
export async function takeSlots(
  on: Queryable,
  worker_id: string,
  slots: readonly number[],
  owners: SlotView['owners'],
): Promise<number[]> {
  if (slots.length === 0) return [];
  // Locks in one order everywhere, so that two workers that take the same slots cannot deadlock.
  const sorted = slots.toSorted((a, b) => a - b);
  const rows = await on.query<{ slot: number }>(takeStatement, [
    worker_id,
    sorted,
    sorted.map((slot) => owners[slot] ?? null),
  ]);
  return rows.map((row) => row.slot);
}

const giveStatement = sql(`
   UPDATE duebridge_platform.slots SET worker_id = NULL
    WHERE worker_id = $1 AND ($2::smallint[] IS NULL OR slot = ANY($2))`);

/**
 * Releases slots of a worker, all of them without `slots`, which every worker may then take. The cost does not depend on the payments in
 * flight.
 */
export async function giveSlots(
  on: Queryable,
  worker_id: string,
  slots: readonly number[] | null = null,
): Promise<void> {
  await on.query(giveStatement, [worker_id, slots]);
}

const idsStatement = sql(`
   SELECT array_agg(p.platform_payment_id ORDER BY p.platform_payment_id COLLATE "C") AS ids FROM duebridge_platform.payments p
    WHERE p.slot = ANY($1::smallint[]) AND p.settled_at IS NULL GROUP BY p.slot`);

/** The payments in flight of these slots, those of each the oldest first. */
export async function idsInSlots(on: Queryable, slots: readonly number[]): Promise<string[]> {
  const rows = await on.query<{ ids: string[] }>(idsStatement, [slots]);
  return rows.flatMap((row) => row.ids);
}

/** Payments read by one statement at most: little enough that most of a page is garbage before V8 moves it to the old generation. */
export const PAGE = 500;

const arrivedStatement = sql(`
   SELECT p.platform_payment_id FROM duebridge_platform.payments p
    WHERE p.slot = ${ARRIVALS} AND p.settled_at IS NULL LIMIT $1`);

const placeStatement = sql(
  `UPDATE duebridge_platform.payments AS p SET slot = u.slot
     FROM unnest($2::text[], $3::smallint[]) AS u (id, slot), duebridge_platform.slots AS s
    WHERE p.platform_payment_id = u.id AND p.platform_payment_id BETWEEN $4 AND $5 AND p.slot = ${ARRIVALS} AND p.settled_at IS NULL
      AND s.slot = u.slot AND s.worker_id = $1
  RETURNING p.platform_payment_id`,
);

/**
 * Moves up to PAGE payments from ARRIVALS into slots of this worker, by turns. Returns their rows, read apart: a sharded database
 * calls no function of time in RETURNING.
 */
export async function placeArrivals(
  on: Queryable,
  worker_id: string,
  slots: readonly number[],
): Promise<PaymentRow[]> {
  const arrived = await on.query<{ platform_payment_id: string }>(arrivedStatement, [PAGE]);
  if (arrived.length === 0 || slots.length === 0) return [];
  // The oldest of them first. To sort all that wait, for each page of them, would take long in a backlog.
  const ids = arrived.map((row) => row.platform_payment_id).toSorted();
  const placed = await on.query<{ platform_payment_id: string }>(placeStatement, [
    worker_id,
    ids,
    ids.map((_, index) => slots[index % slots.length] ?? ARRIVALS),
    ...spanOf(ids),
  ]);
  return findPayments(
    on,
    placed.map((row) => row.platform_payment_id),
  );
}
