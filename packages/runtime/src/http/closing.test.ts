import assert from 'node:assert/strict';
import test from 'node:test';
import { partnerRoutes } from '@duebridge/contract';
import { mount } from './mount.ts';
import { mountOperations } from './operations.ts';
import { path, record, listening } from '../../test/http.ts';

test('closing answers requests in progress and wakes waiting ones, then refuses connections [F82]', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const { app, base } = await listening(t, {}, (app) => {
    mount(app, partnerRoutes.get_balance, async () => {
      arrived.resolve();
      await release.promise;
      return { amount_due_in_cents: 1 };
    });
    mount(app, partnerRoutes.get_account_payment, async ({ signal }) => {
      if (!signal.aborted)
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return record;
    });
    mountOperations(app);
  });
  const waits = fetch(base + path);
  const slow = fetch(`${base}/biller/b/account/a/balance`);
  await arrived.promise;
  const closed = app.close();
  assert.equal((await waits).status, 200);
  release.resolve();
  const answer = await slow;
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('connection'), 'close');
  await closed;
  await assert.rejects(fetch(`${base}/healthz`));
});

test('closing is bounded in time: a request that never ends is cut off', async (t) => {
  const arrived = Promise.withResolvers<void>();
  const { app, base } = await listening(t, { limits: { closeTimeoutMs: 50 } }, (app) => {
    mount(app, partnerRoutes.get_balance, () => {
      arrived.resolve();
      return new Promise(() => undefined);
    });
  });
  const never = assert.rejects(fetch(`${base}/biller/b/account/a/balance`));
  await arrived.promise;
  await app.close();
  await never;
});

test('a handler learns that its client has gone', async (t) => {
  const gone = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const { base } = await listening(t, {}, (app) => {
    mount(app, partnerRoutes.get_balance, async ({ signal }) => {
      signal.addEventListener('abort', () => gone.resolve());
      arrived.resolve();
      await gone.promise;
      return {};
    });
  });
  const abort = new AbortController();
  const call = fetch(`${base}/biller/b/account/a/balance`, { signal: abort.signal });
  const failed = assert.rejects(call);
  await arrived.promise;
  abort.abort();
  await gone.promise;
  await failed;
});
