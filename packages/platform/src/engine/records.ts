/**
 * The writes of a worker: steps of many payments, at most a few milliseconds apart, are combined into one statement.
 *
 * enters: a step that a payment takes.  leaves: that it was taken, or the row as it is when the payment is no longer this worker's.
 * holds:  a row that somebody has locked holds up no other: it is tried again by itself. The pool gives up its wait for the lock.
 *         Every statement carries the fence (store/payments.ts). A write is retried until the database answers. The guarded
 *         statement makes that harmless, because a step that was already taken changes no row.
 */
import { Refusal, type PaymentStage } from '@duebridge/contract';
import {
  groupCommit,
  isDatabaseTrouble,
  sqlState,
  type Clock,
  type Database,
  type GroupCommit,
} from '@duebridge/runtime';
import {
  advance,
  findPayment,
  type Advance,
  type PaymentRow,
  type Writer,
} from '../store/payments.ts';
import { endPayments, settlePayments, type End, type Settlement } from '../store/terminal.ts';
import type { Outage } from './outage.ts';
import type { StepWrite } from './payment-steps.ts';

/** Rows in one statement of a group commit. */
const MAX_BATCH = 500;
/** Rows that are tried one by one beside each other, after one of their statement was locked. */
const AT_ONCE = 4;
/** So many locked rows in one statement mean that the table is locked: the others wait as well. */
const MANY_LOCKED = 8;
/** Pause before a locked row is tried again, by itself. */
const LOCKED_MS = 1_000;
/** A flush of ends that takes longer than this is held up, and the next starts beside it. */
const END_PATIENCE_MS = 100;
/** Writes waiting at most: one per payment under way, and a worker holds up to a million. */
const MAX_QUEUED = 2_000_000;

/** What the writes depend on. */
export interface RecordOptions {
  readonly database: Database;
  readonly clock: Clock;
  /** Who writes, at the time of a write. */
  readonly writer: () => Writer;
  /** False once nothing may be written any more: the lease can no longer be relied on. */
  readonly mayWrite: () => boolean;
  readonly outage: Outage;
  /** Aborts the pauses between tries. */
  readonly signal: AbortSignal;
}

/** The result of a write. `refused`: the row did not change; this is its current state. */
export type Recorded =
  | { readonly kind: 'changed' }
  | { readonly kind: 'refused'; readonly row: PaymentRow | undefined }
  /** Not written, and nothing more may be written: the lease is lost or the worker is stopping. */
  | { readonly kind: 'given_up' };

/** The writes of one worker. */
export class PaymentRecords {
  readonly #options: RecordOptions;
  readonly #together: Writes;
  /** For rows that were locked. */
  readonly #alone: Writes;

  constructor(options: RecordOptions) {
    this.#options = options;
    this.#together = this.#writes(MAX_BATCH);
    this.#alone = this.#writes(1);
  }

  #writes(maxBatch: number): Writes {
    const { database, writer, clock } = this.#options;
    // Two flushes: one fills while the other waits for the disk; the rows of one payment are never in both.
    const limits = { maxBatch, maxQueued: MAX_QUEUED, concurrency: 2 };
    return {
      advances: groupCommit({
        ...limits,
        flush: (steps) => unlocked((some) => advance(database, writer(), some), steps),
      }),
      ends: groupCommit({
        ...limits,
        // No call waits for an end.
        patienceMs: END_PATIENCE_MS,
        clock,
        flush: (ends) => unlocked((some) => endPayments(database, writer(), some), ends),
      }),
      settles: groupCommit({
        ...limits,
        flush: (some) => unlocked((few) => settlePayments(database, writer(), few), some),
      }),
    };
  }

  /** Writes one step of a payment that stands at `from`. */
  async write(platform_payment_id: string, from: PaymentStage, step: StepWrite): Promise<Recorded> {
    const { database, clock, mayWrite, outage, signal } = this.#options;
    let writes = this.#together;
    for (;;) {
      if (!mayWrite()) return { kind: 'given_up' };
      try {
        const written = await add(writes, platform_payment_id, from, step);
        if (written === 'locked') {
          writes = this.#alone;
          await clock.sleep(LOCKED_MS, signal);
          continue;
        }
        if (written) return { kind: 'changed' };
        // It belongs to another worker by now, was withdrawn by an operator, or was written by an attempt whose answer was lost (F70).
        return { kind: 'refused', row: await findPayment(database, platform_payment_id) };
      } catch (error) {
        if (!isDatabaseTrouble(error) && !(error instanceof Refusal)) throw error;
        if (signal.aborted) return { kind: 'given_up' };
        await outage.over(signal, error);
      }
    }
  }

  /** Resolves when everything added so far is written or has failed. */
  async drain(): Promise<void> {
    await Promise.all(
      [this.#together, this.#alone].flatMap(({ advances, ends, settles }) => [
        advances.drain(),
        ends.drain(),
        settles.drain(),
      ]),
    );
  }
}

/** Whether a row was written; `locked`: somebody else holds it. */
type Written = boolean | 'locked';

/** The three statements. */
interface Writes {
  readonly advances: GroupCommit<Advance, Written>;
  readonly ends: GroupCommit<End, Written>;
  readonly settles: GroupCommit<Settlement, Written>;
}

function add(
  { advances, ends, settles }: Writes,
  platform_payment_id: string,
  from: PaymentStage,
  step: StepWrite,
): Promise<Written> {
  switch (step.kind) {
    case 'advance': {
      const { kind: _, acceptance, hold, ...rest } = step;
      return advances.add({
        platform_payment_id,
        from,
        ...rest,
        ...acceptance,
        ...(hold === undefined ? {} : { hold }),
      });
    }
    case 'end': {
      const { kind: _, ...rest } = step;
      return ends.add({ platform_payment_id, from, ...rest });
    }
    case 'settle':
      return settles.add({
        platform_payment_id,
        ...(step.settled ? { settled: step.settled } : {}),
      });
  }
}

/** Writes rows in one statement or, if one of them is locked, each by itself, so that the others are written. */
async function unlocked<Step>(
  write: (steps: Step[]) => Promise<boolean[]>,
  steps: Step[],
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
