/**
 * The lease of a worker: how it is acquired, proven, lost and acquired again (LV1).
 *
 * A worker is a row with a heartbeat. While the row is fresh, no other worker touches what this one drives; once it is stale, any
 * other may take over. So a worker has to know by its own clock, before the others can, that its lease is no longer proven.
 *
 *   none ── register ──► registering ──registered──► held ──renewed──► held
 *     ▲                      │ failed, or no answer     │ refused by the database, or not proven for `keptMs`
 *     └──────────────────────┴──────────────────────────┘
 *   A stop leads from `none` and `registering` to `ended`; a lease that is held stays held and is renewed until `end`, because
 *   what is under way still has to be recorded.
 *
 * `step` is the whole state machine, and pure: it maps a state, an event and the time to the next state and the actions.
 * `keepLease` is its loop. It never waits for an answer: an answer is an event like the passing of time, so a hung request can
 * neither hide a lost lease nor delay the request for a new one.
 */
import { messageOf, type Clock, type Log } from '@duebridge/runtime';
import type { EngineTimes } from './options.ts';
import type { WorkerList } from './ownership.ts';
import { alarmOf } from './timing.ts';

/** The times of a lease, by the database's clock. */
export type LeaseTimes = Pick<EngineTimes, 'leaseMs' | 'beatMs'>;

/** Where the lease stands. Times are monotonic milliseconds. */
export type LeaseState =
  | { readonly kind: 'none'; readonly retryAt: number }
  | { readonly kind: 'registering'; readonly worker_id: string; readonly askedAt: number }
  | {
      readonly kind: 'held';
      readonly worker_id: string;
      /** When the latest confirmed request was sent: the heartbeat in the row cannot be older. */
      readonly provenAt: number;
      /** When the renewal now under way was sent, if one is. */
      readonly askedAt: number | undefined;
      readonly renewAt: number;
      /** A stop has begun: a lost lease is not requested again. */
      readonly leaving: boolean;
    }
  | { readonly kind: 'ended' };

/** Something that happened. Answers name the request they belong to, because they may come late and in any order. */
export type LeaseEvent =
  | {
      readonly kind: 'registered' | 'renewed' | 'refused' | 'failed';
      readonly worker_id: string;
      readonly askedAt: number;
    }
  /** Time has passed. */
  | { readonly kind: 'clock' }
  /** A stop has begun. */
  | { readonly kind: 'leave' }
  /** The stop is done. */
  | { readonly kind: 'end' };

/** What to do. `begin` and `drop` alternate, for one worker id at a time. */
export type LeaseAct =
  /** Writes the row of a new worker; its answer is `registered` or `failed`. */
  | { readonly kind: 'register'; readonly worker_id: string; readonly askedAt: number }
  /** Renews the heartbeat; its answer is `renewed`, `refused` or `failed`. */
  | { readonly kind: 'renew'; readonly worker_id: string; readonly askedAt: number }
  /** The lease is held: the worker may drive payments. */
  | { readonly kind: 'begin'; readonly worker_id: string; readonly provenAt: number }
  /** The lease is not proven any more: everything is dropped at once. */
  | { readonly kind: 'drop'; readonly worker_id: string }
  /** Takes a worker off the list: one that lost its lease, or that was registered too late to be used. */
  | { readonly kind: 'remove'; readonly worker_id: string };

/** Fraction of the lease for which a worker relies on it: it must let go well before others may take over. */
const KEPT_PART = 0.7;
/** Fraction of the lease after which an unanswered request is sent again in parallel: its connection may be dead. */
const ASK_PART = 0.2;
/** Fraction of the lease after which a registration is abandoned: the rest must be long enough for a renewal. */
const REGISTER_PART = 0.4;
/** Fraction of the heartbeat interval after which a failed request is retried. */
const RETRY_PART = 0.25;

/** For how long a worker relies on its lease after it was proven. */
export function keptMs(times: LeaseTimes): number {
  return times.leaseMs * KEPT_PART;
}

