/**
 * No payment waits for another (LV3, LV4): whatever is refused, slow, hung or broken forever at a partner, the payments beside it go on.
 *
 * Each test compares the times of healthy payments beside the sick ones with those of healthy payments alone, in the same run: a
 * slow machine slows both. `SLACK_MS` is what a busy machine may add to a median of a few milliseconds.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { Cleanup } from '@duebridge/runtime/testing';
import type { Engine, EngineOptions } from './engine.ts';
import type { PaymentRow } from '../store/payments.ts';
import {
  eventually,
  scriptedPartner,
  engineRig,
  type Answer,
  type ScriptedPartner,
  type Seen,
  type EngineRig,
} from './testing.ts';

const SLACK_MS = 250;
const settled = (row: PaymentRow): boolean => row.settled_at !== null;
const isSick = (seen: Seen): boolean => seen.path.includes('/account/sick');

interface SickRig extends EngineRig {
  readonly partner: ScriptedPartner;
  readonly running: Engine;
}

/** An engine with one partner that answers `sick` payments as the test says, and all others rightly. */
async function beside(
  t: Cleanup,
  sick: (seen: Seen) => Answer | undefined,
  more: {
    readonly times?: EngineOptions['options'];
    readonly budget?: object;
  } = {},
): Promise<SickRig> {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  partner.script = (seen) => (isSick(seen) ? sick(seen) : undefined);
  await rig.register('acme', partner.url, {
    budget: { call_timeout_ms: 1_000, wait_seconds: 0, ...more.budget },
  });
  const running = rig.engine({ options: { ...more.times } });
  await running.start();
  // The first payment waits for the first share of the budget.
  const first = await rig.pay(running, 'acme');
  await rig.until(first.platform_payment_id, settled);
  return { ...rig, partner, running };
}

/** Milliseconds from the confirm to the settled row of payments made one after the other, ascending. */
async function healthyTimes(rig: SickRig, count: number, partner_id = 'acme'): Promise<number[]> {
  const times: number[] = [];
  for (let made = 0; made < count; made += 1) {
    const ended = Promise.withResolvers<void>();
    const from = performance.now();
    const row = await rig.pay(rig.running, partner_id);
    const stop = rig.running.watch(row.platform_payment_id, (now) => {
      if (now.status !== 'processing') ended.resolve();
    });
    await rig.running.tick();
    await ended.promise;
    stop();
    times.push(performance.now() - from);
  }
  return times.toSorted((a, b) => a - b);
}

const median = (times: readonly number[]): number => times[Math.floor(times.length / 2)] ?? 0;
const worst = (times: readonly number[]): number => times.at(-1) ?? 0;

/** Makes sick payments, then healthy ones beside them; compares with healthy ones before. */
async function compare(rig: SickRig, sick: number): Promise<void> {
  const alone = await healthyTimes(rig, 9);
  const rows = await Promise.all(
    Array.from({ length: sick }, (_, index) =>
      rig.pay(rig.running, 'acme', { account_id: `sick-${index}` }),
    ),
  );
  for (const row of rows) {
    await eventually('each sick payment has been tried', () =>
      rig.partner.seen.some((seen) => seen.path.endsWith(row.platform_payment_id)),
    );
  }
  const together = await healthyTimes(rig, 9);
  const told = `alone ${alone.map(Math.round).join(' ')}, together ${together.map(Math.round).join(' ')} ms`;
  assert.ok(median(together) <= median(alone) * 1.5 + SLACK_MS, told);
  assert.ok(worst(together) <= worst(alone) + 2_000, told);
}

test('one payment answered 401 forever delays no other [LV3]', async (t) => {
  await compare(
    await beside(t, () => ({ status: 401, json: {} }), { times: { holdMs: 60_000 } }),
    1,
  );
});

test('one payment answered 403 forever delays no other [LV3]', async (t) => {
  await compare(
    await beside(t, () => ({ status: 403, json: {} }), { times: { holdMs: 60_000 } }),
    1,
  );
});

test('payments answered 500 forever delay no other [LV3]', async (t) => {
  const times = { breakMs: 200, maxBreakMs: 400, maxRetryMs: 1_000 };
  await compare(await beside(t, () => ({ status: 500, json: {} }), { times }), 20);
});

test('payments that hang forever delay no other [LV3]', async (t) => {
  const times = { breakMs: 200, maxBreakMs: 400, maxRetryMs: 1_000 };
  await compare(await beside(t, () => () => undefined, { times }), 20);
});

