/** Whose payment is called for next when calls hang, are slow or many: nobody waits for the calls of another (decision 223). */
import assert from 'node:assert/strict';
import test from 'node:test';
import { manualClock } from '@duebridge/runtime/testing';
import { CallPlaces, FairQueue } from './call-places.ts';

const of = (biller_id: string, account_id: string) => ({ biller_id, account_id });
/** Two accounts of acme, and one of another biller with an account id that acme uses too. */
const [X, Y, OTHER] = [of('acme', 'x'), of('acme', 'y'), of('other', 'x')];

function open(concurrency: number, ...noted: (typeof X)[]) {
  const clock = manualClock();
  const places = new CallPlaces(concurrency, clock);
  for (const payment of noted) places.note(payment);
  /** Begins calls for this payment as long as `isAllowed`, and returns what ends each. */
  const fill = (payment: typeof X, isAllowed: () => boolean): (() => void)[] => {
    const ends: (() => void)[] = [];
    while (ends.length < 1_000 && isAllowed()) ends.push(places.begin([payment]));
    return ends;
  };
  return { clock, places, fill };
}

test('who is alone has every place, however slow its calls are [ST2 LV3]', async () => {
  const { clock, places, fill } = open(8, X, X);
  const isAllowed = (): boolean =>
    places.mayCallBiller('acme') && places.mayCallAccount('acme:x') && places.free() > 0;
  const ends = fill(X, isAllowed);
  assert.equal(ends.length, 8);
  for (const end of ends.slice(0, 2)) end();
  await clock.advance(60_000);
  assert.equal(fill(X, isAllowed).length, 2);
});

test('calls beyond their deadline take no place, until there are eight times as many as places [LV3]', () => {
  for (const concurrency of [1, 2, 8]) {
    const { places } = open(concurrency, X);
    const ends: (() => void)[] = [];
    while (places.free() > 0 && ends.length < 1_000) {
      assert.equal(places.free(), concurrency);
      ends.push(places.begin([X], true));
    }
    assert.equal(ends.length, 8 * concurrency);
    ends[0]?.();
    places.begin([X]);
    assert.equal(places.free(), concurrency - 1);
  }
});

test('a locked account keeps one place, a quick one half of them, and others have the rest [ST2 LV3]', async () => {
  for (const [concurrency, half] of [
    [8, 4],
    [5, 3],
    [2, 1],
  ] as const) {
    const { clock, places, fill } = open(concurrency, X, Y);
    const isAllowed = (): boolean => places.mayCallAccount('acme:x');
    const [first, ...rest] = fill(X, isAllowed);
    assert.equal(1 + rest.length, half);
    assert.equal(places.mayCallAccount('acme:y'), true);
    assert.equal(places.mayCallBiller('acme'), true, 'there is one biller');
    // All of them return but one, which hangs.
    for (const end of rest) end();
    await clock.advance(999);
    assert.equal(isAllowed(), half > 1);
    await clock.advance(1);
    assert.equal(isAllowed(), false);
    first?.();
    assert.equal(fill(X, isAllowed).length, half);
  }
});

test('of one account eight calls may be late, and one more is made meanwhile [LV3]', () => {
  const { places, fill } = open(8, X, Y);
  const ends = Array.from({ length: 7 }, () => places.begin([X], true));
  // A late call is a slow one.
  assert.equal(fill(X, () => places.mayCallAccount('acme:x')).length, 1);
  assert.equal(places.mayCallAccount('acme:y'), true);
  const { places: more } = open(8, X, Y);
  for (let late = 0; late < 8; late += 1) {
    assert.equal(more.mayCallAccount('acme:x'), true, `${late} are late`);
    ends.push(more.begin([X], true));
  }
  assert.equal(more.mayCallAccount('acme:x'), false);
  assert.equal(more.mayCallAccount('other:x'), true, 'the same id of another biller');
  ends.at(-1)?.();
  assert.equal(more.mayCallAccount('acme:x'), true);
});

test('a biller has half of what others leave until a call of it was quick, and a quarter is left then [ST2 LV3]', async () => {
  const few = open(2, X, OTHER);
  assert.equal(few.fill(X, () => few.places.mayCallBiller('acme')).length, 1);
  for (const [concurrency, others, half, most] of [
    [2, 0, 1, 1],
    [3, 0, 2, 2],
    [8, 0, 4, 6],
    [8, 1, 4, 6],
    [8, 5, 2, 6],
    [12, 0, 6, 9],
  ] as const) {
    const { clock, places, fill } = open(concurrency, X, OTHER);
    const isAllowed = (): boolean => places.mayCallBiller('acme');
    const what = `${concurrency} places, ${others} of others`;
    for (let one = 0; one < others; one += 1) places.begin([OTHER]);
    const [first, ...rest] = fill(X, isAllowed);
    assert.equal(1 + rest.length, half, what);
    for (const end of rest) end();
    await clock.advance(999);
    first?.();
    const quick = fill(X, isAllowed);
    assert.equal(quick.length, most, `${what}: its last call was quick`);
    // One hangs: half again, and so it stays when it has returned after all.
    for (const end of quick.slice(1)) end();
    await clock.advance(1_000);
    assert.equal(1 + fill(X, isAllowed).length, Math.max(1, half), `${what}: one hangs`);
  }
});