/** The next state and the actions. `newId` names a new worker. Pure apart from it. */
export function step(
  state: LeaseState,
  event: LeaseEvent,
  now: number,
  times: LeaseTimes,
  newId: () => string,
): { readonly state: LeaseState; readonly acts: readonly LeaseAct[] } {
  const acts: LeaseAct[] = [];
  let next = happened(expired(state, now, times, acts), event, now, times, acts);
  if (next.kind === 'none' && now >= next.retryAt) {
    next = { kind: 'registering', worker_id: newId(), askedAt: now };
    acts.push({ kind: 'register', worker_id: next.worker_id, askedAt: now });
  }
  if (next.kind === 'held' && now >= renewalAt(next, times)) {
    next = { ...next, askedAt: now };
    acts.push({ kind: 'renew', worker_id: next.worker_id, askedAt: now });
  }
  return { state: next, acts };
}

/** Applies the passing of time to a state. */
function expired(state: LeaseState, now: number, times: LeaseTimes, acts: LeaseAct[]): LeaseState {
  switch (state.kind) {
    case 'none':
    case 'ended':
      return state;
    case 'registering':
      // The answer may still arrive; `happened` then removes the row again.
      return now - state.askedAt >= registerMs(times) ? { kind: 'none', retryAt: now } : state;
    case 'held':
      return now - state.provenAt >= keptMs(times) ? lost(state, now, acts) : state;
  }
}

function happened(
  state: LeaseState,
  event: LeaseEvent,
  now: number,
  times: LeaseTimes,
  acts: LeaseAct[],
): LeaseState {
  switch (event.kind) {
    case 'clock':
      return state;
    case 'leave':
      return state.kind === 'held' ? { ...state, leaving: true } : { kind: 'ended' };
    case 'end':
      return { kind: 'ended' };
    case 'registered': {
      const { worker_id, askedAt } = event;
      if (state.kind !== 'registering' || state.worker_id !== worker_id) {
        acts.push({ kind: 'remove', worker_id });
        return state;
      }
      acts.push({ kind: 'begin', worker_id, provenAt: askedAt });
      const proven = { provenAt: askedAt, askedAt: undefined, renewAt: askedAt + times.beatMs };
      return { kind: 'held', worker_id, ...proven, leaving: false };
    }
    case 'renewed':
    case 'refused':
    case 'failed': {
      if (!('worker_id' in state) || state.worker_id !== event.worker_id) return state;
      const retryAt = now + times.beatMs * RETRY_PART;
      if (state.kind === 'registering') {
        return event.kind === 'failed' ? { kind: 'none', retryAt } : state;
      }
      if (event.kind === 'refused') return lost(state, now, acts);
      // This request is no longer under way; a later one still is.
      const askedAt = state.askedAt === event.askedAt ? undefined : state.askedAt;
      if (event.kind === 'failed') return { ...state, askedAt, renewAt: retryAt };
      const provenAt = Math.max(state.provenAt, event.askedAt);
      return { ...state, askedAt, provenAt, renewAt: provenAt + times.beatMs };
    }
  }
}

type Held = LeaseState & { kind: 'held' };

function lost(state: Held, now: number, acts: LeaseAct[]): LeaseState {
  const { worker_id } = state;
  // Remove its row too, so that others can take over without waiting until it is stale.
  acts.push({ kind: 'drop', worker_id }, { kind: 'remove', worker_id });
  return state.leaving ? { kind: 'ended' } : { kind: 'none', retryAt: now };
}

function registerMs(times: LeaseTimes): number {
  return times.leaseMs * REGISTER_PART;
}

function renewalAt(state: Held, times: LeaseTimes): number {
  return state.askedAt === undefined ? state.renewAt : state.askedAt + times.leaseMs * ASK_PART;
}

/** When time alone next changes the state; undefined when it never does. Pure. */
export function dueAt(state: LeaseState, times: LeaseTimes): number | undefined {
  switch (state.kind) {
    case 'none':
      return state.retryAt;
    case 'registering':
      return state.askedAt + registerMs(times);
    case 'held':
      return Math.min(renewalAt(state, times), state.provenAt + keptMs(times));
    case 'ended':
      return undefined;
  }
}

