/**
 * The dispatcher in virtual time: what a payment, its customer and its partner would notice if a step were lost, doubled, early or
 * late. Each test tells the whole story of a few payments.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { HOLD_MARGIN_MS } from '../funding.ts';
import {
  BEGAN,
  CALL_MS,
  dispatcherRig,
  idOf,
  ME,
  partnerCalled,
  STATEMENT_MS,
  UPTIME,
} from '../../test/dispatcher-rig.ts';

type Rig = ReturnType<typeof dispatcherRig>;

/** What reaches the partner, the processor and the rows. */
const DEEDS = /^(?:put|get|row|authorize|capture|void)/;
const SENT = /^(?:put|get)/;
const ROWS = /^row/;

/** The times that the partner's payments took to end, as the schedule of its polls knows them. */
function learnt(rig: Rig): number[] {
  const { times, count } = rig.dispatcher.partnerOf('acme').settlements;
  return [...times.subarray(0, count)].map((ms) => Math.round(ms * 10) / 10);
}

// A life ---------------------------------------------------------------------------------------------------------------

test('a payment through a processor is authorized, put, polled, ended and captured, each once and in this order [S4 PL1 PL7]', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 500;
  rig.dispatcher.add(rig.pay(1));
  assert.equal(rig.dispatcher.payments.size, 1);
  await rig.run(60_000);
  assert.deepEqual(rig.readTimes(), [
    [0, 'authorize 1'],
    [6, 'row 1: created > dispatching, held'],
    [6, 'put 1'],
    [11, 'counted: put of acme processing'],
    [62, 'row 1: dispatching > accepted'],
    [62, 'told of 1'],
    [1_011, 'get 1'],
    [1_016, 'counted: get of acme ended'],
    [1_017, 'row 1: accepted > ended, succeeded by partner'],
    [1_017, 'told of 1'],
    [1_017, 'counted: ended at acme succeeded after 1017 ms'],
    [1_017, 'counted: end detected after 506 ms'],
    [1_017, 'capture 1'],
    [1_023, 'row 1: settled'],
  ]);
  assert.equal(rig.row(1).payment_id, 'P-1');
  assert.equal(rig.dispatcher.payments.size, 0);
  assert.equal(rig.time.sleeping, 0, 'something still waits for a payment that is over');
});

test('funds that are collected elsewhere are never asked for, and the end is the last write [PL7]', async () => {
  const rig = dispatcherRig();
  rig.dispatcher.add(rig.pay(1, { funding_method: 'elsewhere' }));
  await rig.run(60_000);
  assert.deepEqual(rig.read(DEEDS), [
    'row 1: created > dispatching',
    'put 1',
    'row 1: dispatching > accepted',
    'get 1',
    'row 1: accepted > ended, succeeded by partner, settles',
  ]);
  assert.equal(rig.dispatcher.payments.size, 0);
});

test('a payment is dispatching when its put leaves, not while it waits for a place [PL1]', async () => {
  const rig = dispatcherRig();
  const acme = partnerCalled('acme');
  rig.register({ ...acme, budget: { ...acme.budget, max_concurrent_calls: 1 } });
  rig.give('acme', 1);
  for (let payment = 1; payment <= 5; payment += 1) rig.dispatcher.add(rig.pay(payment));
  await rig.run(3 * CALL_MS);
  const story = rig.read(/./);
  const sent = story.filter((what) => what.startsWith('put')).length;
  assert.ok(sent > 0 && sent < 5, `${sent} were sent`);
  // One may be written whose put leaves next.
  assert.ok(story.filter((what) => what.includes('> dispatching')).length <= sent + 1);
  assert.equal(story.filter((what) => what.startsWith('authorize')).length, 5);
});

