import assert from 'node:assert/strict';
import test from 'node:test';
import { mountOperations } from './operations.ts';
import { createServer } from './server.ts';
import { listening } from './testing.ts';

test('the page of the API is in nobody’s frame, has no form and tells nobody where it was', async (t) => {
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

test('readiness says what is missing', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  let database = true;
  mountOperations(app, { ready: () => Promise.resolve({ database }) });
  assert.equal((await app.inject('/readyz')).statusCode, 200);
  database = false;
  const response = await app.inject('/readyz');
  assert.equal(response.statusCode, 503);
  assert.deepEqual(response.json(), { ready: false, checks: { database: false } });
});
