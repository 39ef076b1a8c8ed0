import assert from 'node:assert/strict';
import test from 'node:test';
import { manualClock } from '../../test/testing.ts';
import { rateLimiter } from './rate-limiter.ts';

test('a bucket gives its burst, then its rate, and keeps no more keys than allowed', async () => {
  const clock = manualClock();
  const limiter = rateLimiter({ perSecond: 2, burst: 3, maxKeys: 2, clock });
  for (let taken = 0; taken < 3; taken += 1) assert.equal(limiter.take('a'), undefined);
  const refusal = limiter.take('a');
  assert.deepEqual(
    [refusal?.code, refusal?.headers],
    ['TOO_MANY_REQUESTS', { 'Retry-After': '1' }],
  );
  assert.equal(limiter.take('b'), undefined);
  await clock.advance(500);
  assert.deepEqual(
    [limiter.take('a')?.code, limiter.take('a')?.code],
    [undefined, 'TOO_MANY_REQUESTS'],
  );
  // A third key pushes out the one that was used least recently, which then starts full again.
  for (const key of ['b', 'c', 'a']) assert.equal(limiter.take(key), undefined);
});
