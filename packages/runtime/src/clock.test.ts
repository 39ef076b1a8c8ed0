import assert from 'node:assert/strict';
import test from 'node:test';
import { systemClock } from './clock.ts';

test('a sleep longer than a timer can count does not end at once', async () => {
  const abort = new AbortController();
  let ended = false;
  const sleep = systemClock.sleep(2 ** 33, abort.signal).then(() => (ended = true));
  await systemClock.sleep(20);
  assert.equal(ended, false);
  abort.abort();
  await sleep;
});

test('an aborted sleep ends early and without an error, whether aborted before or during', async () => {
  const start = systemClock.monotonic();
  await systemClock.sleep(60_000, AbortSignal.abort());
  await systemClock.sleep(60_000, AbortSignal.timeout(5));
  for (const ms of [0, -1, Number.NaN]) await systemClock.sleep(ms);
  assert.ok(systemClock.monotonic() - start < 30_000);
});

test('a sleep lasts as long as it says', async () => {
  const start = systemClock.monotonic();
  await systemClock.sleep(30);
  assert.ok(systemClock.monotonic() - start >= 30);
});
