import assert from 'node:assert/strict';
import test from 'node:test';
import { PartnerQueue, type RunningCall } from './partner-queue.ts';

/** A queue with room for ten calls at once and a hundred a second. */
function openQueue(): PartnerQueue<Item> {
  const queue = new PartnerQueue<Item>('acme', 1_000, 2_000);
  queue.applyBudget({ max_concurrent_calls: 10, max_calls_per_second: 100 });
  queue.share = 10;
  queue.rate = 100;
  return queue;
}
interface Item {
  at: number;
  readonly name: string;
}
const item = (name: string, at = 0): Item => ({ name, at });
const all = (): boolean => true;

/** What starts from `now` on within `ms`, at most `most`, each call ending at once. */
function started(
  queue: PartnerQueue<Item>,
  now: number,
  ms: number,
  most = Number.POSITIVE_INFINITY,
): { name: string; at: number }[] {
  const out: { name: string; at: number }[] = [];
  let at = now;
  while (at <= now + ms && out.length < most) {
    const turn = queue.take(at, all);
    if (turn.kind === 'start') {
      out.push({ name: turn.item.name, at });
      queue.ended(turn.call);
    } else if (turn.kind === 'wait') {
      at = Math.max(at + 0.01, turn.until);
    } else {
      break;
    }
  }
  return out;
}

test('the breaker opens after failures in a row, tries one call at a time, and closes at the first answer', () => {
  const queue = openQueue();
  for (let failure = 0; failure < 4; failure += 1) assert.equal(queue.failed(0, 0.5, false), false);
  assert.equal(queue.onTrial, false);
  assert.equal(queue.failed(0, 0.5, false), true);
  for (const name of ['a', 'b', 'c']) queue.push(item(name), 'retry');
  let now = queue.readyAt(0);
  assert.ok(now >= 500);
  const trial = queue.take(now, all);
  assert.equal(trial.kind, 'start');
  assert.equal(queue.take(now, all).kind, 'wait', 'one trial at a time');
  for (let count = 0; count < 30; count += 1) {
    queue.failed(now, 0.999, false);
    const ready = queue.readyAt(now);
    assert.ok(ready - now <= 2_000, 'recovery is noticed within two seconds');
    now = ready;
  }
  assert.equal(queue.succeeded(now), true);
  assert.equal(queue.onTrial, false);
  assert.equal(queue.succeeded(now), false);
});

test('behind payments that a partner cannot take, the first healthy one is tried within a second', () => {
  const queue = openQueue();
  for (let count = 0; count < 40; count += 1) queue.push(item(`bad ${count}`, count), 'submit');
  for (let count = 0; count < 5; count += 1) queue.failed(100, 0.999, false);
  queue.push(item('good', 200), 'submit');
  const tried: string[] = [];
  let now = 200;
  while (!tried.includes('good')) {
    const turn = queue.take(now, all);
    if (turn.kind === 'start') {
      tried.push(turn.item.name);
      queue.ended(turn.call);
      queue.failed(now, 0.999, false);
    } else {
      assert.equal(turn.kind, 'wait');
      if (turn.kind === 'wait') now = turn.until;
    }
  }
  assert.ok(now - 200 <= 1_000, `${now - 200} ms`);
  // The oldest are tried as well: one that keeps coming does not shut them out.
  for (let turns = 0; turns < 4;) {
    const turn = queue.take(now, all);
    if (turn.kind === 'start') {
      tried.push(turn.item.name);
      queue.ended(turn.call);
      turns += 1;
    } else if (turn.kind === 'wait') now = turn.until;
  }
  assert.ok(tried.includes('bad 0'), tried.join());
});

test('while the breaker is open, due payments that have not failed are tried first, within a second', () => {
  const queue = openQueue();
  for (let count = 0; count < 40; count += 1) queue.push(item('bad'), 'retry');
  for (let count = 0; count < 20; count += 1) queue.failed(count, 0.999, false);
  const [first] = started(queue, 20, 2_000, 1);
  assert.equal(first?.name, 'bad');
  queue.failed(first.at, 0.999, false);
  queue.push(item('good', first.at + 1), 'submit');
  const [next] = started(queue, first.at + 1, 5_000, 1);
  assert.equal(next?.name, 'good');
  assert.ok(next.at - first.at <= 1_000);
});

test('a trial that hangs does not delay the next one', () => {
  const queue = openQueue();
  for (let count = 0; count < 5; count += 1) queue.failed(0, 0, false);
  queue.push(item('a'), 'retry');
  queue.push(item('b'), 'retry');
  const now = queue.readyAt(0);
  assert.equal(queue.take(now, all).kind, 'start');
  const wait = queue.take(now, all);
  assert(wait.kind === 'wait');
  assert.ok(wait.until - now <= 2_000);
  assert.equal(queue.take(wait.until, all).kind, 'start');
});

test('after a hanging trial the next one starts at the time given, at any fraction of a millisecond', () => {
  for (let tried = 0; tried < 500; tried += 1) {
    const queue = openQueue();
    for (let count = 0; count < 5; count += 1) queue.failed(10_000, 0.5, false);
    for (const name of ['a', 'b', 'c']) queue.push(item(name), 'retry');
    // Two seconds later the fraction has one binary digit less, because 16,384 lies between.
    const now = queue.readyAt(14_400 + tried * 3.1234567);
    assert.equal(queue.take(now, all).kind, 'start');
    const turn = queue.take(now, all);
    assert(turn.kind === 'wait');
    // A wait that ends now would be repeated without end.
    assert.equal(queue.take(turn.until, all).kind, 'start', `from ${now} to ${turn.until}`);
  }
});