test('what is begun is finished first: authorizations run at most 256 ahead of the puts, and a capture waits for none of them [PL7 LV4]', async () => {
  const rig = dispatcherRig();
  for (let payment = 1; payment <= 3_000; payment += 1) rig.dispatcher.add(rig.pay(payment));
  const count = { authorize: 0, put: 0, capture: 0, ended: 0 };
  for (let tens = 0; tens < 300; tens += 1) {
    await rig.run(10);
    for (const line of rig.read(DEEDS)) {
      const [deed = ''] = line.split(' ');
      if (deed in count) count[deed as 'put'] += 1;
      if (line.includes('> ended')) count.ended += 1;
    }
    const { authorize, put, capture, ended } = count;
    assert.ok(authorize - put <= 256 + 8, `${authorize} authorized, ${put} put`);
    assert.ok(ended - capture <= 16, `${ended} ended, ${capture} captured`);
  }
  assert.ok(count.capture > 500, `${count.capture} captured`);
});

test('a slow biller of an aggregator delays no other: what runs ahead is bounded for each, and they take turns [PL16 LV4]', async () => {
  const rig = dispatcherRig();
  rig.script = ({ order }) => (order.biller_id === 'slow' ? { afterMs: 14_000 } : undefined);
  for (let payment = 1; payment <= 1_000; payment += 1)
    rig.dispatcher.add(rig.pay(payment, { biller_id: 'slow' }));
  await rig.run(5_000);
  const ahead = rig.read(/^authorize/).length;
  assert.ok(ahead <= 256 + 8, `${ahead} of the slow biller were authorized`);
  rig.dispatcher.add(rig.pay(1_001, { biller_id: 'quick' }));
  await rig.run(1_000);
  assert.deepEqual(rig.read(/^(?:authorize|put) 1001$/), ['authorize 1001', 'put 1001']);
});

test('a hold that expires while its payment waits is asked for again before anything is sent [PL7]', async () => {
  const rig = dispatcherRig();
  rig.partners.set('acme', partnerCalled('acme', { paused: true }));
  let expires_at = rig.time.now() + HOLD_MARGIN_MS + 60_000;
  rig.onAuthorize = () =>
    expires_at > rig.time.now() + HOLD_MARGIN_MS
      ? { kind: 'authorized', expires_at }
      : { kind: 'declined', reason: 'It expired.' };
  rig.dispatcher.add(rig.pay(1));
  await rig.run(61_000);
  // The host's clock steps back: the hold has expired all the same.
  rig.time.stepWallClock(-600_000);
  expires_at = 0;
  rig.partners.set('acme', partnerCalled('acme'));
  await rig.run(10_000);
  rig.time.stepWallClock(600_000);
  assert.deepEqual(rig.read(/^(?:put|row|authorize)/), [
    'authorize 1',
    'row 1: created > authorized, held',
    'authorize 1',
    'row 1: authorized > ended, failed by funding',
  ]);
  // One that the processor extends is sent.
  rig.partners.set('acme', partnerCalled('acme', { paused: true }));
  expires_at = rig.time.now() + HOLD_MARGIN_MS + 60_000;
  rig.dispatcher.add(rig.pay(2));
  await rig.run(61_000);
  expires_at += 3_600_000;
  rig.partners.set('acme', partnerCalled('acme'));
  await rig.run(10_000);
  assert.deepEqual(rig.read(/^(?:put|authorize) 2/), ['authorize 2', 'authorize 2', 'put 2']);
});

test('a customer is told when the partner has the payment, when it stops in review and when it ends, and of nothing else', async () => {
  const rig = dispatcherRig();
  rig.script = ({ kind, payment }) =>
    kind === 'get' && payment === 2 ? { fields: { amount_in_cents: 1 } } : undefined;
  rig.partners.set('acme', partnerCalled('acme', { paused: true }));
  rig.dispatcher.add(rig.pay(1));
  rig.dispatcher.add(rig.pay(2));
  await rig.run(1_000);
  assert.deepEqual(rig.read(/^(?:row|told)/), [
    'row 1: created > authorized, held',
    'row 2: created > authorized, held',
  ]);
  rig.partners.set('acme', partnerCalled('acme'));
  await rig.run(60_000);
  assert.deepEqual(rig.read(/ 1\b.*(?:>|told)|^told of 1/), [
    'row 1: authorized > dispatching',
    'row 1: dispatching > accepted',
    'told of 1',
    'row 1: accepted > ended, succeeded by partner',
    'told of 1',
  ]);
});

// Adding ---------------------------------------------------------------------------------------------------------------

