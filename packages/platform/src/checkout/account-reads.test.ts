import assert from 'node:assert/strict';
import test from 'node:test';
import { manualClock } from '@duebridge/runtime/testing';
import type { AccountOutcome } from '../partners/client.ts';
import type { Partner } from '../partners/registry.ts';
import { openAccountReads } from './account-reads.ts';

const partner = {
  partner_id: 'p',
  budget: { max_calls_per_second: 5, max_concurrent_calls: 4, call_timeout_ms: 5_000 },
} as Partner;
const account = (account_id: string) => ({ biller_id: 'b', account_id });

function rig() {
  const clock = manualClock();
  const calls: PromiseWithResolvers<AccountOutcome>[] = [];
  const reads = openAccountReads({
    clock,
    client: {
      getAccount() {
        const call = Promise.withResolvers<AccountOutcome>();
        calls.push(call);
        return call.promise;
      },
      getBalance: () => Promise.resolve({ kind: 'not_found' }),
    },
  });
  return { clock, calls, reads };
}

test('readers of one account at the same time share one call, and the next one asks anew', async () => {
  const { calls, reads } = rig();
  const readers = Array.from({ length: 54 }, () => reads.getAccount(partner, account('a')));
  assert.equal(calls.length, 1);
  calls[0]?.resolve({ kind: 'not_found' });
  assert.deepEqual(
    new Set((await Promise.all(readers)).map(({ kind }) => kind)),
    new Set(['not_found']),
  );
  const later = reads.getAccount(partner, account('a'));
  assert.equal(calls.length, 2);
  calls[1]?.resolve({ kind: 'not_found' });
  await later;
});

test('a call that is about to be given up is not shared with a reader who waits longer', async () => {
  const { clock, calls, reads } = rig();
  void reads.getAccount(partner, account('a'), { deadlineMs: 1_500 });
  await clock.advance(1_000);
  void reads.getAccount(partner, account('a'), { deadlineMs: 5_000 });
  assert.equal(calls.length, 2);
});

test('the reads of a partner stay within its calls a second, and another partner has its own', async () => {
  const { clock, calls, reads } = rig();
  let n = 0;
  const outcomes: string[] = [];
  const read = (from: Partner): void => {
    n += 1;
    void reads.getAccount(from, account(`a${n}`)).then((outcome) => outcomes.push(outcome.kind));
  };
  for (let second = 0; second < 10; second += 1) {
    for (let some = 0; some < 54; some += 1) read(partner);
    await clock.advance(1_000);
  }
  assert.ok(calls.length <= 5 * 11, `${calls.length} calls in 10 s`);
  assert.ok(calls.length >= 50, `${calls.length} calls in 10 s`);
  assert.equal(outcomes.length, 540 - calls.length, 'the others are answered at once');
  const before = calls.length;
  read({ ...partner, partner_id: 'q' });
  assert.equal(calls.length, before + 1);
});
