/** What an engine is given: its surroundings and its times; and what the parts of one worker share. */
import type { Clock, Database, Log, Metrics } from '@duebridge/runtime';
import type { Funds } from '../funding/funds.ts';
import type { PartnerClient } from '../partners/client.ts';
import { TOKEN_DEADLINE_MS } from '../partners/oauth-client.ts';
import type { Partner, PartnerRegistry } from '../partners/registry.ts';
import type { EngineMetrics } from './metrics.ts';
import type { Outage } from './outage.ts';
import { FIRST_POLL_MS, FIRST_RETRY_MS, MAX_RETRY_MS } from './poll-schedule.ts';

/**
 * When a call to this partner has ended, whatever became of whoever made it: twice its limit, because a pause is noticed late and a 401 leads
 * to a second call, each with the time for a token, and half a minute at least.
 */
export function callsEndMs(partner?: Partner, leastMs = DEFAULT_TIMES.callsEndMs): number {
  const tokenMs = partner?.auth.method === 'oauth' ? TOKEN_DEADLINE_MS : 0;
  return Math.max(leastMs, 2 * (tokenMs + (partner?.budget.call_timeout_ms ?? 0)));
}

/** Times of the engine in milliseconds, as in production; tests shorten them. */
export const DEFAULT_TIMES = {
  /** A worker whose heartbeat is older is dead. Adoption after a kill takes this and a beat. */
  leaseMs: 10_000,
  /** Between heartbeats: five may fail before the lease is lost. */
  beatMs: 2_000,
  /** How long a stop waits for calls under way before it aborts them. */
  stopMs: 8_000,
  /** Between looks whether an operator has ended a pause. */
  pausedMs: 5_000,
  /**
   * Between the calls that an open breaker lets through: how late the recovery of a partner is noticed (LV8). A partner that is down
   * hardly notices one call every two seconds from each worker.
   */
  trialMs: 2_000,
  /** First delay before an unknown outcome is tried again, and the longest one; see poll-schedule.ts. */
  retryMs: FIRST_RETRY_MS,
  maxRetryMs: MAX_RETRY_MS,
  /** Pause of a payment after an error in our own code. Each one is logged: the payment is not lost and the log is not flooded. */
  bugPauseMs: 30_000,
  /** First delay between polls of a partner that is not known yet; see poll-schedule.ts. */
  pollMs: FIRST_POLL_MS,
  /** How long a call of a process that died may still be under way, at least; see callsEndMs. */
  callsEndMs: 30_000,
};
export type EngineTimes = Readonly<Record<keyof typeof DEFAULT_TIMES, number>>;

/** What the engine stands on. */
interface Surroundings {
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
  readonly funding: Pick<Funds, 'collection' | 'authorize' | 'capture' | 'release'>;
  readonly clock: Clock;
  readonly log: Log;
}

/** What an engine is given. */
export interface EngineOptions extends Surroundings {
  /** A connection pool for the heartbeat alone, so that slow statements cannot cost the lease; default `database`. */
  readonly leaseDatabase?: Database;
  readonly metrics?: Metrics;
  readonly options?: Partial<EngineTimes>;
}

/** What the parts of one worker share. */
export interface WorkerGround extends Surroundings {
  readonly workerId: string;
  readonly times: EngineTimes;
  readonly metrics: EngineMetrics;
  readonly outage: Outage;
  /** The database's time, as a text for a parameter. */
  readonly databaseNow: () => string;
  /**
   * Wall time carried on from the start of the process, for the ends of holds: a step of the wall clock, also one before this worker
   * began, must not make an expired hold look as if it lasted.
   */
  readonly steady: Clock;
  /** False when the lease can no longer be relied on: nothing may be sent or written. */
  readonly holdsLease: () => boolean;
  /** Whether this worker owns the slot, as far as it knows; the database decides at each write. */
  readonly owns: (slot: number) => boolean;
}

/** The same with the signals that end calls: all of them, and reads that wait, which would otherwise hold up a stop. */
export interface CallGround extends WorkerGround {
  readonly signals: { readonly calls: AbortSignal; readonly waits: AbortSignal };
}