test('a payment that is handed over twice is put once, and one in no slot not at all', async () => {
  const rig = dispatcherRig();
  const row = rig.pay(1, { stage: 'dispatching' });
  const isNew = [row, row, rig.loaded(1), rig.pay(2, { stage: 'dispatching', slot: null })].map(
    (one) => rig.dispatcher.add(one),
  );
  assert.deepEqual(isNew, [true, false, false, false]);
  assert.equal(rig.dispatcher.payments.size, 1);
  assert.deepEqual(
    [idOf(1), idOf(2)].map((id) => rig.dispatcher.payments.has(id)),
    [true, false],
  );
  await rig.run(500);
  assert.deepEqual(rig.read(SENT), ['put 1']);
  await rig.run(5_000);
  assert.equal(rig.dispatcher.payments.has(idOf(1)), false);
});

test('the oldest payment and those that are older than a day are told, in whatever form they wait', async () => {
  const rig = dispatcherRig();
  assert.deepEqual(rig.dispatcher.ages(), { oldestSeconds: 0, overdue: 0 });
  const day = 24 * 3_600_000;
  for (const [index, age] of [day + 1, day, 5_000, 2 * day].entries()) {
    rig.pay(index + 1, {
      stage: 'accepted',
      payment_id: `P-${index + 1}`,
      created_at: new Date(BEGAN - age).toISOString(),
      accepted_at: new Date(BEGAN - age).toISOString(),
    });
    rig.dispatcher.add(rig.loaded(index + 1), 10_000);
  }
  assert.deepEqual(rig.dispatcher.ages(), { oldestSeconds: 172_800, overdue: 2 });
  await rig.run(1);
  assert.deepEqual(rig.dispatcher.ages(), { oldestSeconds: 172_800.001, overdue: 3 });
});

test('a new payment may begin as dispatching only where nothing is reserved and its put can leave at once', () => {
  const rig = dispatcherRig();
  const here = { funding_method: 'elsewhere' };
  const acme = partnerCalled('acme');
  assert.equal(rig.dispatcher.canSendNow(acme, here), true);
  assert.equal(rig.dispatcher.canSendNow({ ...acme, paused: true }, here), false);
  assert.equal(rig.dispatcher.canSendNow(acme, { funding_method: 'processor' }), false);
  rig.dispatcher.partnerOf('acme').queue.closeUntil(UPTIME + 1_000);
  assert.equal(rig.dispatcher.canSendNow(acme, here), false);
  assert.equal(rig.dispatcher.canSendNow(partnerCalled('new'), here), true);
});

// The acceptance ---------------------------------------------------------------------------------------------------------

test('a payment that ends at a first poll within 50 ms costs one write, which is also its acceptance', async () => {
  const rig = dispatcherRig({ pollMs: 20 });
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(1_000);
  assert.deepEqual(rig.read(ROWS), [
    'row 1: dispatching > ended, succeeded by partner',
    'row 1: settled',
  ]);
  assert.equal(rig.row(1).payment_id, 'P-1');
});

test('acceptances are written once they are 50 ms old, at most every 10 ms, those that came together in one statement', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 60_000;
  const statements: unknown[] = [];
  rig.onStatement = (name, payments) => {
    statements.push([rig.time.monotonic() - STATEMENT_MS, name, payments]);
  };
  const after: Record<number, number> = { 1: 5, 2: 5, 3: 8, 4: 40 };
  rig.script = ({ kind, payment }) =>
    kind === 'put' ? { afterMs: after[payment] ?? 0 } : undefined;
  for (const payment of [1, 2, 3, 4])
    rig.dispatcher.add(rig.pay(payment, { stage: 'dispatching' }));
  await rig.run(45);
  assert.equal(rig.time.sleeping, 2, 'one wait for the next poll, and one for the next write');
  await rig.run(455);
  assert.deepEqual(statements, [
    [55, 'payment_advance', [1, 2]],
    [65, 'payment_advance', [3]],
    [90, 'payment_advance', [4]],
  ]);
  // The next begins anew.
  rig.dispatcher.add(rig.pay(5, { stage: 'dispatching' }));
  await rig.run(500);
  assert.deepEqual(statements.slice(3), [[550, 'payment_advance', [5]]]);
});

