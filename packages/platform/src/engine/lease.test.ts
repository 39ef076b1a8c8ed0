/**
 * The lease in every order of events (LV1): a model of the database executes each request at some time, answers it at some time
 * or never, and the worker may be stalled in between.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { dueAt, keepLease, keptMs, step, type LeaseEvent, type LeaseState } from './lease.ts';

const TIMES = { leaseMs: 10_000, beatMs: 2_000 };
/**
 * Nobody may rely on a lease for longer than this after it was proven: the others take over at `leaseMs`, and until then what is
 * under way has to end. A figure of its own, because the code under test cannot be asked how long is too long.
 */
const SAFE_MS = 0.8 * TIMES.leaseMs;

interface Request {
  readonly kind: 'register' | 'renew';
  readonly worker_id: string;
  readonly askedAt: number;
  /** What the database did; undefined while the request has not reached it. */
  readonly result?: 'registered' | 'renewed' | 'refused';
}

/** A worker and the database as it stands, at one moment of one history. */
interface World {
  readonly now: number;
  readonly state: LeaseState;
  readonly requests: readonly Request[];
  /** Heartbeats in the table. */
  readonly rows: Readonly<Record<string, number>>;
  readonly ids: number;
  /** The worker that drives payments. */
  readonly driving: string | undefined;
  readonly left: 'no' | 'leaving' | 'ended';
}

const START: World = {
  now: 0,
  state: { kind: 'none', retryAt: 0 },
  requests: [],
  rows: {},
  ids: 0,
  driving: undefined,
  left: 'no',
};

/** Feeds one event and checks what must hold after each. */
function feed(world: World, event: LeaseEvent): World {
  let { ids, driving } = world;
  const requests = [...world.requests];
  const rows = { ...world.rows };
  const moved = step(world.state, event, world.now, TIMES, () => {
    ids += 1;
    return `w${ids}`;
  });
  for (const act of moved.acts) {
    switch (act.kind) {
      case 'begin':
        assert.equal(driving, undefined, 'two workers drive at once');
        assert.equal(world.left, 'no', 'a worker begins during a stop');
        driving = act.worker_id;
        break;
      case 'drop':
        assert.equal(driving, act.worker_id, 'what is dropped was not driving');
        driving = undefined;
        break;
      case 'remove':
        assert.notEqual(driving, act.worker_id, 'a worker that drives is taken off the list');
        delete rows[act.worker_id];
        break;
      case 'register':
      case 'renew':
        requests.push({ kind: act.kind, worker_id: act.worker_id, askedAt: act.askedAt });
        break;
    }
  }
  const { state } = moved;
  if (state.kind === 'held') {
    assert.equal(driving, state.worker_id);
    assert.ok(world.now - state.provenAt < SAFE_MS, 'a lease is relied on too long');
    // Unless somebody removed the row, the heartbeat is at least as young as the worker believes.
    const heartbeat = rows[state.worker_id];
    assert.ok(heartbeat === undefined || heartbeat >= state.provenAt, 'more is proven than is so');
  } else if (event.kind !== 'end') {
    assert.equal(driving, undefined, 'a worker drives without a lease');
  } else {
    driving = undefined;
  }
  const due = dueAt(state, TIMES);
  assert.ok(due === undefined || due > world.now, 'it would spin');
  assert.equal(due === undefined, state.kind === 'ended', 'a lease nobody looks after any more');
  return { ...world, state, requests, rows, ids, driving };
}

/** The request reaches the database. */
function execute(world: World, request: Request): World {
  const heartbeat = world.rows[request.worker_id];
  const isFresh = heartbeat !== undefined && world.now - heartbeat < TIMES.leaseMs;
  const result =
    request.kind === 'register'
      ? ('registered' as const)
      : isFresh
        ? ('renewed' as const)
        : ('refused' as const);
  return {
    ...world,
    rows: result === 'refused' ? world.rows : { ...world.rows, [request.worker_id]: world.now },
    requests: world.requests.map((one) => (one === request ? { ...request, result } : one)),
  };
}

function without(world: World, request: Request): World {
  return { ...world, requests: world.requests.filter((one) => one !== request) };
}

/** Everything that could happen next. */
function moves(world: World): (() => World)[] {
  const possible: (() => World)[] = [];
  for (const request of world.requests) {
    const { worker_id, askedAt, result } = request;
    if (result === undefined) possible.push(() => execute(world, request));
    else possible.push(() => feed(without(world, request), { kind: result, worker_id, askedAt }));
    possible.push(() => feed(without(world, request), { kind: 'failed', worker_id, askedAt }));
  }
  const due = dueAt(world.state, TIMES);
  if (due !== undefined) {
    possible.push(() => feed({ ...world, now: Math.max(world.now, due) }, { kind: 'clock' }));
    // A stall: the process was frozen, or its event loop was busy, and the first it hears of is the time or any answer.
    possible.push(() => ({ ...world, now: world.now + keptMs(TIMES) + 1 }));
  }
  // Another worker takes a stale one off the list.
  for (const [worker_id, heartbeat] of Object.entries(world.rows)) {
    if (world.now - heartbeat < TIMES.leaseMs) continue;
    possible.push(() => {
      const rows = { ...world.rows };
      delete rows[worker_id];
      return { ...world, rows };
    });
  }
  if (world.left === 'no')
    possible.push(() => feed({ ...world, left: 'leaving' }, { kind: 'leave' }));
  if (world.left === 'leaving') {
    possible.push(() => feed({ ...world, left: 'ended' }, { kind: 'end' }));
  }
  return possible;
}

