/** Which call may start next, in time that moves only with the test. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { CallQueue, type Due, type Lane, type RunningCall } from './call-queue.ts';

interface Item extends Due {
  readonly id: string;
  isGone?: boolean;
}

const TRIAL_MS = 2_000;

/** A queue, and what it starts. */
function rig(places = 8, rate = 1_000) {
  const queue = new CallQueue<Item>(TRIAL_MS, { places, rate });
  const running = new Map<string, RunningCall>();
  let pushed = 0;
  /** Due at `at`, or in the order of the pushes. */
  const push = (id: string, lane: Lane = 'new', at?: number, party = 'acme'): void => {
    pushed += 0.001;
    queue.push({ id, at: at ?? pushed }, party, lane);
  };
  /** Starts all that may start at `now`; gives their ids. */
  const start = (now: number): string[] => {
    const started: string[] = [];
    for (;;) {
      const turn = queue.take(now, 0.5, ({ isGone }) => isGone !== true);
      if (turn.kind !== 'start') return started;
      started.push(turn.item.id);
      running.set(turn.item.id, turn.call);
    }
  };
  const end = (id: string): void => {
    const call = running.get(id);
    assert.ok(call);
    running.delete(id);
    queue.ended(call);
  };
  /** Five failures of a party, which open its breaker. */
  const fail = (now: number, isAnswer: boolean, party = 'acme'): void => {
    for (let count = 0; count < 5; count += 1) queue.failed(party, now, 0.5, isAnswer);
  };
  return { queue, push, start, end, fail };
}