test('a call of a whole second was slow, one of less was quick, for every biller of the call [LV3]', async () => {
  const { clock, places, fill } = open(8, X, OTHER);
  const most = (payment: typeof X): number => {
    const ends = fill(payment, () => places.mayCallBiller(payment.biller_id));
    for (const end of ends) end();
    return ends.length;
  };
  const end = places.begin([X, OTHER]);
  await clock.advance(1_000);
  end();
  // Trying it makes them quick.
  assert.deepEqual([most(X), most(X)], [4, 6]);
  const again = places.begin([X, OTHER]);
  await clock.advance(1_000);
  again();
  assert.deepEqual([most(X), most(OTHER)], [4, 4]);
  const both = places.begin([X, OTHER]);
  await clock.advance(999);
  both();
  assert.deepEqual([most(X), most(OTHER)], [6, 6]);
  places.begin([X], true)();
  assert.equal(most(X), 4, 'what returns after its deadline was slow');
});

test('a biller whose core hangs has at most half of the late calls that are tolerated [LV3]', () => {
  const { places } = open(8, X, OTHER);
  // Those of others count neither against it nor as places.
  for (let late = 0; late < 20; late += 1) places.begin([OTHER], true);
  for (let late = 0; late < 32; late += 1) {
    assert.equal(places.mayCallBiller('acme'), true, `${late} are late`);
    places.begin([X], true);
  }
  assert.equal(places.mayCallBiller('acme'), false);
  assert.equal(places.mayCallBiller('other'), true);
});

test('with one place nothing can be left to others [LV3]', () => {
  const { places } = open(1, X, Y, OTHER);
  places.begin([X]);
  assert.deepEqual([places.mayCallBiller('acme'), places.mayCallAccount('acme:x')], [true, true]);
});

interface Item {
  readonly payment: typeof X;
  readonly name: string;
}

function queued(...names: string[]): FairQueue<Item> {
  const queue = new FairQueue<Item>();
  for (const name of names) {
    const [biller_id = '', account_id = ''] = name.split('/');
    queue.push({ payment: of(biller_id, account_id), name });
  }
  return queue;
}
const namesOf = (items: readonly Item[]): string[] => items.map(({ name }) => name);

test('billers take turns, and the accounts of each, so that a long queue delays only its own [ST2 LV3]', () => {
  const queue = queued('a/x/1', 'a/x/2', 'a/x/3', 'a/y/1', 'b/x/1', 'b/x/2');
  const { places } = open(8);
  assert.equal(queue.size, 6);
  assert.deepEqual(namesOf(queue.take(2, places)), ['a/x/1', 'b/x/1']);
  assert.equal(queue.size, 4);
  assert.deepEqual(namesOf(queue.take(10, places)), ['a/y/1', 'b/x/2', 'a/x/2', 'a/x/3']);
  assert.equal(queue.size, 0);
  // Nothing is left of those that are through.
  queue.push({ payment: X, name: 'later' });
  assert.deepEqual(namesOf(queue.take(10, places)), ['later']);
  assert.deepEqual([queue.take(10, places), queue.size], [[], 0]);
});

test('what may not be called for keeps its turn, and the others go on [LV3]', () => {
  const queue = queued('acme/x/1', 'acme/y/1', 'acme/y/2', 'other/x/1');
  const { places } = open(8, X, Y);
  const late = Array.from({ length: 8 }, () => places.begin([X], true));
  assert.deepEqual(namesOf(queue.take(10, places)), ['acme/y/1', 'other/x/1', 'acme/y/2']);
  queue.push({ payment: Y, name: 'acme/y/3' });
  late[0]?.();
  assert.deepEqual(namesOf(queue.take(10, places)), ['acme/x/1', 'acme/y/3']);
  // Two accounts of acme hang, so a third one waits although no call of its own does.
  const { places: hung } = open(4, X, Y, OTHER);
  hung.begin([X]);
  hung.begin([Y]);
  const three = queued('acme/z/1', 'other/x/1');
  assert.deepEqual(namesOf(three.take(10, hung)), ['other/x/1']);
  assert.equal(three.size, 1);
});

test('a stop gets all that waits [LV5]', () => {
  const queue = queued('a/x/1', 'a/x/2', 'a/y/1', 'b/x/1');
  assert.deepEqual(namesOf(queue.takeAll()).toSorted(), ['a/x/1', 'a/x/2', 'a/y/1', 'b/x/1']);
  assert.deepEqual([queue.size, queue.takeAll(), queue.take(1, open(8).places)], [0, [], []]);
});