/** From here the database answers each request at once: the worker must hold a lease within ten seconds. */
function heals(world: World): void {
  let now = feed(world, { kind: 'clock' });
  const until = now.now + TIMES.leaseMs;
  for (let turn = 0; turn < 50; turn += 1) {
    // What was under way before may never be answered; what is asked from here on is.
    const fresh = now.requests.find((request) => request.askedAt >= world.now);
    if (fresh !== undefined) {
      const done = execute(now, fresh);
      const request = done.requests.find(
        (one) => one.askedAt === fresh.askedAt && one.worker_id === fresh.worker_id && one.result,
      );
      assert.ok(request?.result);
      const { worker_id, askedAt, result } = request;
      now = feed(without(done, request), { kind: result, worker_id, askedAt });
      continue;
    }
    const row = now.driving === undefined ? undefined : now.rows[now.driving];
    if (row !== undefined && row >= world.now) return;
    const due = dueAt(now.state, TIMES);
    assert.ok(due !== undefined && due <= until, 'no lease within ten seconds');
    now = feed({ ...now, now: due }, { kind: 'clock' });
  }
  assert.fail('it never comes to a lease');
}

test('in every order of the first nine events a lease is never relied on too long and is always regained [LV1 F85]', () => {
  let front = new Map([['start', START]]);
  let seen = 0;
  for (let depth = 0; depth < 9; depth += 1) {
    const next = new Map<string, World>();
    for (const world of front.values()) {
      for (const move of moves(world)) {
        const after = move();
        next.set(JSON.stringify(after), after);
        if (after.left === 'no') heals(after);
      }
    }
    front = next;
    seen += next.size;
  }
  assert.ok(seen > 10_000, `only ${seen} histories`);
});

/** Feeds events at their times and gives what each led to: the actions, the state, and when time alone changes it next. */
function stepsOf(events: readonly (readonly [at: number, event: LeaseEvent])[]): string[] {
  let state: LeaseState = { kind: 'none', retryAt: 0 };
  let ids = 0;
  return events.map(([at, event]) => {
    const moved = step(state, event, at, TIMES, () => `w${(ids += 1)}`);
    ({ state } = moved);
    const acts = moved.acts.map((act) => `${act.kind} ${act.worker_id}`);
    return [...acts, state.kind, dueAt(state, TIMES) ?? 'never'].join(', ');
  });
}

const clock = { kind: 'clock' } as const;
const answer = (
  kind: 'registered' | 'renewed' | 'refused' | 'failed',
  worker_id: string,
  askedAt: number,
): LeaseEvent => ({ kind, worker_id, askedAt });

test('a lease of ten seconds is renewed every two, requested again beside a hung request, and given up after seven [LV1]', () => {
  assert.ok(keptMs(TIMES) < SAFE_MS);
  assert.deepEqual(
    stepsOf([
      [0, clock],
      [100, answer('registered', 'w1', 0)],
      [1_999, clock],
      [2_000, clock],
      [2_100, answer('renewed', 'w1', 2_000)],
      [4_000, clock],
      [5_999, clock],
      [6_000, clock],
      // Late answers to what was asked first: the later request is still under way, and no other is sent beside it yet.
      [6_500, answer('failed', 'w1', 4_000)],
      [8_000, clock],
      [8_500, answer('failed', 'w1', 6_000)],
      [8_999, clock],
      [9_000, clock],
    ]),
    [
      'register w1, registering, 4000',
      'begin w1, held, 2000',
      'held, 2000',
      'renew w1, held, 4000',
      'held, 4000',
      'renew w1, held, 6000',
      'held, 6000',
      'renew w1, held, 8000',
      'held, 8000',
      'renew w1, held, 9000',
      'held, 9000',
      'held, 9000',
      'drop w1, remove w1, register w2, registering, 13000',
    ],
  );
});