test('an end that is found while the acceptance is being written waits for it, and is then written once', async () => {
  const rig = dispatcherRig({ pollMs: 70 });
  rig.onStatement = (name) => (name === 'payment_advance' ? rig.time.sleep(500) : undefined);
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(5_000);
  assert.deepEqual(rig.readTimes(/^(?:get|row)/), [
    [75, 'get 1'],
    [556, 'row 1: dispatching > accepted'],
    [557, 'row 1: accepted > ended, succeeded by partner'],
    [563, 'row 1: settled'],
  ]);
});

test('an acceptance that cannot be written leads to the same put again, and delays no other payment [RU5 PL2]', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 500;
  const orders: unknown[] = [];
  rig.script = ({ kind, payment, order }) => {
    if (kind === 'put' && payment === 1) orders.push(order);
    return undefined;
  };
  let failures = 1;
  rig.onStatement = (name, payments) => {
    if (name !== 'payment_advance' || !payments.includes(1) || failures === 0) return;
    // The statement of both fails, and then that of this payment alone.
    if (payments.length === 1) failures -= 1;
    throw new TypeError('a bug');
  };
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  rig.dispatcher.add(rig.pay(2, { stage: 'dispatching' }));
  await rig.run(10_000);
  assert.deepEqual(rig.read(/(?:put|row|get|error|told of) ?:?.*1/), [
    'put 1',
    'error: could not write an acceptance | 1 | a bug',
    'put 1',
    'row 1: dispatching > accepted',
    'told of 1',
    'get 1',
    'row 1: accepted > ended, succeeded by partner',
    'told of 1',
    'row 1: settled',
  ]);
  assert.equal(orders.length, 2);
  assert.deepEqual(orders[0], orders[1]);
});

// Rows that others change ------------------------------------------------------------------------------------------------

test('a payment whose row another has changed is driven on from its row if it is still this worker’s, else dropped [PL10]', async () => {
  const changes: Record<string, { readonly change: (rig: Rig) => void; readonly told: string[] }> =
    {
      'withdrawn by an operator': {
        change: (rig) =>
          Object.assign(rig.row(1), { status: 'canceled', stage: 'ended', ended_by: 'operator' }),
        told: ['told of 1', 'void 1', 'row 1: settled'],
      },
      'withdrawn and settled': {
        change: (rig) =>
          Object.assign(rig.row(1), { status: 'canceled', stage: 'ended', settled_at: 'now' }),
        told: [],
      },
      'put into review': {
        change: (rig) => Object.assign(rig.row(1), { stage: 'review', slot: null }),
        told: [],
      },
      'taken by another worker': {
        change: (rig) => rig.owners.set(1, 'worker-2'),
        told: [],
      },
      'taken by another worker, which has ended it': {
        change: (rig) => {
          rig.owners.set(1, 'worker-2');
          Object.assign(rig.row(1), { status: 'succeeded', stage: 'ended' });
        },
        told: [],
      },
      deleted: { change: (rig) => rig.rows.delete(idOf(1)), told: [] },
      'written by an attempt whose answer was lost': {
        change: (rig) => Object.assign(rig.row(1), { stage: 'dispatching' }),
        told: ['told of 1', 'put 1', 'row 1: dispatching > accepted', 'told of 1'],
      },
    };
  for (const [what, { change, told }] of Object.entries(changes)) {
    const rig = dispatcherRig();
    rig.settleMs = 60_000;
    rig.onAuthorize = () => {
      change(rig);
      return { kind: 'authorized' };
    };
    const forgotten = rig.dispatcher.payments.watchForgotten();
    rig.dispatcher.add(rig.pay(1));
    await rig.run(900);
    assert.deepEqual(rig.read(/^(?:put|row|void|told|error)/), told, what);
    assert.equal(rig.dispatcher.payments.size, what.startsWith('written') ? 1 : 0, what);
    assert.deepEqual([...forgotten].includes(idOf(1)), true, what);
  }
});

// Errors -----------------------------------------------------------------------------------------------------------------

