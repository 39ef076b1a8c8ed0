/** The figures of the kit. Labels are closed sets, never ids. */
import type { Metrics } from '@duebridge/runtime';

/** Counts one thing; a Counter of the metrics is one. */
export interface Count {
  inc(by?: number): void;
}

/** What the kit counts. */
export interface KitMetrics {
  /** Payments accepted for the first time (ST1). */
  readonly accepted: Count;
  /** Repeats answered with the payment that was there (RU5). */
  readonly repeated: Count;
  /** Repeats that said something else than the first request, or came from another client (decision 9). */
  readonly mismatched: Count;
  /** Payments ended here, by their last status. */
  ended(status: 'succeeded' | 'failed' | 'canceled', by: number): void;
  /** Tries to post that ended in an error and are repeated. */
  readonly postErrors: Count;
  /** Seconds from initiated_at to posted_at. */
  observePosting(seconds: number): void;
  /** Registers a figure that is read when it is asked for. */
  watch(name: 'waiting_reads' | 'apply_queue', value: () => number): void;
}

/** Registers the kit's figures. Without metrics nothing is counted. */
export function kitMetrics(metrics: Metrics | undefined): KitMetrics {
  if (!metrics) {
    const nothing: Count = { inc: () => undefined };
    return {
      accepted: nothing,
      repeated: nothing,
      mismatched: nothing,
      ended: () => undefined,
      postErrors: nothing,
      observePosting: () => undefined,
      watch: () => undefined,
    };
  }
  const ended = metrics.counter('duebridge_kit_ended_total', 'Payments ended, by status', [
    'status',
  ]);
  const posting = metrics.histogram(
    'duebridge_kit_posting_seconds',
    'From the acceptance of a payment to its posting',
  );
  return {
    accepted: metrics.counter('duebridge_kit_accepted_total', 'Payments accepted, each id once'),
    repeated: metrics.counter('duebridge_kit_repeated_total', 'Idempotent retries answered'),
    mismatched: metrics.counter(
      'duebridge_kit_mismatched_total',
      'Retries that differed from the first request, or came from another client',
    ),
    ended: (status, by) => ended.inc({ status }, by),
    postErrors: metrics.counter('duebridge_kit_post_errors_total', 'Failed tries to post'),
    observePosting: (seconds) => posting.observe(seconds),
    watch(name, value) {
      const help =
        name === 'waiting_reads'
          ? 'Reads that wait for a status to change'
          : 'Payments in hand that are not applied yet';
      metrics.gauge(`duebridge_kit_${name}`, help, [], value);
    },
  };
}