test('a new PUT passes any number of polls that are due, and polls keep a share of their own', () => {
  const queue = openQueue();
  queue.rate = 20;
  queue.applyBudget({ max_concurrent_calls: 10, max_calls_per_second: 20 });
  for (let count = 0; count < 3_000; count += 1) queue.push(item('poll', -count), 'poll');
  started(queue, 0, 1_000);
  queue.push(item('put', 1_000), 'submit');
  const order = started(queue, 1_000, 1_000).map((one) => one.name);
  assert.ok(order.indexOf('put') >= 0 && order.indexOf('put') <= 1, order.join(' '));
  for (let count = 0; count < 3_000; count += 1) queue.push(item('put', 2_000), 'submit');
  const mixed = started(queue, 2_000, 10_000).map((one) => one.name);
  const polls = mixed.filter((name) => name === 'poll').length;
  assert.ok(polls >= mixed.length / 4 && polls <= mixed.length / 2, `${polls} of ${mixed.length}`);
});

test('new PUTs, first polls, later polls and retries that are all due start in the ratio 4 : 4 : 1 : 1', () => {
  const queue = openQueue();
  queue.rate = 10_000;
  const lanes = ['submit', 'poll', 'again', 'retry'] as const;
  for (const lane of lanes) {
    for (let count = 0; count < 200; count += 1) queue.push(item(lane), lane);
  }
  const order = started(queue, 1_000, 1_000, 200).map(({ name }) => name);
  const counts = lanes.map((lane) => order.filter((name) => name === lane).length);
  assert.deepEqual(counts, [80, 80, 20, 20]);
});

test('in a burst, first polls keep up with the puts, so that payments end one after the other', () => {
  const queue = openQueue();
  queue.rate = 10_000;
  for (let count = 0; count < 1_000; count += 1) queue.push(item('put'), 'submit');
  let [puts, polls, mostBehind] = [0, 0, 0];
  // Each answer takes a millisecond, and a payment's first poll is due a millisecond after its put was answered.
  for (let now = 1; polls < 1_000; now += 1) {
    const calls: { name: string; call: RunningCall }[] = [];
    for (let turn = queue.take(now, all); turn.kind === 'start'; turn = queue.take(now, all)) {
      calls.push({ name: turn.item.name, call: turn.call });
    }
    for (const { name, call } of calls) {
      queue.ended(call);
      if (name === 'poll') polls += 1;
      else {
        puts += 1;
        queue.push(item('poll', now + 1), 'poll');
      }
    }
    mostBehind = Math.max(mostBehind, puts - polls);
    assert.ok(now < 2_000, `${puts} puts and ${polls} polls`);
  }
  assert.ok(mostBehind <= 2 * queue.share, `${mostBehind} polls behind`);
});

test('puts that started while no poll was due do not make the next put wait for the polls', () => {
  const queue = openQueue();
  queue.rate = 10_000;
  for (let count = 0; count < 200; count += 1) {
    queue.push(item('put'), 'submit');
    queue.push(item('poll', 5_000), 'poll');
  }
  assert.equal(started(queue, 1_000, 1_000).length, 200);
  queue.push(item('put', 5_000), 'submit');
  const order = started(queue, 5_000, 1_000, 10).map(({ name }) => name);
  assert.ok(order.indexOf('put') >= 0 && order.indexOf('put') <= 2, order.join(' '));
});

test('however small the share, one retry at a time may start', () => {
  const queue = openQueue();
  queue.share = 1;
  queue.push(item('a'), 'retry');
  queue.push(item('b'), 'retry');
  const turn = queue.take(1_000, all);
  assert(turn.kind === 'start');
  assert.notEqual(queue.take(1_000, all).kind, 'start');
  queue.ended(turn.call);
  assert.equal(queue.take(1_000, all).kind, 'start');
});

test('payments that keep failing get at most a quarter of the concurrent calls', () => {
  const queue = openQueue();
  queue.rate = 10_000;
  for (let count = 0; count < 40; count += 1) queue.push(item('hung'), 'retry');
  let hung = 0;
  while (queue.take(1_000, all).kind === 'start') hung += 1;
  assert.equal(hung, 3);
  queue.push(item('new', 1_000), 'submit');
  const turn = queue.take(1_000, all);
  assert(turn.kind === 'start');
  assert.equal(turn.item.name, 'new');
});

/** Fills a queue with PUTs that start after a second, are sent at `sentAt` and never end; returns those that are given up. */
function hungQueue(sentAt = 1_000): { queue: PartnerQueue<Item>; givenUp: number[] } {
  const queue = openQueue();
  queue.rate = 10_000;
  const givenUp: number[] = [];
  for (let count = 0; count < 20; count += 1) queue.push(item('hung'), 'submit');
  for (let running = 0; ; running += 1) {
    const turn = queue.take(1_000, all);
    if (turn.kind !== 'start') break;
    turn.call.sent = { kind: 'submit', at: sentAt };
    turn.call.giveUp = () => {
      givenUp.push(running);
      queue.ended(turn.call);
    };
  }
  return { queue, givenUp };
}

/** Lets time pass as the dispatcher does, and ends none of the calls that start. Returns when they started. */
function passTime(queue: PartnerQueue<Item>, until: number): number[] {
  const startedAt: number[] = [];
  for (let now = 1_000; now <= until;) {
    const turn = queue.take(now, all);
    if (turn.kind === 'give_up') turn.call.giveUp?.();
    else if (turn.kind === 'start') startedAt.push(now);
    else if (turn.kind === 'empty' || turn.until === undefined) break;
    else now = Math.max(now + 1, turn.until);
  }
  return startedAt;
}