test('a bug met by one payment is logged, retried half a minute later, and keeps no place of its partner [LV3]', async () => {
  const rig = dispatcherRig();
  rig.give('acme', 1);
  let bugs = 1;
  rig.onGet = () => {
    if (bugs === 0) return;
    bugs -= 1;
    throw new TypeError('a bug');
  };
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  rig.dispatcher.add(rig.pay(2, { stage: 'dispatching' }));
  await rig.run(60_000);
  assert.deepEqual(rig.readTimes(/^(?:put|error)/), [
    [0, 'error: a payment met an error; retrying | 1 | a bug'],
    [0, 'put 2'],
    [30_000, 'put 1'],
  ]);
  assert.deepEqual([rig.row(1).status, rig.row(2).status], ['succeeded', 'succeeded']);
  assert.equal(rig.dispatcher.payments.size, 0);
});

// Funding ----------------------------------------------------------------------------------------------------------------

test('a processor that never answers is given fifteen seconds and asked again; it delays no other payment [LV3 PL7]', async () => {
  const rig = dispatcherRig();
  let isHung = true;
  rig.onAuthorize = ({ platform_payment_id }) =>
    isHung && platform_payment_id === idOf(1)
      ? new Promise(() => undefined)
      : { kind: 'authorized' };
  rig.dispatcher.add(rig.pay(1));
  rig.dispatcher.add(rig.pay(2));
  await rig.run(14_999);
  assert.deepEqual(rig.read(/^(?:authorize|error|put)/), ['authorize 1', 'authorize 2', 'put 2']);
  isHung = false;
  await rig.run(5_000);
  const told = rig.readTimes(/^(?:authorize|error|put)/);
  assert.match(String(told[0]), /^15000,error: the funding port failed; retrying \| 1 \| Error/);
  // The first retry of anything comes after 250 ms at most.
  assert.deepEqual(told.slice(1), [
    [15_188, 'authorize 1'],
    [15_194, 'put 1'],
  ]);
});

test('a processor that fails is asked again and again, later and later; the log tells it once, and never its message [PL15]', async () => {
  const rig = dispatcherRig();
  let isDown = true;
  rig.onAuthorize = () => {
    if (isDown) throw new Error('card 4111 refused');
    return { kind: 'authorized' };
  };
  rig.dispatcher.add(rig.pay(1));
  await rig.run(9_000);
  const story = rig.readTimes();
  assert.deepEqual(
    story.filter(([, what]) => what === 'authorize 1').map(([at]) => at),
    [0, 193, 573, 1_328, 2_833, 5_838],
  );
  assert.deepEqual(
    story
      .filter(([, what]) => what.startsWith('error'))
      .map(([at, what]) => [at, what.split(' | ').slice(0, 2)]),
    [
      [5, ['error: the funding port failed; retrying', '1']],
      [2_838, ['error: the funding method fails every call; retrying', 'processor']],
    ],
  );
  assert.ok(!story.some(([, what]) => what.includes('4111')));
  isDown = false;
  await rig.run(60_000);
  assert.deepEqual(rig.read(/^(?:error|info)/), [
    'info: the funding method answers again | processor',
  ]);
});

test('declined funds end a payment before anything is sent, and a customer who has to approve is waited for', async () => {
  const rig = dispatcherRig();
  let asked = 0;
  rig.onAuthorize = ({ platform_payment_id }) => {
    if (platform_payment_id === idOf(1)) return { kind: 'declined', reason: 'no money' };
    asked += 1;
    return asked < 3 ? { kind: 'waits', afterMs: 4_000 } : { kind: 'authorized' };
  };
  rig.dispatcher.add(rig.pay(1));
  await rig.run(1_000);
  assert.deepEqual(rig.read(), [
    'authorize 1',
    'row 1: created > ended, failed by funding',
    'told of 1',
    'counted: ended at acme failed after 6 ms',
  ]);
  assert.equal(rig.row(1).failure_reason, 'no money');
  assert.equal(rig.time.sleeping, 0, 'the deadline of a call that was answered');
  assert.equal(rig.dispatcher.payments.size, 0);
  assert.deepEqual(learnt(rig), []);
  rig.dispatcher.add(rig.pay(2));
  await rig.run(9_000);
  assert.deepEqual(rig.readTimes(/^(?:authorize|put)/), [
    [1_000, 'authorize 2'],
    [5_005, 'authorize 2'],
    [9_010, 'authorize 2'],
    [9_016, 'put 2'],
  ]);
});

