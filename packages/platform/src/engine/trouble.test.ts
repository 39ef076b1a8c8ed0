/**
 * Trouble beside the payments: a worker frozen while it holds locks, and a capture that always fails. Each harms what it touches and
 * nothing else, and each is seen. What a worker does while its database is away is in records.test.ts and in the
 * simulator.
 *
 * With FROZEN_DATABASE set, this file is the worker that is frozen.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test from 'node:test';
import { createMetrics, openDatabase, silentLog, systemClock } from '@duebridge/runtime';
import { parse } from 'yaml';
import { holdLock, PATIENCE_MS, until } from '@duebridge/runtime/testing';
import { pausePayment } from '../store/operators-acts.ts';
import { openGauges, overview } from '../admin/overview.ts';
import { createPartnerClient } from '../partners/client.ts';
import { openPartnerRegistry } from '../partners/registry.ts';
import type { PaymentRow } from '../store/payments.ts';
import { listPayments } from '../store/payment-search.ts';
import { Engine } from './engine.ts';
import {
  keptLog,
  SEAL_KEY,
  scriptedPartner,
  SHORT_TIMES,
  engineRig,
  sandboxFunds,
} from '../../test/engine-rig.ts';

const settled = (row: PaymentRow): boolean => row.settled_at !== null;
/** How often a line was logged. */
const timesLogged = ({ lines }: ReturnType<typeof keptLog>, message: string): number =>
  lines.filter((line) => line.message === message).length;

const frozenDatabase = process.env['FROZEN_DATABASE'];
if (frozenDatabase === undefined) tests();
else await workAndFreeze(frozenDatabase);

