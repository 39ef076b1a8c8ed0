/**
 * The writes of a worker: steps of many payments, at most a few milliseconds apart, are combined into one statement.
 *
 * enters: a step that a payment takes.  leaves: that it was taken, or the row as it is when the payment is no longer this worker's.
 * holds:  a row that somebody has locked holds up no other: it is tried again by itself. The pool gives up its wait for the lock.
 *         Every statement carries the fence (store/payments.ts). A write is retried until the database answers. The guarded
 *         statement makes that harmless, because a step that was already taken changes no row.
 */
import { Refusal, type PaymentStage } from '@duebridge/contract';
import { groupCommit, isDatabaseTrouble, sqlState, type GroupCommit } from '@duebridge/runtime';
import { advance, findPayment, type PaymentRow, type Writer } from '../store/payments.ts';
import { endPayments, settlePayments } from '../store/terminal.ts';
import type { CallGround } from './options.ts';
import type { StepWrite } from './payment-steps.ts';

/** Rows in one statement of a group commit. */
const MAX_BATCH = 500;
/** Rows that are tried one by one beside each other, after one of their statement was locked. */
const AT_ONCE = 4;
/** So many locked rows in one statement mean that the table is locked: the others wait as well. */
const MANY_LOCKED = 8;
/** Pause before a locked row is tried again, by itself. */
const LOCKED_MS = 1_000;
/** A flush of ends, for which no call waits, that takes longer than this is held up, and the next starts beside it. */
const END_PATIENCE_MS = 100;
/** Writes waiting at most: one per payment under way, and a worker holds up to a million. */
const MAX_QUEUED = 2_000_000;

/** The result of a write. `refused`: the row did not change; this is its current state. */
export type Recorded =
  | { readonly kind: 'changed' }
  | { readonly kind: 'refused'; readonly row: PaymentRow | undefined }
  /** Not written, and nothing more may be written: the lease is lost or the worker is stopping. */
  | { readonly kind: 'given_up' };

/** A step of a payment that stands at `from`. */
type Step<Kind extends StepWrite['kind'] = StepWrite['kind']> = {
  readonly platform_payment_id: string;
  readonly from: PaymentStage;
} & Extract<StepWrite, { kind: Kind }>;

/** Whether a row was written; `locked`: somebody else holds it. */
type Written = boolean | 'locked';
/** A group commit for each of the three statements. */
type Writes = { readonly [Kind in StepWrite['kind']]: GroupCommit<Step<Kind>, Written> };

/** What the writes depend on. */
type Ground = Pick<
  CallGround,
  'database' | 'clock' | 'workerId' | 'databaseNow' | 'holdsLease' | 'outage' | 'signals'
>;

/** The writes of one worker. */
export class PaymentRecords {
  readonly #on: Ground;
  readonly #together: Writes;
  /** For rows that were locked. */
  readonly #alone: Writes;

  constructor(on: Ground) {
    this.#on = on;
    this.#together = this.#writes(MAX_BATCH);
    this.#alone = this.#writes(1);
  }

  #writes(maxBatch: number): Writes {
    const { database, clock, workerId, databaseNow } = this.#on;
    const writer = (): Writer => ({ worker_id: workerId, at: databaseNow() });
    const group = <One>(write: (steps: One[]) => Promise<boolean[]>, patienceMs: number) =>
      groupCommit<One, Written>({
        maxBatch,
        maxQueued: MAX_QUEUED,
        // One fills while the other waits for the disk; the rows of one payment are never in both.
        concurrency: 2,
        patienceMs,
        clock,
        flush: (steps) => unlocked(write, steps),
      });
    return {
      advance: group(
        (steps) =>
          advance(
            database,
            writer(),
            steps.map(({ acceptance, ...step }) => ({ ...step, ...acceptance })),
          ),
        0,
      ),
      end: group((steps) => endPayments(database, writer(), steps), END_PATIENCE_MS),
      settle: group((steps) => settlePayments(database, writer(), steps), 0),
    };
  }

  /** Writes one step of a payment that stands at `from`. */
  async write(platform_payment_id: string, from: PaymentStage, step: StepWrite): Promise<Recorded> {
    const { database, clock, holdsLease, outage, signals } = this.#on;
    let writes = this.#together;
    for (;;) {
      // A stop lets steps under way be recorded, as long as the lease is held.
      if (!holdsLease() || signals.calls.aborted) return { kind: 'given_up' };
      try {
        const written = await add(writes, { platform_payment_id, from, ...step });
        if (written === 'locked') {
          writes = this.#alone;
          await clock.sleep(LOCKED_MS, signals.calls);
          continue;
        }
        if (written) return { kind: 'changed' };
        // It belongs to another worker by now, was withdrawn by an operator, or was written by an attempt whose answer was lost (F70).
        return { kind: 'refused', row: await findPayment(database, platform_payment_id) };
      } catch (error) {
        if (!isDatabaseTrouble(error) && !(error instanceof Refusal)) throw error;
        // A stop waits for no database: whoever takes the payment over repeats the step.
        if (signals.waits.aborted) return { kind: 'given_up' };
        await outage.over(error);
      }
    }
  }

  /** Resolves when everything added so far is written or has failed. */
  async drain(): Promise<void> {
    const all = [this.#together, this.#alone].flatMap((writes) => Object.values(writes));
    await Promise.all(all.map((writes) => writes.drain()));
  }
}

function add(writes: Writes, step: Step): Promise<Written> {
  switch (step.kind) {
    case 'advance':
      return writes.advance.add(step);
    case 'end':
      return writes.end.add(step);
    case 'settle':
      return writes.settle.add(step);
  }
}

/** Writes rows in one statement or, if one of them is locked, each by itself, so that the others are written. */
async function unlocked<One>(
  write: (steps: One[]) => Promise<boolean[]>,
  steps: One[],
): Promise<Written[]> {
  try {
    return await write(steps);
  } catch (error) {
    if (sqlState(error) !== LOCK_NOT_AVAILABLE) throw error;
  }
  const written: Written[] = steps.map(() => 'locked');
  if (steps.length === 1) return written;
  let locked = 0;
  const left = steps.entries();
  const work = async (): Promise<void> => {
    for (const [index, step] of left) {
      if (locked >= MANY_LOCKED) return;
      written[index] = (await unlocked(write, [step]))[0] ?? 'locked';
      if (written[index] === 'locked') locked += 1;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return written;
}

const LOCK_NOT_AVAILABLE = '55P03';
