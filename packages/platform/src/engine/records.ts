/**
 * The writes of a worker: steps of many payments, at most a few milliseconds apart, are combined into one statement.
 *
 * enters: a step that a payment takes.  leaves: that it was taken, or the row as it is when the payment is no longer this worker's.
 * holds:  a row that somebody has locked holds up no other: it is tried again by itself. The pool gives up its wait for the lock.
 *         Every statement carries the fence (store/steps.ts). A write is retried until the database answers. The guarded
 *         statement makes that harmless, because a step that was already taken changes no row.
 */
import { Refusal } from '@duebridge/contract';
import { groupCommit, isDatabaseTrouble, sqlState, type GroupCommit } from '@duebridge/runtime';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import { takeSteps, type Step } from '../store/steps.ts';
import type { CallGround } from './options.ts';

/** Rows in one statement of a group commit. */
const MAX_BATCH = 500;
/** Statements at once: one fills while the other waits for the disk; the rows of one payment are never in both. */
const AT_ONCE = 2;
/** Rows that are tried one by one beside each other, after one of their statement was locked: a few locked ones leave room. */
const ALONE_AT_ONCE = 4;
/** A statement has a cost of its own, so that few large ones cost less: one that takes longer than this is held up, and the next starts beside it. */
const PATIENCE_MS = 100;
/** Pause before a row that was locked when it was tried by itself is tried again. */
const LOCKED_MS = 1_000;
/** Writes waiting at most: one per payment under way, and a worker holds up to a million. */
const MAX_QUEUED = 2_000_000;
const LOCK_NOT_AVAILABLE = '55P03';

/** The result of a write. `refused`: the row did not change; this is its current state. */
export type Recorded =
  | { readonly kind: 'changed' }
  | { readonly kind: 'refused'; readonly row: PaymentRow | undefined }
  /** Not written, and nothing more may be written: the lease is lost or the worker is stopping. */
  | { readonly kind: 'given_up' };

/** What the writes depend on. */
type Ground = Pick<
  CallGround,
  'database' | 'clock' | 'workerId' | 'databaseNow' | 'holdsLease' | 'outage' | 'signals'
>;

/** The writes of one worker. */
export class PaymentRecords {
  readonly #on: Ground;
  readonly #together: GroupCommit<Step, boolean>;
  /** For rows whose statement met a lock. */
  readonly #alone: GroupCommit<Step, boolean>;

  constructor(on: Ground) {
    const { database, clock, workerId: worker_id, databaseNow } = on;
    const writes = (maxBatch: number, concurrency: number) =>
      groupCommit<Step, boolean>({
        maxBatch,
        maxQueued: MAX_QUEUED,
        concurrency,
        patienceMs: PATIENCE_MS,
        clock,
        flush: (steps) => takeSteps(database, { worker_id, at: databaseNow() }, steps),
      });
    this.#on = on;
    this.#together = writes(MAX_BATCH, AT_ONCE);
    this.#alone = writes(1, ALONE_AT_ONCE);
  }

  /** Writes one step of a payment. */
  async write(step: Step): Promise<Recorded> {
    const { database, clock, holdsLease, outage, signals } = this.#on;
    let writes = this.#together;
    for (;;) {
      // A stop lets steps under way be recorded, as long as the lease is held.
      if (!holdsLease() || signals.calls.aborted) return { kind: 'given_up' };
      try {
        if (await writes.add(step)) return { kind: 'changed' };
        // It belongs to another worker by now, was withdrawn by an operator, or was written by an attempt whose answer was lost (F70).
        return { kind: 'refused', row: await findPayment(database, step.platform_payment_id) };
      } catch (error) {
        if (sqlState(error) === LOCK_NOT_AVAILABLE) {
          if (writes === this.#alone) await clock.sleep(LOCKED_MS, signals.calls);
          writes = this.#alone;
          continue;
        }
        if (!isDatabaseTrouble(error) && !(error instanceof Refusal)) throw error;
        // A stop waits for no database: whoever takes the payment over repeats the step.
        if (signals.waits.aborted) return { kind: 'given_up' };
        await outage.over(error);
      }
    }
  }

  /** Resolves when everything added so far is written or has failed. */
  async drain(): Promise<void> {
    await Promise.all([this.#together.drain(), this.#alone.drain()]);
  }
}
