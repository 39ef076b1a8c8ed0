import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertInTime, unlessTooSlow } from './real-time.ts';

test('a slow machine is forgiven a missed limit of real time, and nothing else', async () => {
  const late = (): void => assertInTime(false, 'too late');
  const skipped: (string | undefined)[] = [];
  const t = { skip: (why?: string) => void skipped.push(why) };
  await unlessTooSlow(t, late, () => 3.14);
  assert.deepEqual(skipped, ['this machine is 3.1 times too slow']);
  await assert.rejects(
    unlessTooSlow(t, late, () => 1.5),
    /too late/,
  );
  const wrong = (): void => assert.equal(1, 2);
  await assert.rejects(
    unlessTooSlow(t, wrong, () => 3.14),
    assert.AssertionError,
  );
  await unlessTooSlow(t, () => assertInTime(true, 'in time'), late as never);
  assert.equal(skipped.length, 1);
});
