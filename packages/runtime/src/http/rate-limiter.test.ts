import assert from 'node:assert/strict';
import test from 'node:test';
import { manualClock } from '../../test/testing.ts';
import { rateLimiter } from './rate-limiter.ts';

test('a bucket gives its burst, then its rate, and keeps no more keys than allowed', async () => {
  const clock = manualClock();
  const limiter = rateLimiter({ perSecond: 2, burst: 3, maxKeys: 2, clock });
  assert.deepEqual(
    [1, 2, 3].map(() => limiter.take('a').ok),
    [true, true, true],
  );
  assert.deepEqual(limiter.take('a'), { ok: false, retryAfterSeconds: 1 });
  assert.equal(limiter.take('b').ok, true);
  await clock.advance(500);
  assert.deepEqual([limiter.take('a').ok, limiter.take('a').ok], [true, false]);
  for (let key = 0; key < 100; key += 1) limiter.take(`k${key}`);
  assert.equal(limiter.size, 2);
});
