/** The metrics of the kit. Labels are closed sets, never ids. */
import type { TerminalStatus } from '@duebridge/contract';
import {
  createMetrics,
  type Clock,
  type Database,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import type { Standing } from './store.ts';

const counters = {
  accepted: 'Payments accepted, each id once',
  repeated: 'Idempotent retries answered',
  mismatched: 'Retries that differed from the first request',
  post_errors: 'Failed attempts to post',
  contradicted: 'Payments whose account system reported a different result than the one recorded',
  auth_failures: 'Requests refused for a missing or invalid credential or scope',
} as const;

/** Metrics that are read on demand. */
const watched = {
  waiting_reads: 'Reads waiting for a status change',
  apply_queue: 'Payments in memory that are not applied yet',
  calls_open: 'Payments in a call to the account system',
  calls_late: 'Calls to the account system beyond their deadline',
  locked_accounts:
    'Accounts that were locked or hung a short time ago, so that they are posted to alone',
} as const;

/** Metrics of what has not ended, as last counted. */
const standings = {
  processing: 'Payments that are processing',
  processing_oldest_seconds: 'Age of the oldest of them',
  unsettled: 'Payments that the account system was asked to post and that have not ended',
  unsettled_oldest_seconds: 'Age of the oldest of them',
} as const satisfies Record<keyof Standing, string>;

/** The operations of an account system. */
export type CoreOperation = 'find_account' | 'post' | 'lookup';

/** Registers the kit's metrics; without a registry nobody reads them. */
export function kitMetrics(
  metrics: Metrics = createMetrics({ processFigures: false }),
  database?: Database,
) {
  const gauge = (name: string, help: string, value: () => number): void =>
    void metrics.gauge(`duebridge_kit_${name}`, help, [], value);
  const counts = Object.fromEntries(
    Object.entries(counters).map(([name, help]) => [
      name,
      metrics.counter(`duebridge_kit_${name}_total`, help),
    ]),
  );
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
  let standing: Partial<Standing> = {};
  for (const [name, help] of Object.entries(standings)) {
    gauge(name, help, () => standing[name as keyof Standing] ?? 0);
  }
  for (const state of ['open', 'idle', 'waiting'] as const) {
    const help = state === 'waiting' ? 'Callers waiting for a connection' : `Connections ${state}`;
    if (database) gauge(`pool_${state}`, help, () => database.stats()[state]);
  }
  return {
    count: (name: keyof typeof counters, by?: number): void => counts[name]?.inc(by),
    /** Payments ended here, by final status. */
    ended: (status: TerminalStatus, by: number): void => ended.inc({ status }, by),
    /** Seconds from initiated_at to posted_at. */
    observePosting: (seconds: number): void => posting.observe(seconds),
    /** Duration of calls to the account system in seconds. */
    observeCore: (operation: CoreOperation, seconds: number): void =>
      core.observe({ operation }, seconds),
    /** What has not ended, as last counted. */
    standing: (now: Standing): void => void (standing = now),
    /** Registers a metric that is read on demand. */
    watch: (name: keyof typeof watched, value: () => number): void =>
      gauge(name, watched[name], value),
  };
}

/** The kit's metrics. */
export type KitMetrics = ReturnType<typeof kitMetrics>;

/** What every part of the kit is opened with. */
export interface KitContext {
  readonly database: Database;
  readonly metrics: KitMetrics;
  readonly log: Log;
  readonly clock: Clock;
}