test('calls that hang in every place give up one a second, to find out whether the partner answers others', () => {
  const { queue, givenUp } = hungQueue();
  assert.deepEqual(passTime(queue, 5_000), [2_000, 3_000, 4_000, 5_000]);
  assert.deepEqual(givenUp, [0, 1, 2, 3], 'the oldest first');
});

test('once a later call was answered, each call that hangs gives up its place to whatever waits', () => {
  const { queue, givenUp } = hungQueue();
  queue.succeeded(1_600, { kind: 'submit', at: 1_500 });
  assert.equal(passTime(queue, 2_000).length, 8);
  assert.equal(givenUp.length, 8);
});

test('a partner that takes long for a PUT and answers polls at once keeps its PUTs', () => {
  const { queue, givenUp } = hungQueue();
  queue.succeeded(1_600, { kind: 'poll', at: 1_580 });
  assert.equal(passTime(queue, 2_500).length, 1, 'a quick poll says nothing about a PUT');
  queue.succeeded(3_000, { kind: 'submit', at: 1_000 });
  queue.succeeded(3_020, { kind: 'poll', at: 3_000 });
  assert.deepEqual(passTime(queue, 8_999), []);
  assert.equal(givenUp.length, 1);
});

test('the time in which a call waits for our own database is not the partner’s', () => {
  const { queue, givenUp } = hungQueue(5_000);
  passTime(queue, 5_999);
  assert.deepEqual(givenUp, []);
});

test('a partner that is slow for everybody keeps its calls, and nothing is given up that nobody waits for', () => {
  const slow = hungQueue();
  // A later call was answered after five seconds.
  slow.queue.succeeded(6_500, { kind: 'submit', at: 1_500 });
  assert.deepEqual(passTime(slow.queue, 20_000), []);
  const idle = openQueue();
  idle.push(item('hung'), 'submit');
  const turn = idle.take(1_000, all);
  assert(turn.kind === 'start');
  turn.call.giveUp = () => assert.fail('nobody waits for its place');
  assert.deepEqual(passTime(idle, 60_000), []);
});

test('the refusal of one payment lets a trial through, and the refusal of another closes the queue', () => {
  const queue = openQueue();
  const refusal = { reason: 'credentials', ms: 60_000, forAll: false };
  assert.equal(queue.refused(0, refusal), true);
  queue.push(item('other'), 'submit');
  assert.equal(started(queue, 100, 100)[0]?.name, 'other');
  assert.equal(queue.refused(100, refusal), false);
  queue.push(item('refused'), 'retry');
  assert.deepEqual(started(queue, 100, 59_000), [], 'a retry waits for the whole hold');
  assert.equal(queue.succeeded(60_200), true);
  assert.equal(started(queue, 60_200, 10)[0]?.name, 'refused');
});

