import assert from 'node:assert/strict';
import test from 'node:test';
import { CallPlaces, FairQueue, type OpenCall } from './call-places.ts';

/** A queue and its places; `call` begins as many calls as may begin, and returns whose they are. */
function places(concurrency: number) {
  const calls = new Set<OpenCall & { isLate: boolean }>();
  const limits = new CallPlaces(concurrency, calls);
  const queue = new FairQueue<{ payment: { biller_id: string; account_id: string } }>(limits);
  return {
    calls,
    limits,
    queue,
    wait: (owner: string, count: number): void => {
      const [biller_id = '', account_id = ''] = owner.split('/');
      for (let n = 0; n < count; n += 1) queue.push({ payment: { biller_id, account_id } });
      limits.note({ biller_id, account_id });
    },
    call: (): string[] => {
      const begun: string[] = [];
      while (limits.free() > 0) {
        const item = queue.take();
        if (!item) break;
        calls.add({ payment: item.payment, isLate: false });
        begun.push(`${item.payment.biller_id}/${item.payment.account_id}`);
      }
      return begun;
    },
    late: (): void => {
      for (const call of calls) call.isLate = true;
    },
  };
}

test('who comes first leaves places to who comes next; calls beyond their deadline have none [ST2 LV3]', () => {
  const { wait, call, late } = places(8);
  for (let account = 0; account < 90; account += 1) wait(`sick/${account}`, 1);
  assert.equal(call().length, 6);
  wait('other/1', 2);
  assert.deepEqual(call(), ['other/1']);
  late();
  assert.equal(call().length, 4);
  late();
  assert.deepEqual(call(), [], 'late calls of a biller are about as many as there are places');
});

test('billers that hang leave half of what is free to the others, one after the other [LV3]', () => {
  const known = places(8);
  known.limits.note({ biller_id: 'z', account_id: '1' });
  const shares = ['a', 'b', 'c', 'd'].map((biller) => {
    for (let account = 0; account < 9; account += 1) known.wait(`${biller}/${account}`, 1);
    return known.call().length;
  });
  assert.deepEqual(shares, [4, 2, 1, 1]);
});

test('an account that hangs leaves places to the others of its biller, and gets no call beside a late one [LV3]', () => {
  const { wait, call, late } = places(8);
  wait('acme/1', 100);
  assert.equal(call().length, 4);
  late();
  assert.deepEqual(call(), []);
  wait('acme/2', 2);
  assert.deepEqual(call(), ['acme/2', 'acme/2']);
});

test('a biller gets at most as many late calls as there are places [LV3]', () => {
  const { wait, call, late, limits } = places(4);
  limits.note({ biller_id: 'other', account_id: '1' });
  for (let account = 0; account < 50; account += 1) wait(`sick/${account}`, 1);
  let begun = 0;
  for (let round = 0; round < 10; round += 1) {
    begun += call().length;
    late();
  }
  assert.equal(begun, 4);
  wait('other/1', 1);
  assert.deepEqual(call(), ['other/1']);
});

test('billers take turns, and the accounts of each, so that a long queue delays only its own [ST2 LV3]', () => {
  const { wait, queue } = places(100);
  wait('a/1', 3);
  wait('a/2', 1);
  wait('b/1', 2);
  const order = Array.from({ length: 6 }, () => {
    return Object.values(queue.take()?.payment ?? {}).join('/');
  });
  assert.deepEqual(order, ['a/1', 'b/1', 'a/2', 'b/1', 'a/1', 'a/1']);
  assert.equal(queue.size, 0);
});

test('after a payment was posted, others of its account and then of its biller may come before their turn [LV3]', () => {
  const { wait, queue } = places(100);
  wait('a/1', 2);
  wait('b/1', 1);
  wait('b/2', 2);
  wait('c/1', 1);
  const posted = { biller_id: 'b', account_id: '2' };
  const order = Array.from({ length: 4 }, () => {
    return Object.values(queue.take(posted)?.payment ?? {}).join('/');
  });
  assert.deepEqual(order, ['b/2', 'b/2', 'b/1', '']);
  assert.equal(queue.size, 3);
});

test('with one place nothing can be left to others [LV3]', () => {
  const { wait, call, late } = places(1);
  wait('a/1', 1);
  wait('b/1', 1);
  assert.equal(call().length, 1);
  late();
  assert.equal(call().length, 1);
});
