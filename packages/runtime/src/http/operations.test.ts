import assert from 'node:assert/strict';
import test from 'node:test';
import { manualClock } from '../../test/testing.ts';
import { mountOperations } from './operations.ts';
import { createServer } from './server.ts';
import { listening } from '../../test/http.ts';

test('the API page cannot be framed, has no form and sends no referrer', async (t) => {
  const { base } = await listening(t, {}, (app) => mountOperations(app, { openapi: {} }));
  const { headers } = await fetch(`${base}/docs`);
  const policy = headers.get('content-security-policy')?.split('; ') ?? [];
  for (const directive of [
    "default-src 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ]) {
    assert.ok(policy.includes(directive), directive);
  }
  assert.equal(headers.get('referrer-policy'), 'no-referrer');
});

test('readiness names what is missing, and is checked once a second however many ask', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  const clock = manualClock();
  let database = true;
  let looked = 0;
  const ready = (): Promise<Record<string, boolean>> => {
    looked += 1;
    return Promise.resolve({ database });
  };
  mountOperations(app, { ready, clock });
  const all = await Promise.all(Array.from({ length: 50 }, () => app.inject('/readyz')));
  assert.ok(all.every(({ statusCode }) => statusCode === 200));
  assert.equal(looked, 1);
  database = false;
  await clock.advance(999);
  assert.equal((await app.inject('/readyz')).statusCode, 200);
  await clock.advance(1);
  const response = await app.inject('/readyz');
  assert.equal(response.statusCode, 503);
  assert.deepEqual(response.json(), { ready: false, checks: { database: false } });
  assert.equal(looked, 2);
});