test('while a hold lasts, payments that have not failed are tried after one second, two, four, up to the hold', () => {
  const queue = openQueue();
  const refusal = { reason: 'credentials', ms: 60_000, forAll: false };
  const waited: number[] = [];
  let now = 0;
  queue.refused(now, refusal);
  for (let trial = 0; trial < 9; trial += 1) {
    queue.refused(now, refusal);
    // Refused as well, by a call that was in flight: tells nothing new.
    queue.refused(now, refusal);
    queue.push(item('new', now), 'submit');
    const [next] = started(queue, now, 120_000, 1);
    assert(next);
    waited.push((next.at - now) / 1_000);
    now = next.at;
  }
  assert.deepEqual(waited, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
  // A call that could not even be sent concerns every payment.
  queue.refused(now, { ...refusal, forAll: true });
  queue.push(item('new', now), 'submit');
  assert.deepEqual(started(queue, now, 59_000), []);
});

test('a refusal beside payments that are answered holds nobody', () => {
  const queue = openQueue();
  const refusal = { reason: 'credentials', ms: 60_000, forAll: false };
  for (let second = 0; second < 10; second += 1) {
    queue.succeeded(second * 1_000);
    for (let refused = 1; refused < 10; refused += 1) {
      queue.refused(second * 1_000 + refused * 100, refusal);
    }
    queue.push(item('healthy', second * 1_000 + 900), 'submit');
    assert.equal(started(queue, second * 1_000 + 900, 100, 1)[0]?.name, 'healthy');
  }
});

test('while a partner answers every call with an error, payments that have not failed have half of its budget', () => {
  const queue = openQueue();
  for (let count = 0; count < 200; count += 1) queue.push(item('new'), 'submit');
  for (let count = 0; count < 20; count += 1) queue.push(item('failed'), 'retry');
  for (let count = 0; count < 5; count += 1) queue.failed(0, 0.5, true);
  const tried = started(queue, 0, 1_000);
  const of = (name: string): number => tried.filter((one) => one.name === name).length;
  assert.ok(of('new') >= 45 && of('new') <= 51, `${of('new')}`);
  assert.equal(of('failed'), 0);
  // One that cannot be reached is spared, whatever it answered before.
  queue.failed(1_000, 0.5, false);
  assert.ok(started(queue, 1_000, 3_000).length <= 4);
});

test('a 429 for one payment in many, or where few calls are sent, slows nobody else', () => {
  const calls = (rate: number, limited: number): number => {
    const queue = openQueue();
    for (let second = 0; second < 5; second += 1) {
      const from = second * 1_000;
      for (let count = 0; count < rate; count += 1) queue.push(item('call', from), 'submit');
      for (const { at } of started(queue, from, 999)) queue.succeeded(at);
      for (let count = 0; count < limited; count += 1) queue.slowDown(from + 999);
    }
    for (let count = 0; count < 90; count += 1) queue.push(item('call', 5_000), 'submit');
    return started(queue, 5_000, 999).length;
  };
  assert.equal(calls(50, 1), 90);
  assert.equal(calls(5, 3), 90);
  assert.ok(calls(50, 10) < 50);
});

test('an empty queue says so, and drops what is no longer current', () => {
  const queue = openQueue();
  assert.equal(queue.nextAt, undefined);
  assert.deepEqual(queue.take(1_000, all), { kind: 'empty' });
  queue.push(item('withdrawn'), 'submit');
  queue.push(item('kept', 5_000), 'poll');
  const turn = queue.take(1_000, ({ name }) => name !== 'withdrawn');
  assert.deepEqual(turn, { kind: 'wait', until: 5_000, short: false });
  assert.equal(queue.size, 1);
});

test('half of the calls may be waiting reads at a partner that waits, one at a partner not known to wait [PL16]', () => {
  const queue = openQueue();
  assert.equal(queue.canWait(0), true, 'it has never been asked');
  queue.waiting = 1;
  assert.equal(queue.canWait(0), false);
  queue.waits = true;
  queue.waiting = 4;
  assert.equal(queue.canWait(0), true);
  queue.waiting = 5;
  assert.equal(queue.canWait(0), false);
  // One that does not wait is asked again after ten minutes, because it may have been upgraded.
  queue.waits = false;
  queue.waiting = 0;
  queue.askedToWaitAt = 1_000;
  assert.equal(queue.canWait(600_999), false);
  assert.equal(queue.canWait(601_000), true);
  queue.waits = true;
  for (let failure = 0; failure < 5; failure += 1) queue.failed(0, 0.5, false);
  assert.equal(queue.canWait(0), false, 'a partner that is down holds no call open');
});

/** Starts one call, or says why none can start. */
function start(queue: PartnerQueue<Item>, now: number): RunningCall {
  const turn = queue.take(now, all);
  assert(turn.kind === 'start', `${turn.kind} at ${now}`);
  turn.call.sent = { kind: 'submit', at: now };
  return turn.call;
}

/** The names of what starts at `now` while nothing ends. */
function startedAtOnce(queue: PartnerQueue<Item>, now: number): string[] {
  const names: string[] = [];
  for (;;) {
    const turn = queue.take(now, all);
    if (turn.kind !== 'start') return names;
    turn.call.sent = { kind: 'submit', at: now };
    names.push(turn.item.name);
  }
}

/** A queue that calls per second never hold up. */
function openWide(share = 10): PartnerQueue<Item> {
  const queue = openQueue();
  queue.rate = 100_000;
  queue.share = share;
  queue.applyBudget({ max_concurrent_calls: share, max_calls_per_second: 100_000 });
  return queue;
}

test('a worker that has not registered yet sends nothing, and is short of calls', () => {
  const queue = new PartnerQueue<Item>('acme', 1_000, 2_000);
  assert.equal(queue.partner_id, 'acme');
  assert.equal(queue.isShort, false);
  queue.push(item('a'), 'submit');
  assert.deepEqual(queue.take(1_000, all), { kind: 'full', until: undefined, short: true });
  queue.share = 1;
  assert.equal(queue.take(1_000, all).kind, 'full', 'a share without a rate is none');
  queue.share = 0;
  queue.rate = 100;
  assert.deepEqual(queue.take(1_000, all), { kind: 'full', until: undefined, short: true });
  queue.share = 1;
  const call = start(queue, 1_000);
  assert.deepEqual([queue.started, queue.inFlight], [1, 1]);
  queue.ended(call);
  assert.deepEqual([queue.started, queue.inFlight], [1, 0]);
});

test('a full queue asks for a larger share only where the partner allows all workers together more', () => {
  const queue = openWide(2);
  for (const name of ['a', 'b', 'c']) queue.push(item(name), 'submit');
  start(queue, 1_000);
  const second = start(queue, 1_000);
  assert.deepEqual(queue.take(1_000, all), { kind: 'full', until: undefined, short: false });
  queue.applyBudget({ max_concurrent_calls: 3, max_calls_per_second: 100_000 });
  assert.deepEqual(queue.take(1_000, all), { kind: 'full', until: undefined, short: true });
  queue.ended(second);
  start(queue, 1_000);
  // The calls per second likewise.
  const slow = openQueue();
  slow.rate = 1;
  slow.applyBudget({ max_concurrent_calls: 10, max_calls_per_second: 1 });
  for (const name of ['a', 'b']) slow.push(item(name), 'submit');
  slow.ended(start(slow, 1_000));
  assert.deepEqual(slow.take(1_000, all), { kind: 'wait', until: 2_000, short: false });
  slow.applyBudget({ max_concurrent_calls: 10, max_calls_per_second: 2 });
  assert.deepEqual(slow.take(1_000, all), { kind: 'wait', until: 2_000, short: true });
});

test('hung calls of one lane leave room for the others: three quarters, three quarters, a half, a quarter', () => {
  for (const [lane, most] of [
    ['submit', 30],
    ['poll', 30],
    ['again', 20],
    ['retry', 10],
  ] as const) {
    const queue = openWide(40);
    for (let count = 0; count < 50; count += 1) queue.push(item(lane), lane);
    assert.equal(startedAtOnce(queue, 1_000).length, most, lane);
    // What is due later in another lane is when to look again.
    queue.push(item('later', 7_000), lane === 'retry' ? 'submit' : 'retry');
    const turn = queue.take(1_000, all);
    assert.deepEqual(turn, { kind: 'full', until: 7_000, short: false }, lane);
  }
});

test('a lane that has its part waits for one of its calls, and nothing is tried again before', () => {
  const queue = openWide(4);
  for (let count = 0; count < 4; count += 1) queue.push(item('put', 1_000), 'submit');
  assert.equal(startedAtOnce(queue, 1_000).length, 3);
  assert.deepEqual(queue.take(1_000, all), { kind: 'full', until: undefined, short: false });
  const two = openWide(2);
  for (let count = 0; count < 2; count += 1) two.push(item('retry'), 'retry');
  assert.equal(startedAtOnce(two, 1_000).length, 1, 'of two calls retries have one');
});

test('a call that hangs is trouble: what came last is tried first', () => {
  const queue = openWide(1);
  queue.push(item('hung'), 'submit');
  const call = start(queue, 1_000);
  call.sent = { kind: 'submit', at: 1_000 };
  call.giveUp = () => undefined;
  for (const name of ['first', 'last']) queue.push(item(name, name === 'last' ? 2 : 1), 'submit');
  assert.equal(queue.take(3_000, all).kind, 'give_up');
  queue.ended(call);
  const turn = queue.take(3_000, all);
  assert(turn.kind === 'start');
  assert.equal(turn.item.name, 'last');
});

test('further polls start a quarter as often as first polls, and a lane that was empty does not catch up', () => {
  const queue = openWide();
  for (let count = 0; count < 1_000; count += 1) queue.push(item('submit'), 'submit');
  started(queue, 1_000, 1_000, 400);
  for (const lane of ['poll', 'again', 'retry'] as const) {
    for (let count = 0; count < 500; count += 1) queue.push(item(lane), lane);
  }
  const names = started(queue, 1_000, 1_000, 80).map(({ name }) => name);
  const counts = ['submit', 'poll', 'again', 'retry'].map(
    (lane) => names.filter((name) => name === lane).length,
  );
  assert.deepEqual(counts, [32, 32, 8, 8]);
  // A lane that goes on while others are empty has used no turns of theirs.
  const again = openWide();
  again.push(item('a'), 'again');
  again.push(item('b'), 'submit');
  assert.deepEqual(
    started(again, 1_000, 10).map(({ name }) => name),
    ['b', 'a'],
  );
});

test('the breaker stays open twice as long after each trial that fails, and a success makes it forget that', () => {
  const queue = new PartnerQueue<Item>('acme', 1_000, 5_000);
  queue.share = 10;
  queue.rate = 100;
  const open = (now: number, random: number): number => {
    queue.failed(now, random, false);
    return queue.readyAt(now) - now;
  };
  for (let count = 0; count < 4; count += 1) assert.equal(queue.failed(10_000, 0, false), false);
  assert.equal(queue.failed(10_000, 0, false), true);
  assert.equal(queue.readyAt(10_000), 10_500, 'half of a second at least');
  // Calls that started before it opened say nothing new.
  assert.equal(queue.failed(10_100, 0.999, false), false);
  assert.equal(queue.readyAt(10_100), 10_500);
  assert.deepEqual([open(20_000, 0), open(30_000, 0), open(40_000, 0)], [1_000, 2_000, 2_500]);
  assert.ok(open(50_000, 0.999_999) > 4_999, 'the whole of it at most');
  assert.equal(queue.succeeded(60_000), true);
  assert.equal(queue.readyAt(60_000), 60_000, 'at once');
  assert.equal(queue.isOpen(60_000), true);
  for (let count = 0; count < 4; count += 1) assert.equal(queue.failed(60_000, 0, false), false);
  assert.equal(queue.onTrial, false, 'the failures before the success do not count');
  assert.equal(queue.failed(60_000, 0, false), true, 'an operator hears of it again');
  assert.equal(queue.readyAt(60_000), 60_500);
});

test('a success ends the pause of the breaker at once', () => {
  const queue = openQueue();
  for (let count = 0; count < 5; count += 1) queue.failed(10_000, 0.999, true);
  assert.ok(queue.readyAt(10_100) > 10_900);
  queue.succeeded(10_100);
  assert.equal(queue.readyAt(10_100), 10_100);
  assert.equal(queue.stalledMs(10_200), 0);
});

test('a partner that answers with errors has half of its calls for new payments, and one for those that failed', () => {
  const failing = (lane: 'submit' | 'retry', isAnswer: boolean): PartnerQueue<Item> => {
    const queue = openWide();
    for (let count = 0; count < 5; count += 1) queue.failed(1_000, 0, isAnswer);
    for (let count = 0; count < 20; count += 1) queue.push(item(lane), lane);
    return queue;
  };
  /** What starts within a second and a half after the breaker's pause while nothing ends. */
  const trials = (queue: PartnerQueue<Item>): number => {
    let count = 0;
    for (let now = 1_500; now <= 3_000;) {
      const turn = queue.take(now, all);
      if (turn.kind === 'start') count += 1;
      else if (turn.kind === 'wait') now = Math.max(now + 0.01, turn.until);
      else return count;
    }
    return count;
  };
  assert.equal(trials(failing('submit', true)), 5);
  assert.equal(trials(failing('retry', true)), 1);
  assert.equal(trials(failing('submit', false)), 1, 'one that cannot be reached is spared');
  const refusing = failing('submit', true);
  refusing.refused(1_000, { reason: 'scope', ms: 60_000, forAll: false });
  assert.equal(trials(refusing), 1, 'one that refuses as well');
  // After two seconds a trial that hangs no longer keeps the next retry back.
  const hung = failing('retry', true);
  start(hung, 1_500);
  assert.deepEqual(hung.take(1_500, all), { kind: 'wait', until: 3_500, short: false });
  start(hung, 3_500);
});

test('a success ends a hold at once, for payments that were refused and for others, and all of its memory', () => {
  const refusal = { reason: 'credentials', ms: 60_000, forAll: false };
  const queue = openQueue();
  for (let count = 0; count < 6; count += 1) queue.refused(10_000 + count * 60_000, refusal);
  assert.equal(queue.held, 'credentials');
  assert.ok(queue.readyAt(310_000, 'retry') >= 370_000);
  assert.ok(queue.readyAt(310_000, 'submit') > 310_000);
  assert.equal(queue.succeeded(311_000), true);
  assert.deepEqual([queue.held, queue.onTrial], [undefined, false]);
  assert.equal(queue.readyAt(311_000, 'retry'), 311_000);
  assert.equal(queue.readyAt(311_000, 'submit'), 311_000);
  // The first refusal after that is news again, and confirms nothing; the second pauses for one second, not for a minute.
  assert.equal(queue.refused(400_000, refusal), true);
  assert.equal(queue.readyAt(400_000, 'retry'), 400_000);
  assert.equal(queue.refused(401_000, refusal), false);
  assert.equal(queue.readyAt(401_000, 'submit'), 402_000);
  assert.equal(queue.readyAt(401_000, 'retry'), 461_000);
  assert.equal(queue.refused(402_000, { ...refusal, reason: 'scope' }), true, 'another reason');
});

test('a refusal is confirmed only when the partner has answered nobody for a second', () => {
  const refusal = { reason: 'credentials', ms: 60_000, forAll: false };
  const queue = openQueue();
  const after = (ms: number): boolean => {
    const now = queue.workedAt + ms;
    queue.refused(now - 1, refusal);
    queue.refused(now, refusal);
    return queue.readyAt(now, 'retry') > now;
  };
  queue.succeeded(10_000);
  assert.equal(after(999), false);
  queue.succeeded(20_000);
  assert.equal(after(1_000), true);
});

test('until a refusal is confirmed, trials of payments that have not failed are 25 ms apart', () => {
  const queue = openWide();
  queue.refused(1_000, { reason: 'credentials', ms: 60_000, forAll: false });
  for (let count = 0; count < 10; count += 1) queue.push(item('new'), 'submit');
  assert.deepEqual(
    started(queue, 1_000, 100).map(({ at }) => at),
    [1_000, 1_025, 1_050, 1_075, 1_100],
  );
});

test('a refusal that needs no confirming holds everybody at once, for the time that it names', () => {
  const queue = openQueue();
  queue.refused(1_000, { reason: 'certificate', ms: 30_000, forAll: true });
  assert.equal(queue.readyAt(1_000, 'submit'), 31_000);
  assert.equal(queue.readyAt(1_000, 'retry'), 31_000);
  // Another later is not lost behind the first.
  queue.refused(2_000, { reason: 'certificate', ms: 30_000, forAll: true });
  assert.equal(queue.readyAt(2_000, 'submit'), 32_000);
});

test('a pause that the partner asked for holds all calls, and a shorter one does not cut it short', () => {
  const queue = openQueue();
  queue.push(item('a'), 'submit');
  queue.closeFor(1_000, 5_000);
  queue.closeFor(1_500, 1_000);
  assert.equal(queue.isOpen(5_999), false);
  assert.equal(queue.readyAt(1_500, 'submit'), 6_000);
  assert.deepEqual(queue.take(1_500, all), { kind: 'wait', until: 6_000, short: false });
  assert.equal(queue.isOpen(6_000), true);
  start(queue, 6_000);
  // An answer to a call that left before says nothing about it.
  queue.closeFor(6_000, 5_000);
  queue.succeeded(6_100);
  assert.equal(queue.readyAt(6_100, 'submit'), 11_000);
});

test('a partner is open unless it rests, is broken or is on trial', () => {
  const queue = openQueue();
  assert.equal(queue.isOpen(0), true);
  for (let count = 0; count < 5; count += 1) queue.failed(1_000, 0, false);
  assert.equal(queue.isOpen(1_100), false);
  assert.equal(queue.isOpen(60_000), false, 'on trial until it has answered');
  queue.succeeded(60_000);
  assert.equal(queue.isOpen(60_000), true);
  queue.refused(60_000, { reason: 'scope', ms: 1_000, forAll: false });
  assert.equal(queue.isOpen(90_000), false);
});

test('a queue stalls from when its first call was due, could have started, or last started', () => {
  const queue = openQueue();
  assert.equal(queue.stalledMs(1_000), 0, 'nothing waits');
  queue.push(item('a', 1_000), 'submit');
  assert.equal(queue.stalledMs(900), 0, 'not due yet');
  assert.equal(queue.stalledMs(4_000), 3_000);
  queue.isShort = true;
  assert.equal(queue.stalledMs(4_000), 0, 'it waits for other workers');
  queue.isShort = false;
  queue.closeFor(1_000, 2_000);
  assert.equal(queue.stalledMs(4_000), 1_000);
  queue.push(item('b', 1_000), 'submit');
  start(queue, 3_500);
  assert.equal(queue.stalledMs(4_000), 500, 'it moves');
  for (let count = 0; count < 5; count += 1) queue.failed(4_000, 0, false);
  assert.equal(queue.stalledMs(4_600), 100, 'the breaker was open until 4,500');
  queue.refused(4_600, { reason: 'scope', ms: 60_000, forAll: true });
  assert.equal(queue.stalledMs(64_700), 100);
});

test('payments that waited for a retry because of the partner go back to their lanes', () => {
  const queue = openWide();
  for (const name of ['submit', 'poll', 'submit']) queue.push(item(name), 'retry');
  queue.forgive(({ name }) => (name === 'poll' ? 'poll' : 'submit'));
  assert.equal(queue.size, 3);
  // A quarter of the calls is the most that retries have: one, of these four.
  queue.share = 4;
  assert.deepEqual(startedAtOnce(queue, 1_000).toSorted(), ['poll', 'submit', 'submit']);
});

/** The order in which ten calls of a lane, due 100 ms apart from 1,000 on, start at `now`. */
function orderAt(
  queue: PartnerQueue<Item>,
  lane: 'submit' | 'poll' | 'retry',
  now: number,
): string {
  for (let count = 0; count < 10; count += 1)
    queue.push(item(`${count}`, 1_000 + count * 100), lane);
  return started(queue, now, 0)
    .map(({ name }) => name)
    .join('');
}

test('for five seconds after trouble those that came last go first, and every fourth is the oldest', () => {
  const trouble: readonly ((queue: PartnerQueue<Item>) => void)[] = [
    (queue) => queue.failedAlone(2_000),
    (queue) => queue.slowDown(2_000),
    (queue) => queue.failed(2_000, 0, true),
    (queue) => {
      queue.refused(2_000, { reason: 'scope', ms: 1, forAll: false });
      queue.succeeded(2_000);
    },
  ];
  for (const happens of trouble) {
    const during = openWide();
    happens(during);
    assert.equal(orderAt(during, 'submit', 6_999), '9870654132', String(happens));
    const later = openWide();
    happens(later);
    assert.equal(orderAt(later, 'submit', 7_000), '0123456789', String(happens));
    const retries = openWide();
    happens(retries);
    assert.equal(orderAt(retries, 'retry', 6_999), '0123456789', 'retries have had their turn');
  }
  assert.equal(orderAt(openWide(), 'submit', 7_000), '0123456789', 'without trouble');
});

test('polls that have waited for a second go last come, first served; PUTs do not', () => {
  assert.equal(
    orderAt(openWide(), 'poll', 2_000),
    '0123456789',
    'the first waits for just a second',
  );
  // 2,850: the ones due before 1,850 have waited too long; when the oldest of those left is younger, it goes first again.
  assert.equal(orderAt(openWide(), 'poll', 2_850), '9870654132');
  assert.equal(orderAt(openWide(), 'submit', 2_850), '0123456789');
});

test('an entry that is no longer current is passed over wherever it lies', () => {
  const queue = openWide();
  queue.failedAlone(2_000);
  for (const [name, at] of [
    ['first', 1_000],
    ['gone', 1_100],
  ] as const) {
    queue.push(item(name, at), 'submit');
  }
  const turn = queue.take(2_000, ({ name }) => name !== 'gone');
  assert(turn.kind === 'start');
  assert.equal(turn.item.name, 'first');
  assert.equal(queue.size, 0);
  // All that is left may be withdrawn between two looks.
  queue.push(item('first', 1_000), 'submit');
  queue.push(item('last', 1_100), 'submit');
  let looks = 0;
  assert.deepEqual(
    queue.take(2_000, () => (looks += 1) === 1),
    { kind: 'empty' },
  );
});

test('while a partner cannot be reached, one trial runs at a time, and a new payment’s goes before a retry’s', () => {
  const queue = openWide();
  queue.push(item('retry'), 'retry');
  queue.push(item('retry'), 'retry');
  for (let count = 0; count < 5; count += 1) queue.failed(0, 0, false);
  queue.push(item('new'), 'submit');
  queue.push(item('new'), 'submit');
  const trial = queue.take(5_000, all);
  assert(trial.kind === 'start');
  assert.equal(trial.item.name, 'new');
  assert.deepEqual(queue.take(5_000, all), { kind: 'wait', until: 7_000, short: false });
  assert.equal(queue.take(6_999, all).kind, 'wait');
  start(queue, 7_000);
  assert.equal(queue.take(7_000, all).kind, 'wait', 'one more, after two seconds');
  queue.share = 2;
  assert.equal(queue.take(9_000, all).kind, 'full', 'and no more than the share');
});

/** One PUT that was sent at 1,000 and hangs in the only place, and one more that waits; what came of the place by `now`. */
function hungPlace(
  lane: 'submit' | 'retry',
  sent: NonNullable<RunningCall['sent']>,
  others: (queue: PartnerQueue<Item>) => void = () => undefined,
): (now: number) => string {
  const queue = openWide(1);
  queue.push(item('hung'), lane);
  const call = start(queue, 1_000);
  call.sent = sent;
  call.giveUp = () => undefined;
  queue.push(item('waits', 1_000), 'submit');
  others(queue);
  return (now) => queue.take(now, all).kind;
}

test('a call gives up its place when it takes a second, and four times as long as one of its kind did', () => {
  const alone = hungPlace('submit', { kind: 'submit', at: 1_000 });
  assert.deepEqual([alone(1_999), alone(2_000)], ['full', 'give_up']);
  assert.equal(alone(60_000), 'full', 'only once the one given up has ended is another');
  const slow = (took: number) =>
    hungPlace('submit', { kind: 'submit', at: 1_000 }, (queue) =>
      queue.succeeded(1_100 + took, { kind: 'submit', at: 1_100 }),
    );
  assert.deepEqual([slow(500)(2_999), slow(500)(3_000)], ['full', 'give_up']);
  assert.deepEqual([slow(2_000)(8_999), slow(2_000)(9_000)], ['full', 'give_up']);
  // What hangs by agreement, and what has its turn among the retries, keeps its place.
  assert.equal(hungPlace('submit', { kind: 'waiting_read', at: 1_000 })(60_000), 'full');
  assert.equal(hungPlace('retry', { kind: 'submit', at: 1_000 })(60_000), 'full');
});

test('a full queue looks again a second later while a call is being prepared that may hang, unless it is a retry', () => {
  const queue = openWide(1);
  queue.push(item('prepared'), 'submit');
  const call = start(queue, 1_000);
  call.sent = undefined;
  queue.push(item('waits', 1_000), 'submit');
  assert.deepEqual(queue.take(1_500, all), { kind: 'full', until: 2_500, short: false });
  // Or sooner, when another lane, which has room, is due.
  const wide = openWide(4);
  wide.push(item('retry', 1_400), 'retry');
  for (let count = 0; count < 3; count += 1) wide.push(item('prepared'), 'submit');
  for (let count = 0; count < 3; count += 1) start(wide, 1_000).sent = undefined;
  wide.push(item('waits', 1_000), 'submit');
  assert.deepEqual(wide.take(1_000, all), { kind: 'full', until: 1_400, short: false });
  const other = openWide(2);
  for (let count = 0; count < 2; count += 1) other.push(item('retry'), 'retry');
  const retry = start(other, 1_000);
  retry.sent = undefined;
  other.push(item('new', 1_000), 'submit');
  start(other, 1_000);
  other.push(item('waits', 1_000), 'submit');
  assert.deepEqual(other.take(1_500, all), { kind: 'full', until: undefined, short: false });
});

test('a call gives up its place to what is due now and has not failed, and only where it stands in its way', () => {
  const queue = openWide(4);
  const calls = ['submit', 'submit', 'submit'].map((lane) => {
    queue.push(item('hung'), lane as 'submit');
    const call = start(queue, 1_000);
    call.sent = { kind: 'submit', at: 1_000 };
    call.giveUp = () => undefined;
    return call;
  });
  // A place is left, which PUTs may not have: three quarters are taken.
  queue.push(item('poll', 70_000), 'poll');
  assert.equal(queue.take(60_000, all).kind, 'wait', 'nothing is due');
  queue.push(item('retry', 50_000), 'retry');
  const retry = start(queue, 60_000);
  queue.ended(retry);
  queue.push(item('put', 60_000), 'submit');
  const turn = queue.take(60_000, all);
  assert(turn.kind === 'give_up');
  assert.equal(turn.call, calls[0], 'the oldest');
  assert.deepEqual(queue.take(60_500, all), { kind: 'full', until: 70_000, short: false });
  queue.ended(turn.call);
  start(queue, 60_500);
  // A second after the last one another may be, if nothing was answered since; whoever ends meanwhile changes nothing.
  queue.push(item('put', 60_500), 'submit');
  assert.deepEqual(queue.take(60_600, all), { kind: 'full', until: 61_000, short: false });
  assert.equal(queue.take(61_000, all).kind, 'give_up');
});

test('a call of another kind keeps its place where there is room for more of its kind', () => {
  const queue = openWide(8);
  const hung = (['poll', ...Array.from({ length: 6 }, () => 'submit')] as const).map((lane) => {
    queue.push(item('hung'), lane as 'poll' | 'submit');
    const call = start(queue, 1_000);
    call.sent = { kind: lane as 'poll' | 'submit', at: 1_000 };
    call.giveUp = () => undefined;
    return call;
  });
  // Of eight places PUTs may have six, so that the poll stands in nobody's way.
  queue.push(item('put', 60_000), 'submit');
  const turn = queue.take(60_000, all);
  assert(turn.kind === 'give_up');
  assert.equal(turn.call, hung[1]);
});

test('a call keeps its place while all that is due are retries', () => {
  const queue = openWide(1);
  queue.push(item('hung'), 'submit');
  const call = start(queue, 1_000);
  call.sent = { kind: 'submit', at: 1_000 };
  call.giveUp = () => undefined;
  queue.push(item('retry', 50_000), 'retry');
  queue.push(item('poll', 70_000), 'poll');
  assert.equal(queue.take(60_000, all).kind, 'full');
  assert.equal(queue.take(70_000, all).kind, 'give_up', 'a poll is due');
});

test('in a full queue a call of any kind gives up its place, and only when the last one has left is it the next one’s turn', () => {
  const queue = openWide(3);
  const calls = [1, 2, 3].map(() => {
    queue.push(item('hung'), 'poll');
    const call = start(queue, 1_000);
    call.sent = { kind: 'poll', at: 1_000 };
    call.giveUp = () => undefined;
    return call;
  });
  for (let count = 0; count < 3; count += 1) queue.push(item('put', 1_000), 'submit');
  // A later poll was answered: those that hang go one after the other, without a second between them.
  queue.succeeded(1_010, { kind: 'poll', at: 1_005 });
  const turn = queue.take(10_000, all);
  assert(turn.kind === 'give_up');
  assert.equal(turn.call, calls[0]);
  queue.ended(calls[2] as RunningCall);
  start(queue, 10_000);
  assert.equal(queue.take(10_000, all).kind, 'full', 'the one given up has not left yet');
  queue.ended(turn.call);
  start(queue, 10_000);
  const next = queue.take(10_000, all);
  assert(next.kind === 'give_up');
  assert.equal(next.call, calls[1]);
});

test('a worker that may start nothing says whether it lacks a share, or waits for its own calls', () => {
  const none = openWide(4);
  none.rate = 0;
  none.push(item('put'), 'submit');
  assert.deepEqual(none.take(1_000, all), { kind: 'full', until: undefined, short: true });
  const trial = openWide(1);
  for (let failure = 0; failure < 5; failure += 1) trial.failed(0, 0, false);
  for (const name of ['a', 'b']) trial.push(item(name), 'submit');
  start(trial, 60_000);
  assert.equal(
    trial.take(60_000, all).kind,
    'full',
    'no time makes room where the trial fills the share',
  );
});
