import assert from 'node:assert/strict';
import test from 'node:test';
import { PartnerQueue } from './partner-queue.ts';

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

test('new PUTs, polls and retries that are all due start in the ratio 4 : 2 : 1', () => {
  const queue = openQueue();
  queue.rate = 10_000;
  for (const lane of ['submit', 'poll', 'retry'] as const) {
    for (let count = 0; count < 200; count += 1) queue.push(item(lane), lane);
  }
  const order = started(queue, 1_000, 1_000, 140).map(({ name }) => name);
  const counts = ['submit', 'poll', 'retry'].map(
    (lane) => order.filter((name) => name === lane).length,
  );
  assert.deepEqual(counts, [80, 40, 20]);
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