function tests(): void {
  test('a worker frozen in the middle of its heartbeat, with rows locked, ends no other worker’s lease [LV1 PL10]', async (t) => {
    const rig = await engineRig(t);
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url)], {
      env: { ...process.env, FROZEN_DATABASE: rig.database.url, NODE_TEST_CONTEXT: '' },
      stdio: 'ignore',
    });
    const gone = once(child, 'exit');
    rig.database.closing(async () => {
      child.kill('SIGKILL');
      await gone;
    });
    const ownedBy = async (is: (worker_id: string) => boolean): Promise<number> => {
      const rows = await rig.database.query<{ worker_id: string | null }>(
        'SELECT worker_id FROM duebridge_platform.slots',
      );
      return rows.filter(({ worker_id }) => worker_id !== null && is(worker_id)).length;
    };
    await until('the worker to be frozen owns every slot', async () =>
      ownedBy(() => true).then((count) => count === 1_024),
    );
    const engine = rig.engine();
    await engine.start();
    const mine = engine.workerId;
    const isMine = (worker_id: string): boolean => worker_id === mine;
    await until('both own half of the slots', async () => (await ownedBy(isMine)) === 512);

    // What the frozen one could have locked at most: its heartbeat and its slots.
    const letGo = await holdLock(
      rig.database.url,
      `WITH w AS (SELECT FROM duebridge_platform.workers WHERE worker_id <> $1 FOR UPDATE),
            s AS (SELECT FROM duebridge_platform.slots WHERE worker_id <> $1 FOR UPDATE) SELECT count(*) FROM w, s`,
      [mine],
    );
    rig.database.closing(letGo);
    await until('its heartbeat waits for the lock', async () => {
      const rows = await rig.database.query(
        `SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'to be frozen' AND wait_event_type = 'Lock'`,
      );
      return rows.length > 0;
    });
    child.kill('SIGSTOP');
    // Longer than a lease.
    for (const end = performance.now() + SHORT_TIMES.leaseMs + 1_000; performance.now() < end;) {
      const row = await rig.pay(engine, 'acme');
      assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
      assert.equal(engine.workerId, mine, 'the lease was lost to a frozen neighbour');
      await systemClock.sleep(100);
    }
    await letGo();
    await until('it takes over what the frozen one drove', async () =>
      ownedBy(isMine).then((count) => count === 1_024),
    );
    child.kill('SIGCONT');
    await until('the other comes back, and gets its part', async () =>
      ownedBy(isMine).then((count) => count === 512),
    );
    assert.equal(engine.workerId, mine);
  });

  test('a capture that always fails appears in the list, the overview and the metric, and fires its alert [PL7 LV7]', async (t) => {
    const log = keptLog();
    const rig = await engineRig(t, { log });
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    let captures = 0;
    let isBroken = true;
    const engine = rig.engine({
      funding: {
        collection: (method) => rig.funding.collection(method),
        authorize: (order, call) => rig.funding.authorize(order, call),
        release: (order, call) => rig.funding.release(order, call),
        capture(order, call) {
          captures += 1;
          return isBroken
            ? Promise.reject(new Error('the processor is sorry'))
            : rig.funding.capture(order, call);
        },
      },
    });
    await engine.start();
    const { platform_payment_id } = await rig.pay(engine, 'acme');
    await until('the capture is tried again', () => captures >= 3);
    assert.equal(
      timesLogged(log, 'the funding port failed; retrying'),
      1,
      'told once, not at each try',
    );
    const unsettled = await listPayments(rig.database, { status: 'unsettled', limit: 10 });
    assert.deepEqual(
      unsettled.map((row) => [row.platform_payment_id, row.status]),
      [[platform_payment_id, 'succeeded']],
    );
    assert.equal((await overview(rig.database)).unsettled, 1);
    // Another that waits only because an operator paused it.
    await rig.register('nowhere', 'http://127.0.0.1:9');
    const { platform_payment_id: paused } = await rig.pay(engine, 'nowhere');
    await pausePayment(rig.database, paused, 'they look at it', 'ada');

    // The gauges, an hour later by the clock that reads them.
    const metrics = createMetrics();
    const later = { ...systemClock, now: () => Date.now() + 61 * 60_000 };
    await openGauges(rig.database, metrics, later)();
    const figure = async (name: string): Promise<number> =>
      Number(new RegExp(`^${name} (.*)$`, 'm').exec(await metrics.text())?.[1]);
    assert.equal(await figure('duebridge_unsettled'), 1);
    assert.equal(await figure('duebridge_paused'), 1);
    const ages = {
      duebridge_unsettled_oldest_seconds: await figure('duebridge_unsettled_oldest_seconds'),
      duebridge_paused_oldest_seconds: await figure('duebridge_paused_oldest_seconds'),
    };
    const rules = parse(
      readFileSync(
        join(import.meta.dirname, '../../../../deploy/prometheus/duebridge.rules.yml'),
        'utf8',
      ),
    ) as { groups: { rules: { alert?: string; expr: string; labels?: { severity: string } }[] }[] };
    for (const [metric, age] of Object.entries(ages)) {
      const alert = rules.groups
        .flatMap((group) => group.rules)
        .find((rule) => rule.expr.includes(metric));
      const limit = Number(/^max\(\w+\) > (\d+)$/.exec(alert?.expr ?? '')?.[1]);
      assert.ok(age > limit, `an age of ${age} s against ${alert?.expr}`);
      assert.equal(alert?.labels?.severity, metric.includes('paused') ? 'ticket' : 'page');
    }

    isBroken = false;
    await rig.until(platform_payment_id, settled);
    assert.deepEqual(rig.asked.get(platform_payment_id), ['authorize', 'capture']);
    assert.deepEqual(await listPayments(rig.database, { status: 'unsettled', limit: 10 }), []);
  });
}

async function workAndFreeze(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'to be frozen' });
  const base = { database, clock: systemClock, log: silentLog };
  const registry = openPartnerRegistry({ ...base, sealKey: SEAL_KEY, allowPrivateAddresses: true });
  const client = createPartnerClient({ ...base, registry, allowPrivateAddresses: true });
  const engine = new Engine({
    ...base,
    registry,
    client,
    funding: sandboxFunds(database),
    options: SHORT_TIMES,
  });
  await engine.start();
  // The test ends it; should the test be gone, it ends by itself.
  await systemClock.sleep(2 * PATIENCE_MS);
  process.exit(0);
}