/** What a lease depends on. The last three must neither throw nor wait. */
export interface LeaseOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly times: LeaseTimes;
  readonly newId: () => string;
  readonly workers: Pick<WorkerList, 'register' | 'renew' | 'remove'>;
  /** The lease is held; it was proven at `provenAt`. */
  readonly begin: (worker_id: string, provenAt: number) => void;
  /** The lease was proven again. */
  readonly proven: (provenAt: number) => void;
  /** The lease is lost. */
  readonly drop: () => void;
}

/** A lease that is kept. */
export type Lease = ReturnType<typeof keepLease>;

/** Acquires a lease and keeps it until `end`. */
export function keepLease(options: LeaseOptions) {
  const { clock, log, times, workers } = options;
  let state: LeaseState = { kind: 'none', retryAt: clock.monotonic() };
  let provenAt = clock.monotonic();
  const alarm = alarmOf(clock, () => feed({ kind: 'clock' }));
  let isFailing = false;
  /** Workers of this process that lost their lease and could not be taken off the list. */
  const leftovers = new Set<string>();
  const asked = Promise.withResolvers<void>();
  const underWay = new Set<Promise<void>>();

  const feed = (event: LeaseEvent): void => {
    const moved = step(state, event, clock.monotonic(), times, options.newId);
    state = moved.state;
    for (const act of moved.acts) carryOut(act);
    if (state.kind === 'held' && state.provenAt > provenAt) {
      ({ provenAt } = state);
      options.proven(provenAt);
    }
    if (state.kind === 'ended') asked.resolve();
    const due = dueAt(state, times);
    if (due === undefined) alarm.off();
    else alarm.by(due);
  };

  const carryOut = (act: LeaseAct): void => {
    const { worker_id } = act;
    switch (act.kind) {
      case 'begin':
        options.begin(worker_id, act.provenAt);
        return;
      case 'drop':
        log.error(
          { worker_id },
          'the lease was lost: this worker drops its payments and registers again',
        );
        options.drop();
        return;
      case 'remove':
        track(remove(worker_id));
        return;
      case 'register':
        // A stop waits for a pending registration, which would leave a row behind, but not for a heartbeat.
        track(ask(act));
        return;
      case 'renew':
        void ask(act);
    }
  };

  const ask = async (act: LeaseAct & { readonly kind: 'register' | 'renew' }): Promise<void> => {
    const { worker_id, askedAt } = act;
    let kind: 'registered' | 'renewed' | 'refused' | 'failed' = 'failed';
    try {
      if (act.kind === 'register') {
        await workers.register(worker_id);
        // What this process drove before an outage is free at once, instead of when its old lease has run out.
        await Promise.all([...leftovers].map(remove));
        kind = 'registered';
      } else {
        kind = (await workers.renew(worker_id)) ? 'renewed' : 'refused';
      }
      isFailing = false;
    } catch (error) {
      // Log an outage once, not at each attempt.
      if (!isFailing) log.warn({ error: messageOf(error) }, 'the heartbeat failed; retrying');
      isFailing = true;
    }
    feed({ kind, worker_id, askedAt });
    asked.resolve();
  };

  /** Takes a worker that drives nothing off the list, or notes it for the next time that the database answers. */
  const remove = async (worker_id: string): Promise<void> => {
    leftovers.add(worker_id);
    try {
      await workers.remove(worker_id);
      leftovers.delete(worker_id);
    } catch (error) {
      log.debug({ worker_id, error: messageOf(error) }, 'could not take a worker off the list');
    }
  };

  const track = (work: Promise<void>): void => {
    const tracked = work.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  };

  feed({ kind: 'clock' });
  return {
    /** Milliseconds since the lease was last proven, or since it was first requested; shown by readiness and the metric. */
    get ageMs(): number {
      return clock.monotonic() - provenAt;
    },
    /** Resolves when the first request has been answered, whatever the answer. */
    asked: asked.promise,
    /** Begins a stop: a held lease is kept, and a new one is no longer requested. */
    leave: () => feed({ kind: 'leave' }),
    /** The stop is done. Resolves when no registration is under way that would leave a row behind. */
    async end(): Promise<void> {
      feed({ kind: 'end' });
      while (underWay.size > 0) await Promise.all(underWay);
    },
  };
}