test('payments that hang in every place of their partner give it up to others long before their time is up [LV3]', async (t) => {
  const callTimeoutMs = 30_000;
  const rig = await beside(t, () => () => undefined, {
    budget: { max_concurrent_calls: 4, call_timeout_ms: callTimeoutMs },
  });
  for (let index = 0; index < 8; index += 1) {
    await rig.pay(rig.running, 'acme', { account_id: `sick-${index}` });
  }
  await eventually(
    'they fill every place of a first PUT',
    () => rig.partner.seen.filter(isSick).length >= 3,
  );
  const from = performance.now();
  await healthyTimes(rig, 3);
  assert.ok(performance.now() - from < callTimeoutMs / 2);
});

test('a new PUT does not wait for the polls of hundreds of accepted payments [LV4]', async (t) => {
  const rig = await beside(
    t,
    (seen) =>
      seen.method === 'GET'
        ? { json: rig.partner.payments.get(seen.path.split('/').at(-1) ?? '') }
        : undefined,
    { budget: { max_calls_per_second: 20 }, times: { pollMs: 10 } },
  );
  const rows = await Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      rig.pay(rig.running, 'acme', { account_id: `sick-${index}` }),
    ),
  );
  for (const row of rows)
    await rig.until(row.platform_payment_id, (now) => now.stage === 'accepted');
  const from = rig.partner.seen.length;
  const { platform_payment_id } = await rig.pay(rig.running, 'acme', { account_id: 'new' });
  await eventually('the new one is put', () =>
    rig.partner.seen.some((seen) => seen.path.endsWith(platform_payment_id)),
  );
  const before = rig.partner.seen
    .slice(from)
    .findIndex((seen) => seen.path.includes('/account/new'));
  assert.ok(before <= 10, `${before} calls went before it`);
});

test('a recovered partner is used again within two seconds, by all payments that waited for it [LV8]', async (t) => {
  let isDown = true;
  const rig = await beside(t, () => (isDown ? { status: 503, json: {} } : undefined), {
    times: { breakMs: 200, maxBreakMs: 500, retryMs: 50, maxRetryMs: 600_000 },
  });
  const rows = await Promise.all(
    Array.from({ length: 20 }, () => rig.pay(rig.running, 'acme', { account_id: 'sick' })),
  );
  await eventually('their own delays have grown long', () => rig.partner.seen.length > 40);
  isDown = false;
  const from = performance.now();
  for (const row of rows) await rig.until(row.platform_payment_id, settled);
  assert.ok(performance.now() - from < 2_000 + 8 * SLACK_MS, `${performance.now() - from} ms`);
});

test('answers mixed up on a connection are fetched again on a fresh one, not reviewed [PF2]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url);
  let crossed = 0;
  partner.script = (seen) => {
    if (seen.method !== 'GET' || crossed > 0) return undefined;
    crossed += 1;
    return {
      json: { ...[...partner.payments.values()][0], platform_payment_id: 'of-another-payment' },
    };
  };
  const engine = rig.engine();
  await engine.start();
  const row = await rig.pay(engine, 'acme');
  const done = await rig.until(
    row.platform_payment_id,
    (now) => settled(now) || now.stage === 'review',
  );
  assert.equal(done.status, 'succeeded');
  // A partner that goes on answering about another payment is no matter of connections.
  partner.script = (seen) =>
    seen.method === 'GET'
      ? {
          json: { ...[...partner.payments.values()][1], platform_payment_id: 'of-another-payment' },
        }
      : undefined;
  const next = await rig.pay(engine, 'acme');
  const frozen = await rig.until(next.platform_payment_id, (now) => now.stage === 'review');
  assert.equal(frozen.review_reason, 'mismatch_platform_payment_id');
});

test('a partner that never waits is not asked to, and a stalled poll is noticed by its schedule', async (t) => {
  const rig = await beside(t, () => undefined, {
    budget: { wait_seconds: 20, call_timeout_ms: 300 },
    times: { pollMs: 20, retryMs: 20 },
  });
  // That one payment has shown that this partner does not wait.
  rig.partner.pollsToEnd = 4;
  rig.partner.seen.length = 0;
  let stalled = false;
  rig.partner.script = (seen) => {
    if (seen.method !== 'GET' || stalled) return undefined;
    stalled = true;
    return () => undefined;
  };
  const from = performance.now();
  const row = await rig.pay(rig.running, 'acme');
  await rig.until(row.platform_payment_id, settled);
  assert.equal(stalled, true);
  assert.ok(performance.now() - from < 10_000, 'it did not wait for 20 s');
  assert.ok(
    rig.partner.seen.every((seen) => seen.headers['prefer'] === undefined),
    'no read asked to wait',
  );
});
