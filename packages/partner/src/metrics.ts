/** The metrics of the kit. Labels are closed sets, never ids. */
import type { Database, Metrics } from '@duebridge/runtime';
import type { Standing } from './store.ts';

/** Counts one thing; a Counter of the metrics library fits. */
export interface Count {
  inc(by?: number): void;
}

/** Metrics that are read on demand. */
const watched = {
  waiting_reads: 'Reads waiting for a status change',
  apply_queue: 'Payments in memory that are not applied yet',
  calls_open: 'Payments in a call to the account system',
  calls_late: 'Calls to the account system beyond their deadline',
  locked_accounts:
    'Accounts that were locked or hung a short time ago, so that they are posted to alone',
  credentials_ending:
    'Clients whose last credential expires within 14 days, or expired in the last 14',
} as const;

/** The operations of an account system. */
export type CoreOperation = 'find_account' | 'find_balance' | 'post' | 'lookup';

/** The kit's counters. */
export interface KitMetrics {
  /** Payments accepted for the first time (ST1). */
  readonly accepted: Count;
  /** Repeats answered with the payment that was there (RU5). */
  readonly repeated: Count;
  /** Repeats that differ from the first request, or came from another client (decision 9). */
  readonly mismatched: Count;
  /** Payments ended here, by final status. */
  ended(status: 'succeeded' | 'failed' | 'canceled', by: number): void;
  /** Attempts to post that ended in an error and are retried. */
  readonly postErrors: Count;
  /** Payments whose account system reported another outcome than the one recorded. */
  readonly contradicted: Count;
  /** Requests refused because the credential was invalid or lacked the scope. */
  readonly authFailures: Count;
  /** Seconds from initiated_at to posted_at. */
  observePosting(seconds: number): void;
  /** Duration of calls to the account system in seconds. */
  observeCore(operation: CoreOperation, seconds: number): void;
  /** What has not ended, as last counted. */
  standing(state: 'processing' | 'unsettled', standing: Standing): void;
  /** Registers a metric that is read on demand. */
  watch(name: keyof typeof watched, value: () => number): void;
}

/** Registers the kit's metrics. Without a registry nothing is counted. */
export function kitMetrics(metrics: Metrics | undefined, database?: Database): KitMetrics {
  if (!metrics) {
    const nothing: Count = { inc: () => undefined };
    return {
      accepted: nothing,
      repeated: nothing,
      mismatched: nothing,
      ended: () => undefined,
      postErrors: nothing,
      contradicted: nothing,
      authFailures: nothing,
      observePosting: () => undefined,
      observeCore: () => undefined,
      standing: () => undefined,
      watch: () => undefined,
    };
  }
  const ended = metrics.counter('duebridge_kit_ended_total', 'Payments ended, by status', [
    'status',
  ]);
  const posting = metrics.histogram(
    'duebridge_kit_posting_seconds',
    'Time from the acceptance of a payment to its posting',
  );
  const core = metrics.histogram(
    'duebridge_kit_account_system_seconds',
    'Time that the account system took to answer, by operation',
    ['operation'],
  );
  const standing = {
    processing: { count: 0, oldest_seconds: 0 },
    unsettled: { count: 0, oldest_seconds: 0 },
  } satisfies Record<string, Standing> as Record<'processing' | 'unsettled', Standing>;
  const what = {
    processing: 'that are processing',
    unsettled: 'that the account system was asked to post and that have not ended',
  } as const;
  for (const state of ['processing', 'unsettled'] as const) {
    metrics.gauge(
      `duebridge_kit_${state}`,
      `Payments ${what[state]}`,
      [],
      () => standing[state].count,
    );
    metrics.gauge(
      `duebridge_kit_${state}_oldest_seconds`,
      `Age of the oldest of the payments ${what[state]}`,
      [],
      () => standing[state].oldest_seconds,
    );
  }
  if (database) {
    for (const state of ['open', 'idle', 'waiting'] as const) {
      const help =
        state === 'waiting' ? 'Callers waiting for a connection' : `Connections ${state}`;
      metrics.gauge(`duebridge_kit_pool_${state}`, help, [], () => database.stats()[state]);
    }
  }
  return {
    accepted: metrics.counter('duebridge_kit_accepted_total', 'Payments accepted, each id once'),
    repeated: metrics.counter('duebridge_kit_repeated_total', 'Idempotent retries answered'),
    mismatched: metrics.counter(
      'duebridge_kit_mismatched_total',
      'Retries that differed from the first request, or came from another client',
    ),
    ended: (status, by) => ended.inc({ status }, by),
    postErrors: metrics.counter('duebridge_kit_post_errors_total', 'Failed attempts to post'),
    contradicted: metrics.counter(
      'duebridge_kit_contradicted_total',
      'Payments whose account system reported a different result than the one recorded',
    ),
    authFailures: metrics.counter(
      'duebridge_kit_auth_failures_total',
      'Requests refused for a missing or invalid credential or scope',
    ),
    observePosting: (seconds) => posting.observe(seconds),
    observeCore: (operation, seconds) => core.observe({ operation }, seconds),
    standing(state, now) {
      standing[state] = now;
    },
    watch: (name, value) => void metrics.gauge(`duebridge_kit_${name}`, watched[name], [], value),
  };
}