test('a registration without an answer is abandoned, a failed one is repeated soon, and a late one is removed', () => {
  assert.deepEqual(
    stepsOf([
      [0, clock],
      [3_999, clock],
      [4_000, clock],
      [4_100, answer('registered', 'w1', 0)],
      [4_200, answer('failed', 'w1', 0)],
      [4_300, answer('failed', 'w2', 4_000)],
      [4_799, clock],
      [4_800, clock],
      [4_900, answer('registered', 'w3', 4_800)],
      [6_800, clock],
      [7_000, answer('failed', 'w2', 6_800)],
      [7_000, answer('refused', 'w2', 6_800)],
      [7_000, answer('failed', 'w3', 6_800)],
      [7_500, clock],
      [7_600, answer('refused', 'w3', 7_500)],
    ]),
    [
      'register w1, registering, 4000',
      'registering, 4000',
      'register w2, registering, 8000',
      'remove w1, registering, 8000',
      'registering, 8000',
      'none, 4800',
      'none, 4800',
      'register w3, registering, 8800',
      'begin w3, held, 6800',
      'renew w3, held, 8800',
      'held, 8800',
      'held, 8800',
      'held, 7500',
      'renew w3, held, 9500',
      'drop w3, remove w3, register w4, registering, 11600',
    ],
  );
});

test('a stop keeps a held lease and requests no other', () => {
  assert.deepEqual(
    stepsOf([
      [0, clock],
      [100, answer('registered', 'w1', 0)],
      [200, { kind: 'leave' }],
      [2_000, clock],
      [2_100, answer('refused', 'w1', 2_000)],
      [9_000, clock],
    ]),
    [
      'register w1, registering, 4000',
      'begin w1, held, 2000',
      'held, 2000',
      'renew w1, held, 4000',
      'drop w1, remove w1, ended, never',
      'ended, never',
    ],
  );
  assert.deepEqual(
    stepsOf([
      [0, clock],
      [100, { kind: 'leave' }],
      [200, answer('registered', 'w1', 0)],
    ]),
    ['register w1, registering, 4000', 'ended, never', 'remove w1, ended, never'],
  );
});

/** A database whose every answer the test gives. */
function table() {
  const asked: { kind: string; worker_id: string; answer: PromiseWithResolvers<boolean> }[] = [];
  const ask = (kind: string) => (worker_id: string) => {
    const answer = Promise.withResolvers<boolean>();
    asked.push({ kind, worker_id, answer });
    return answer.promise;
  };
  return { asked, ask };
}

function kept() {
  const clock = manualClock(0, 1);
  const { asked, ask } = table();
  const done: string[] = [];
  let ids = 0;
  const warnings: string[] = [];
  const errors: string[] = [];
  const world = { canRemove: true };
  const lease = keepLease({
    clock,
    log: {
      ...silentLog,
      warn: (_details, message) => void warnings.push(message),
      error: (_details, message) => void errors.push(message),
    },
    times: TIMES,
    newId: () => `w${(ids += 1)}`,
    workers: {
      register: async (worker_id) => void (await ask('register')(worker_id)),
      renew: ask('renew'),
      async remove(worker_id) {
        if (!world.canRemove) throw new Error('no database');
        done.push(`remove ${worker_id}`);
      },
    },
    begin: (worker_id) => void done.push(`begin ${worker_id}`),
    proven: () => undefined,
    drop: () => void done.push('drop'),
  });
  return { clock, asked, done, lease, warnings, errors, world };
}

test('a stop while a worker is registering leaves no running worker and no row', async () => {
  const { clock, asked, done, lease } = kept();
  lease.leave();
  const ended = lease.end();
  asked[0]?.answer.resolve(true);
  await ended;
  await clock.advance(60_000);
  assert.deepEqual(done, ['remove w1']);
  assert.equal(asked.length, 1);
});

test('a worker that could not be taken off the list in an outage is taken off once, with the first registration after it', async () => {
  const { clock, asked, done, lease, warnings, errors, world } = kept();
  asked[0]?.answer.resolve(true);
  await clock.advance(0);
  world.canRemove = false;
  for (let second = 0; second < 8; second += 1) {
    await clock.advance(1_000);
    for (const { kind, answer } of asked) if (kind === 'renew') answer.reject(new Error('away'));
  }
  assert.deepEqual(done, ['begin w1', 'drop']);
  assert.deepEqual(warnings, ['the heartbeat failed; retrying'], 'an outage is told once');
  assert.equal(errors.length, 1, 'the loss is told');
  world.canRemove = true;
  asked.at(-1)?.answer.resolve(true);
  await clock.advance(0);
  assert.deepEqual(done.slice(2), ['remove w1', 'begin w2']);
  // The next outage is told again, and w1 is not removed again.
  asked.at(-1)?.answer.resolve(true);
  await clock.advance(2_000);
  asked.at(-1)?.answer.reject(new Error('away again'));
  await clock.advance(0);
  assert.equal(warnings.length, 2);
  await clock.advance(500);
  asked.at(-1)?.answer.resolve(false);
  await clock.advance(0);
  asked.at(-1)?.answer.resolve(true);
  await clock.advance(0);
  assert.deepEqual(done.slice(4), ['drop', 'remove w2', 'begin w3']);
  await lease.end();
});