const many = (count: number, prefix: string): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}${index}`);

test('never more calls at once than there are places, nor more a second than the rate [PL16]', () => {
  const { push, start, end } = rig(4, 10);
  for (const id of many(40, 'p')) push(id, 'poll');
  const times: number[] = [];
  for (let now = 1; now <= 2_000; now += 1) {
    for (const id of start(now)) {
      times.push(now);
      end(id);
    }
  }
  assert.deepEqual(times.slice(0, 3), [1, 101, 201]);
  assert.equal(times.length, 20);
  const full = rig(4);
  for (const id of many(9, 'p')) full.push(id);
  assert.deepEqual(full.start(1_000).length, 3, 'three quarters for one lane');
  for (const id of many(9, 'q')) full.push(id, 'retry');
  assert.deepEqual(full.start(1_000), ['q0'], 'and four of all');
});

test('calls of one lane that hang leave room for the others [LV3 LV4]', () => {
  const { push, start } = rig(16);
  for (const lane of ['new', 'retry', 'again', 'poll'] as const)
    for (const id of many(40, lane)) push(id, lane);
  const started = start(1_000);
  assert.equal(started.length, 16);
  const next = rig(16);
  for (const id of many(40, 'new')) next.push(id);
  assert.equal(next.start(1_000).length, 12);
  for (const id of many(40, 'retry')) next.push(id, 'retry');
  assert.equal(next.start(2_000).length, 4);
});

test('first calls and first polls have four turns for each of further polls and retries, and none saves its turns up [LV4]', () => {
  const { push, start, end } = rig(1);
  const lanes = ['new', 'poll', 'again', 'retry'] as const;
  for (const id of many(2_000, 'new')) push(id, 'new');
  for (let now = 1; now <= 1_000; now += 1) for (const id of start(now)) end(id);
  for (const lane of lanes) for (const id of many(100, lane)) push(id, lane);
  const count = new Map<string, number>();
  for (let now = 2_000; now < 2_100; now += 1) {
    for (const id of start(now)) {
      const lane = id.replace(/\d+/, '');
      count.set(lane, (count.get(lane) ?? 0) + 1);
      end(id);
    }
  }
  assert.deepEqual(
    lanes.map((lane) => count.get(lane)),
    [40, 40, 10, 10],
  );
});

test('parties take turns, and one has at most half of the places while there are others [LV3]', () => {
  const { push, start, end } = rig(8);
  for (const id of many(1_000, 'big')) push(id, 'new', undefined, 'big');
  assert.equal(start(1_000).length, 6, 'alone it has what its lane may have');
  for (const id of many(4, 'big')) end(id);
  push('small', 'new', 2_000, 'small');
  assert.deepEqual(start(1_000), ['big6', 'big7'], 'half of eight');
  assert.deepEqual(start(2_000), ['small']);
  end('small');
  end('big4');
  end('big5');
  push('small1', 'new', 2_000, 'small');
  push('small2', 'new', 2_000, 'small');
  assert.deepEqual(start(3_000).slice(0, 3), ['big8', 'small1', 'big9']);
});

test('what is gone is dropped, and what is due later is named', () => {
  const { queue } = rig();
  const gone: Item = { id: 'gone', at: 0 };
  queue.push(gone, 'acme', 'new');
  queue.push({ id: 'later', at: 5_000 }, 'acme', 'poll');
  gone.isGone = true;
  assert.deepEqual(
    queue.take(1_000, 0, ({ isGone }) => isGone !== true),
    {
      kind: 'wait',
      until: 5_000,
    },
  );
  assert.equal(queue.stalledMs(60_000), 55_000);
});

test('a partner that cannot be reached gets one call every two seconds, whoever waits, and the first answer ends it [LV8]', () => {
  const { queue, push, start, end, fail } = rig();
  for (const id of many(20, 'new')) push(id);
  for (const id of many(20, 'retry')) push(id, 'retry');
  fail(10_000, false);
  assert.equal(queue.isOpen(10_000), false);
  const times: number[] = [];
  for (let now = 10_000; now < 20_000; now += 1) {
    for (const id of start(now)) {
      times.push(now);
      if (times.length % 2 === 0) end(id);
      else queue.failed('acme', now, 1, false);
    }
  }
  assert.deepEqual(
    times,
    [11_750, 13_500, 15_250, 17_000, 18_750],
    'a trial that hangs delays no other',
  );
  assert.equal(queue.isDown(20_000), true);
  assert.equal(queue.worked('acme', 20_000), true);
  assert.ok(start(20_000).length >= 5, 'all at once');
  assert.equal(queue.worked('acme', 20_001), false, 'once');
});

test('while a partner answers with errors, payments that have not failed are called for, and of the others one every two seconds [LV3]', () => {
  const { push, start, end, fail } = rig();
  fail(10_000, true);
  for (const id of many(20, 'retry')) push(id, 'retry');
  for (const id of many(3, 'new')) push(id);
  assert.deepEqual(start(10_000), many(3, 'new'));
  assert.deepEqual(start(11_749), []);
  assert.deepEqual(start(11_750), ['retry0']);
  for (const id of many(3, 'new')) end(id);
  assert.deepEqual(start(13_499), []);
  assert.deepEqual(start(13_500), ['retry1']);
});

test('four failures open nothing, and an answer between them begins the count again', () => {
  const { queue } = rig();
  for (let count = 0; count < 4; count += 1) {
    assert.equal(queue.failed('acme', 1, 0, false), undefined);
  }
  queue.worked('acme', 2);
  for (let count = 0; count < 4; count += 1) queue.failed('acme', 3, 0, false);
  assert.equal(queue.isOpen(3), true);
  assert.equal(queue.failed('acme', 3, 0, false), 'all');
  assert.equal(queue.failed('acme', 3, 0, false), undefined, 'it opens once');
});

test('a biller of an aggregator that fails holds back no other biller, and one that all fail holds back all [LV3]', () => {
  const { queue, push, start } = rig();
  push('well', 'new', 0, 'well');
  assert.deepEqual(start(0), ['well']);
  for (let count = 0; count < 5; count += 1) {
    const opened = queue.failed('sick', 1_000, 0.5, false);
    queue.worked('well', 1_000);
    assert.equal(opened, count === 4 ? 'party' : undefined);
  }
  push('sick', 'new', 0, 'sick');
  push('well1', 'new', 0, 'well');
  assert.deepEqual(start(1_100), ['well1']);
  assert.deepEqual([queue.isTroubled, queue.isOut], [true, false]);
  assert.deepEqual(start(2_750), ['sick']);
  for (let count = 0; count < 5; count += 1) queue.failed('well', 3_000, 0.5, false);
  assert.equal(queue.isOut, true);
});

test('a paused partner is called when its pause is looked at again, and a backlog is no open queue', () => {
  const { queue, push, start } = rig(1);
  queue.closeUntil(5_000);
  push('p', 'new', 4_900);
  assert.equal(queue.isOpen(4_999), false);
  assert.deepEqual([start(4_999), start(5_000)], [[], ['p']]);
  assert.equal(queue.isOpen(5_000), true);
  push('q', 'new', 5_000);
  assert.equal(queue.isOpen(6_000), true);
  assert.equal(queue.isOpen(6_001), false, 'a first call has waited for a second');
});

test('a queue stalls from when its first call was due, could have started, or last started [LV2]', () => {
  const { queue, push, start, fail } = rig(1);
  assert.equal(queue.stalledMs(1_000), 0);
  push('p', 'new', 500);
  push('q', 'new', 600);
  assert.equal(queue.stalledMs(1_000), 500);
  start(1_000);
  assert.equal(queue.stalledMs(31_000), 30_000);
  fail(31_000, false);
  assert.equal(queue.stalledMs(33_000), 250);
});