// The partner as a whole -------------------------------------------------------------------------------------------------

test('a partner that fails is logged and counted once, noted for an operator while it stays down, and all that ends with its first answer [LV3 LV8]', async () => {
  const text =
    'The partner does not answer, or answers with errors; one call at a time is tried until one succeeds.';
  for (const down of [{ status: 500 }, { lost: 'connection' }] as const) {
    const rig = dispatcherRig();
    let isDown = true;
    rig.script = () => (isDown ? down : undefined);
    for (const payment of [1, 2, 3, 4, 5])
      rig.dispatcher.add(rig.pay(payment, { stage: 'dispatching' }));
    await rig.run(CALL_MS + 1);
    assert.deepEqual(rig.read(/^(?:hold|counted: acme|error)/).slice(1), [
      'counted: acme is broken',
    ]);
    await rig.run(60_000);
    assert.deepEqual([...new Set(rig.read(/^hold/))], [`hold of acme noted by ${ME}: ${text}`]);
    isDown = false;
    await rig.run(10_000);
    assert.deepEqual(rig.read(/^counted: acme/), ['counted: acme is whole']);
    assert.equal(rig.dispatcher.payments.size, 0);
    assert.equal(rig.partners.get('acme')?.pause_reason, null);
  }
  // What an operator has to act on is not hidden by the failures that follow it.
  const rig = dispatcherRig();
  let said: { status: number } = { status: 401 };
  rig.script = () => said;
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(10_000);
  said = { status: 500 };
  await rig.run(1_200_000);
  assert.match(rig.partners.get('acme')?.pause_reason ?? '', /refuses the credentials/);
});

test('however many answers ask for it, one note of a hold is under way, and in the end the last of them stands [LV3 LV6]', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 3_600_000;
  let isRefused = true;
  rig.script = () => (isRefused ? { status: 401 } : undefined);
  let release = (): void => undefined;
  rig.onHold = () => new Promise((resolve) => (release = resolve));
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  rig.dispatcher.add(rig.pay(2, { stage: 'dispatching' }));
  await rig.run(1_000);
  isRefused = false;
  await rig.run(180_000);
  assert.equal(rig.read(/^hold/).length, 1, 'the partner answers again while its row is locked');
  release();
  await rig.run(0);
  assert.deepEqual(rig.read(/^hold/), [`hold of acme noted by ${ME}: null`]);
  release();
  await rig.run(0);
  assert.equal(rig.partners.get('acme')?.pause_reason, null);
  isRefused = true;
  rig.dispatcher.add(rig.pay(3, { stage: 'dispatching' }));
  await rig.run(60_000);
  assert.equal(rig.read(/^hold/).length, 1, 'the next refusals are noted as the first were');
});

test('an answer makes room for the next call at once, before it is recorded', async () => {
  const rig = dispatcherRig({ pollMs: 20 });
  rig.give('acme', 1);
  rig.onStatement = () => rig.time.sleep(500);
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(28);
  rig.dispatcher.add(rig.pay(2, { stage: 'dispatching' }));
  await rig.run(10);
  assert.deepEqual(rig.readTimes(SENT), [
    [0, 'put 1'],
    [25, 'get 1'],
    [30, 'put 2'],
  ]);
});

// Waiting reads ----------------------------------------------------------------------------------------------------------

test('a read that the partner holds replaces polls, and the next follows at once; half of the places stay free', async () => {
  const rig = dispatcherRig();
  rig.partners.set('acme', partnerCalled('acme', { wait_seconds: 10 }));
  rig.holdsReads = true;
  rig.settleMs = 25_000;
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(60_000);
  assert.deepEqual(rig.readTimes(/^(?:put|get|row)/), [
    [0, 'put 1'],
    [CALL_MS, 'get 1, waits 10 s'],
    [56, 'row 1: dispatching > accepted'],
    [10_005, 'get 1, waits 10 s'],
    [20_005, 'get 1, waits 10 s'],
    [25_006, 'row 1: accepted > ended, succeeded by partner'],
    [25_012, 'row 1: settled'],
  ]);
  const queue = rig.dispatcher.partnerOf('acme');
  assert.deepEqual([queue.waits, queue.waiting], [true, 0]);
  for (let payment = 2; payment <= 9; payment += 1)
    rig.dispatcher.add(rig.pay(payment, { stage: 'dispatching' }));
  await rig.run(500);
  assert.equal(rig.read(/^get ., waits/).length, 4);
  assert.equal(queue.waiting, 4);
});

