import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { platformRoutes } from '@duebridge/contract';
import { createServer, mount } from '@duebridge/runtime';
import { manualClock, type ManualClock } from '@duebridge/runtime/testing';
import { openPaymentEvents, STREAM_LIMITS } from './events.ts';
import type { PaymentRow } from '../store/payments.ts';

const id = '018f0000-0000-7000-8000-000000000000';
const row = {
  platform_payment_id: id,
  status: 'processing',
  stage: 'dispatching',
  amount_in_cents: 100,
  funding_method: 'sandbox_bank',
  payment_id: null,
  failure_reason: null,
  initiated_at: null,
  posted_at: null,
  created_at: '2026-01-01T00:00:00.000Z',
} as PaymentRow;
const accepted = { ...row, stage: 'accepted', payment_id: 'there' } as PaymentRow;
const ended = { ...accepted, status: 'succeeded', stage: 'ended' } as PaymentRow;

interface Rig {
  readonly clock: ManualClock;
  /** Tells every stream of a change. */
  readonly change: (payment: PaymentRow) => void;
  /** How many streams listen to the engine. */
  readonly listening: () => number;
  readonly size: () => number;
  /** Opens a stream whose session ends after so many milliseconds. */
  readonly open: (options?: {
    read?: () => Promise<PaymentRow>;
    lifeMs?: number;
    flow?: string;
    address?: string;
    signal?: AbortSignal;
  }) => Promise<Response>;
}

async function rig(
  t: TestContext,
  limits?: { perFlow: number; perAddress: number; inAll: number },
): Promise<Rig> {
  const clock = manualClock();
  const watchers = new Set<(payment: PaymentRow) => void>();
  const events = openPaymentEvents({
    clock,
    ...(limits === undefined ? {} : { limits }),
    engine: {
      watch(_id, changed) {
        watchers.add(changed);
        return () => void watchers.delete(changed);
      },
    },
  });
  let next = { read: () => Promise.resolve(row), lifeMs: 3_600_000, flow: 'f', address: '::1' };
  const app = createServer();
  mount(app, platformRoutes.get_flow_payment_events, async ({ reply, signal }) => {
    await events.follow({
      reply,
      signal,
      flow: next.flow,
      address: next.address,
      expiresAt: clock.now() + next.lifeMs,
      platform_payment_id: id,
      read: next.read,
    });
    return '';
  });
  t.after(() => app.close());
  const base = await app.listen({ port: 0, host: '127.0.0.1' });
  return {
    clock,
    change: (payment) => watchers.forEach((watcher) => watcher(payment)),
    listening: () => watchers.size,
    size: () => events.size,
    open(given = {}) {
      const { read = () => Promise.resolve(row), lifeMs = 3_600_000, signal } = given;
      const { flow = 'f', address = '::1' } = given;
      next = { read, lifeMs, flow, address };
      return fetch(`${base}/v1/flow/payments/${id}/events`, signal === undefined ? {} : { signal });
    },
  };
}

/** Reads until the stream has said so many lines that match. */
async function lines(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  pattern: RegExp,
  count: number,
): Promise<string> {
  let text = '';
  while ([...text.matchAll(pattern)].length < count) {
    const { done, value } = await reader.read();
    if (done) break;
    text += Buffer.from(value).toString();
  }
  return text;
}

test('a change during the read of a payment is neither lost nor followed by an older state', async (t) => {
  const { open, change } = await rig(t);
  const read = async (): Promise<PaymentRow> => {
    change(ended);
    return row;
  };
  const text = await (await open({ read })).text();
  assert.deepEqual(
    [...text.matchAll(/"status":"(\w+)"/g)].map((match) => match[1]),
    ['succeeded'],
  );
});

test('a quiet stream gets a heartbeat every ten seconds until the session ends', async (t) => {
  const { open, clock, listening } = await rig(t);
  const response = await open({ lifeMs: 35_000 });
  const reader = response.body!.getReader();
  await lines(reader, /^data:/gm, 1);
  for (let beat = 0; beat < 3; beat += 1) {
    await clock.advance(10_000);
    assert.match(await lines(reader, /^: /gm, 1), /^: /m);
  }
  await clock.advance(5_000);
  await lines(reader, /nothing/g, 1);
  assert.equal(listening(), 0);
});

test('a client that disconnects is forgotten', async (t) => {
  const { open, listening, clock } = await rig(t);
  const gone = new AbortController();
  const response = await open({ signal: gone.signal });
  await lines(response.body!.getReader(), /^data:/gm, 1);
  assert.equal(listening(), 1);
  gone.abort();
  while (listening() > 0) {
    await clock.advance(1);
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
});

test('one flow has few streams, however many sessions it has: the oldest is closed', async (t) => {
  const { open, size } = await rig(t, { perFlow: 3, perAddress: 100, inAll: 100 });
  const responses = [];
  for (let index = 0; index < 8; index += 1) responses.push(await open({ flow: 'one customer' }));
  assert.equal(size(), 3);
  // The five oldest have ended; another customer is not touched.
  for (const response of responses.slice(0, 5)) assert.match(await response.text(), /^data:/m);
  assert.equal((await open({ flow: 'another' })).status, 200);
  assert.equal(size(), 4);
});

test('streams are limited per address and in total; beyond that a page is told to poll', async (t) => {
  const { open, size } = await rig(t, { perFlow: 2, perAddress: 3, inAll: 5 });
  const from = (address: string, flow: string): Promise<Response> => open({ address, flow });
  for (const flow of ['a', 'b', 'c']) assert.equal((await from('192.0.2.1', flow)).status, 200);
  const refused = await from('192.0.2.1', 'd');
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get('retry-after')) > 0);
  for (const flow of ['e', 'f']) assert.equal((await from('192.0.2.2', flow)).status, 200);
  assert.equal((await from('192.0.2.3', 'g')).status, 429);
  assert.equal(size(), 5);
});

test('all streams together leave most connections to requests [LV10]', () => {
  const app = createServer();
  const { perFlow, perAddress, inAll } = STREAM_LIMITS;
  assert.ok(perFlow < perAddress && perAddress < inAll);
  assert.ok(inAll <= app.server.maxConnections / 2, `${inAll} of ${app.server.maxConnections}`);
});
