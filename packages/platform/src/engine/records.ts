/**
 * The writes of a worker: steps of many payments, at most a few milliseconds apart, are combined into one statement.
 *
 * enters: a step that a payment takes.  leaves: that it was taken, or the row as it is when the payment is no longer this worker's.
 * holds:  every statement carries the fence (store/payments.ts). A write is retried until the database answers. The guarded
 *         statement makes that harmless, because a step that was already taken changes no row.
 */
import { Refusal, type PaymentStage } from '@duebridge/contract';
import {
  groupCommit,
  isDatabaseTrouble,
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
  readonly #advances: GroupCommit<Advance, boolean>;
  readonly #ends: GroupCommit<End, boolean>;
  readonly #settles: GroupCommit<Settlement, boolean>;

  constructor(options: RecordOptions) {
    this.#options = options;
    const { database, writer, clock } = options;
    // Two flushes: one fills while the other waits for the disk; the rows of one payment are never in both.
    const limits = { maxBatch: MAX_BATCH, maxQueued: MAX_QUEUED, concurrency: 2 };
    this.#advances = groupCommit({
      ...limits,
      flush: (steps) => advance(database, writer(), steps),
    });
    this.#ends = groupCommit({
      ...limits,
      // No call waits for an end.
      patienceMs: END_PATIENCE_MS,
      clock,
      flush: (ends) => endPayments(database, writer(), ends),
    });
    this.#settles = groupCommit({
      ...limits,
      flush: (settled) => settlePayments(database, writer(), settled),
    });
  }

  /** Writes one step of a payment that stands at `from`. */
  async write(platform_payment_id: string, from: PaymentStage, step: StepWrite): Promise<Recorded> {
    const { database, mayWrite, outage, signal } = this.#options;
    for (;;) {
      if (!mayWrite()) return { kind: 'given_up' };
      try {
        if (await this.#add(platform_payment_id, from, step)) return { kind: 'changed' };
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
    await Promise.all([this.#advances.drain(), this.#ends.drain(), this.#settles.drain()]);
  }

  #add(platform_payment_id: string, from: PaymentStage, step: StepWrite): Promise<boolean> {
    switch (step.kind) {
      case 'advance': {
        const { kind: _, acceptance, hold, ...rest } = step;
        return this.#advances.add({
          platform_payment_id,
          from,
          ...rest,
          ...acceptance,
          ...(hold === undefined ? {} : { hold }),
        });
      }
      case 'end': {
        const { kind: _, ...rest } = step;
        return this.#ends.add({ platform_payment_id, from, ...rest });
      }
      case 'settle':
        return this.#settles.add({
          platform_payment_id,
          ...(step.settled ? { settled: step.settled } : {}),
        });
    }
  }
}