// What is learnt of a partner's times ------------------------------------------------------------------------------------

test('the times of a partner are learnt from its own clock where our polls do not contradict it', async () => {
  const ended = (status: string, ms: number | null): Record<string, string | null> => ({
    status,
    initiated_at: new Date(BEGAN + CALL_MS).toISOString(),
    posted_at: ms === null ? null : new Date(BEGAN + CALL_MS + ms).toISOString(),
  });
  const cases: Record<
    string,
    {
      readonly gets: readonly (Record<string, unknown> | undefined)[];
      readonly times: readonly number[];
      readonly waits?: boolean;
      readonly chance?: number;
    }
  > = {
    // The first poll is due 1,000 ms after the acceptance, the second 2,605 ms after it.
    'by its clock': { gets: [{ fields: ended('succeeded', 321) }], times: [321] },
    'posted after the poll was due, as if by the poll': {
      gets: [{ fields: ended('succeeded', 1_000) }],
      times: [],
    },
    'dated back before the poll that found it processing': {
      gets: [undefined, { fields: ended('succeeded', 10) }],
      times: [],
    },
    'failed, which has no time': {
      gets: [undefined, { fields: ended('failed', null) }],
      times: [],
    },
    'failed after a read that was held until then': {
      waits: true,
      gets: [{ fields: ended('failed', null), afterMs: 4_000, waited: true }],
      times: [4_000],
    },
    'found by a call that was a retry: by its clock alone': {
      gets: [{ lost: 'connection' }, { fields: ended('succeeded', 1_150) }],
      times: [1_150],
    },
    'failed, found by a retry: nothing': {
      gets: [{ lost: 'connection' }, { fields: ended('failed', null) }],
      times: [],
    },
  };
  for (const [what, { gets, times, waits = false, chance = 0.5 }] of Object.entries(cases)) {
    const rig = dispatcherRig();
    rig.chance = chance;
    if (waits) rig.partners.set('acme', partnerCalled('acme', { wait_seconds: 10 }));
    rig.settleMs = 3_600_000;
    const left = [...gets];
    rig.script = ({ kind }) => (kind === 'get' ? left.shift() : undefined);
    rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
    await rig.run(10_000);
    assert.equal(left.length, 0, what);
    assert.equal(rig.dispatcher.payments.size, 0, what);
    assert.deepEqual(learnt(rig), times, what);
  }
});

// Leaving slots, losing the lease, stopping ------------------------------------------------------------------------------

test('without its lease a worker neither sends nor writes, even where it had begun to [LV1 PL10]', async () => {
  const rig = dispatcherRig();
  rig.onStatement = () => {
    rig.leaseHolds = false;
  };
  // The write succeeds, and the lease ends with it.
  rig.dispatcher.add(rig.pay(1, { funding_method: 'elsewhere' }));
  await rig.run(5_000);
  assert.deepEqual(rig.read(DEEDS), ['row 1: created > dispatching']);
  assert.equal(rig.dispatcher.payments.size, 0);
  rig.leaseHolds = true;
  rig.onGet = () => {
    rig.leaseHolds = false;
  };
  rig.dispatcher.add(rig.pay(2, { funding_method: 'elsewhere' }));
  rig.dispatcher.add(rig.pay(3, { stage: 'dispatching' }));
  await rig.run(5_000);
  assert.deepEqual(rig.read(DEEDS), []);
  assert.equal(rig.dispatcher.payments.size, 0);
});

