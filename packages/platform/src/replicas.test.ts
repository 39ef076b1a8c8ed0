import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import test, { after } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { FlowPayment, FlowSessionGrant } from '@duebridge/contract';
import { silentLog, systemClock, type Clock } from '@duebridge/runtime';
import { until } from '@duebridge/runtime/testing';
import { bearer, startTestPartner, startTestPlatform } from './checkout/testing.ts';
import { startPlatform, type Platform } from './server.ts';

const secrets = {
  sealKey: randomBytes(32).toString('base64'),
  keyPepper: randomBytes(32).toString('base64'),
  adminKey: 'admin-key-of-two-replicas',
};
const partner = await startTestPartner({ after });
const here = await startTestPlatform({ after }, secrets);
const there = await startReplica();
here.database.closing(() => there.stop());
const { partner_id } = await here.register(partner);
const credentials = await here.credentials(partner_id);

/** Another platform on the database of `here`. */
function startReplica(more: { readonly clock?: Clock } = {}): Promise<Platform> {
  return startPlatform({
    ...secrets,
    port: 0,
    adminPort: 0,
    databaseUrl: here.database.url,
    allowPrivateAddresses: true,
    log: silentLog,
    ...more,
  });
}

/** The same path at the other replica. */
function elsewhere(path: string, session: string, init: RequestInit = {}): Promise<Response> {
  return fetch(new URL(path, there.url), {
    ...init,
    headers: { ...bearer(session), 'content-type': 'application/json' },
    signal: AbortSignal.timeout(120_000),
  });
}

test('a token of one replica opens the flow at another, and both confirm the one payment [S4 TK1 PL11]', async () => {
  const made = await here.token(credentials);
  const exchanged = await elsewhere('/v1/flow/session', String(made.body['token']), {
    method: 'POST',
    body: '{}',
  });
  assert.equal(exchanged.status, 200);
  const { session, bill } = (await exchanged.json()) as FlowSessionGrant;
  const body = {
    amount_in_cents: 500,
    funding_method: 'sandbox_bank',
    platform_payment_id: bill?.next_payment_id,
  };
  const ids = await Promise.all(
    Array.from({ length: 20 }, async (_, turn) => {
      const answer =
        turn % 2 === 0
          ? await elsewhere('/v1/flow/payments', session, {
              method: 'POST',
              body: JSON.stringify(body),
            }).then((response) => response.json() as Promise<FlowPayment>)
          : ((await here.call('POST', '/v1/flow/payments', { headers: bearer(session), body }))
              .body as unknown as FlowPayment);
      return answer.platform_payment_id;
    }),
  );
  assert.equal(new Set(ids).size, 1);
});

test('a payment that one replica drives is followed at another, to its end [S4]', async () => {
  const { session } = await here.session(credentials, 'a2');
  const made = await here.confirm(session);
  const read = async (): Promise<string> => {
    const path = `/v1/flow/payments/${String(made.body['platform_payment_id'])}`;
    return ((await (await elsewhere(path, session)).json()) as FlowPayment).status;
  };
  assert.equal(await read(), 'processing');
  partner.endings.set('a2', { status: 'succeeded', posted_at: new Date().toISOString() });
  await until('the payment has ended', async () => (await read()) === 'succeeded');
});

test('a platform that has stopped leaves no timer that would keep its process alive [LV5]', async () => {
  let waiting = 0;
  const clock: Clock = {
    ...systemClock,
    async sleep(ms, signal) {
      waiting += 1;
      await systemClock.sleep(ms, signal);
      waiting -= 1;
    },
  };
  const replica = await startReplica({ clock });
  assert.ok(waiting > 0, 'the clock is not used');
  await replica.stop();
  // An aborted sleep ends in a turn of its own.
  await setImmediate();
  assert.equal(waiting, 0);
});
