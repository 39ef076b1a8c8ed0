/** The waiting reads on rows in memory, with time that moves only with the test; status.test.ts has them over HTTP and PostgreSQL. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, type Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { kitMetrics } from './metrics.ts';
import { openStatusReads, waitPreference } from './status.ts';
import type { PaymentRow } from './store.ts';
import { processing } from '../test/kit.ts';

test('the wait preference is parsed as in RFC 7240', () => {
  const cases: [string | undefined, number][] = [
    [undefined, 0],
    ['wait=10', 10],
    ['WAIT = 7', 7],
    ['respond-async, wait=5', 5],
    ['wait="12"', 12],
    ['wait=3; x=1', 3],
    ['wait=4, wait=9', 4],
    ['wait', 0],
    ['wait=-1', 0],
    ['wait=1.5', 0],
    ['wait=abc', 0],
    ['waiting=5', 0],
    ['wait=99999999999', 0],
    ['', 0],
  ];
  for (const [header, seconds] of cases) assert.equal(waitPreference(header), seconds, header);
  assert.equal(waitPreference(['respond-async', 'wait=5']), 5);
});

/** The reading end on rows in memory, with time that moves only with the test. */
function reading(more: { maxConnections?: number } = {}) {
  const clock = manualClock();
  const rows = new Map<string, PaymentRow>();
  const state = { looks: [] as string[], isAway: false };
  const warned: string[] = [];
  let waiting = (): number => 0;
  const reads = openStatusReads({
    database: {
      async query(statement: { name: string }, [ids]: [readonly string[]]) {
        const found = ids.flatMap((id) => rows.get(id) ?? []);
        if (statement.name === 'kit_find_payments') return found;
        state.looks.push(`${clock.monotonic()} ${ids.join(' ')}`);
        if (state.isAway) throw new Error('cut off');
        return found.filter(({ status }) => status !== 'processing');
      },
    } as unknown as Database,
    metrics: {
      ...kitMetrics(undefined),
      watch: (_name, value) => {
        waiting = value;
      },
    },
    log: { ...silentLog, warn: (_fields, text) => void warned.push(text) },
    clock,
    ...more,
  });
  const put = (id: string, status: PaymentRow['status'] = 'processing'): PaymentRow => {
    const row = processing(id, { status });
    rows.set(id, row);
    return row;
  };
  const wait = (id: string, ms = 60_000, signal = new AbortController().signal) => {
    const got: { payment?: PaymentRow | undefined; applied?: boolean } = {};
    void reads
      .readWaiting(id, { biller_id: 'acme', account_id: 'A-1' }, ms, signal)
      .then((answer) => Object.assign(got, answer));
    return got;
  };
  return { reads, clock, state, warned, put, wait, waiting: () => waiting() };
}

test('payments that others end are looked for in one statement, ten times a second [RU3 B5]', async () => {
  const { reads, clock, state, warned, put, wait, waiting } = reading();
  for (const id of ['p', 'q', 'r']) put(id);
  const [p, q] = [wait('p'), wait('q')];
  await clock.advance(0);
  assert.deepEqual([state.looks, waiting()], [['0 p q'], 2]);
  await clock.advance(99);
  assert.equal(state.looks.length, 1);
  state.isAway = true;
  await clock.advance(1);
  assert.equal(state.looks.length, 2);
  assert.deepEqual(warned, ['could not look for ended payments']);
  state.isAway = false;
  const ended = put('p', 'succeeded');
  await clock.advance(100);
  assert.deepEqual([p, q, waiting()], [{ payment: ended, applied: true }, {}, 1]);
  // Told here: at once, without a look; and nobody else is woken.
  const looked = state.looks.length;
  reads.announce([put('r', 'failed')]);
  await clock.advance(0);
  assert.deepEqual(q, {});
  reads.announce([put('q', 'canceled')]);
  await clock.advance(0);
  assert.equal(q.payment?.status, 'canceled');
  assert.deepEqual([waiting(), state.looks.length], [0, looked]);
  // Nobody waits: nothing is looked for.
  await clock.advance(10_000);
  const after = state.looks.length;
  assert.ok(after <= looked + 1);
  reads.announce([ended]);
  put('s');
  wait('s');
  await clock.advance(0);
  assert.equal(state.looks.length, after + 1, 'it begins again with the next reader');
  await reads.stop();
});

test('a waiting read lasts as long as was asked for, 25 s at most, and all readers of a payment are answered [B5 LI1]', async () => {
  const { reads, clock, put, wait, waiting } = reading();
  const row = put('p');
  const [short, long, gone] = [wait('p', 1_000), wait('p', 60_000), new AbortController()];
  const left = wait('p', 60_000, gone.signal);
  await clock.advance(999);
  assert.deepEqual([short, waiting()], [{}, 3]);
  await clock.advance(1);
  assert.deepEqual(short, { payment: row, applied: true });
  gone.abort();
  await clock.advance(23_999);
  assert.deepEqual([left, long, waiting()], [{ payment: row, applied: true }, {}, 1]);
  await clock.advance(1);
  assert.deepEqual([long, waiting()], [{ payment: row, applied: true }, 0]);
  const two = [wait('p'), wait('p')];
  await clock.advance(0);
  const ended = put('p', 'succeeded');
  reads.announce([ended]);
  await clock.advance(0);
  for (const one of two) assert.deepEqual(one, { payment: ended, applied: true });
  // Ended, absent or another's: answered at once.
  const others = [wait('p'), wait('unheard'), wait('theirs')];
  put('theirs');
  await clock.advance(0);
  assert.equal(others[0]?.payment, ended);
  assert.deepEqual(others[1], { payment: undefined, applied: true });
  await reads.stop();
  const late = wait('p');
  await clock.advance(0);
  assert.equal(late.applied, false);
});

test('4,000 reads wait, or as many as half of the connections, and no more [LI1 LV10]', async () => {
  for (const [limits, most] of [
    [{ maxConnections: 7 }, 3],
    [{}, 4_000],
  ] as const) {
    const { reads, clock, put, wait, waiting } = reading(limits);
    put('p');
    const all = Array.from({ length: most + 1 }, () => wait('p'));
    await clock.advance(0);
    assert.equal(waiting(), most);
    assert.deepEqual(
      all.filter(({ applied }) => applied === false).length,
      1,
      JSON.stringify(limits),
    );
    const stopped = reads.stop();
    await clock.advance(0);
    await stopped;
    assert.ok(all.every(({ payment }) => payment?.status === 'processing'));
  }
});