test('a stop records what is under way, sends nothing more, and leaves no timer behind [LV5]', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 600_000;
  rig.script = ({ kind, payment }) =>
    kind === 'put' && payment === 1 ? { afterMs: 300 } : undefined;
  for (const payment of [1, 2, 3]) rig.dispatcher.add(rig.pay(payment, { stage: 'dispatching' }));
  rig.pay(4, { stage: 'dispatching' });
  rig.dispatcher.add(rig.loaded(4), 250);
  await rig.run(20);
  let stoppedAt: number | undefined;
  void rig.dispatcher.finish(8_000).then(() => (stoppedAt = rig.time.monotonic()));
  rig.dispatcher.add(rig.pay(5, { stage: 'dispatching' }));
  await rig.run(290);
  assert.equal(stoppedAt, 301);
  assert.deepEqual(rig.readTimes(/^(?:put|get|row|error|warn)/), [
    [0, 'put 1'],
    [0, 'put 2'],
    [0, 'put 3'],
    [21, 'row 2: dispatching > accepted'],
    [21, 'row 3: dispatching > accepted'],
    [301, 'row 1: dispatching > accepted'],
  ]);
  assert.equal(rig.time.sleeping, 0);
  assert.equal(rig.dispatcher.payments.size, 0);
  assert.ok(rig.dispatcher.signal.aborted);
  await rig.run(60_000);
  assert.deepEqual(rig.read(), []);
});

test('a stop does not wait for reads that are held open, and gives up what takes longer than its time [LV5]', async () => {
  const rig = dispatcherRig();
  rig.partners.set('acme', partnerCalled('acme', { wait_seconds: 10 }));
  rig.holdsReads = true;
  rig.settleMs = 600_000;
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  await rig.run(1_000);
  assert.deepEqual(rig.read(/^get/), ['get 1, waits 10 s']);
  let stoppedAt: number | undefined;
  void rig.dispatcher.finish(8_000).then(() => (stoppedAt = rig.time.monotonic()));
  await rig.run(1);
  assert.equal(stoppedAt, 1_000);
  assert.deepEqual(rig.read(/^(?:get|error|row)/), []);

  const slow = dispatcherRig();
  slow.script = () => ({ afterMs: 15_000 });
  slow.dispatcher.add(slow.pay(1, { stage: 'dispatching' }));
  slow.onAuthorize = () => new Promise(() => undefined);
  slow.dispatcher.add(slow.pay(2));
  await slow.run(100);
  void slow.dispatcher.finish(2_000).then(() => (stoppedAt = slow.time.monotonic()));
  await slow.run(1_999);
  assert.equal(stoppedAt, 1_000);
  await slow.run(1);
  assert.equal(stoppedAt, 2_100);
  assert.equal(slow.time.sleeping, 0);
  assert.deepEqual(slow.read(/^error/), [], 'the stop is no fault of the processor');
});

test('a worker that loses its lease drops everything at once: no call, no write, no timer, no count is left', async () => {
  const rig = dispatcherRig();
  rig.settleMs = 600_000;
  rig.partners.set('acme', partnerCalled('acme', { wait_seconds: 10 }));
  rig.holdsReads = true;
  rig.script = ({ payment }) => (payment === 2 ? { afterMs: 5_000 } : undefined);
  rig.pay(5, { stage: 'accepted', payment_id: 'P-5', accepted_at: new Date(BEGAN).toISOString() });
  rig.dispatcher.add(rig.loaded(5));
  rig.dispatcher.add(rig.pay(1, { stage: 'dispatching' }));
  rig.dispatcher.add(rig.pay(2, { stage: 'dispatching' }));
  rig.dispatcher.add(rig.pay(3));
  rig.pay(4, { stage: 'dispatching' });
  rig.dispatcher.add(rig.loaded(4), 1_000);
  await rig.run(3);
  rig.dispatcher.add(rig.pay(8, { stage: 'dispatching' }));
  await rig.run(3);
  assert.ok(rig.read().includes('get 5, waits 10 s'));
  rig.dispatcher.drop();
  assert.equal(rig.dispatcher.payments.size, 0);
  rig.dispatcher.add(rig.pay(6, { stage: 'dispatching' }));
  rig.read();
  await rig.run(2 * STATEMENT_MS);
  assert.equal(rig.time.sleeping, 0);
  await rig.run(60_000);
  assert.deepEqual(rig.read(/^(?:put|get|row|authorize|told|error)/), []);
  assert.equal(rig.dispatcher.payments.size, 0);
});
