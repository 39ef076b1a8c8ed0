/**
 * Trouble beside the payments: a worker frozen while it holds locks, a hold that cannot be noted, a database that is away for
 * seconds, a funding port that hangs, a capture that always fails. Each harms what it touches and nothing else, and each is seen.
 *
 * With FROZEN_DATABASE set, this file is the worker that is frozen.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import test, { describe, type TestContext } from 'node:test';
import {
  createMetrics,
  DatabaseUnavailable,
  openDatabase,
  silentLog,
  systemClock,
  type Database,
  type Statement,
} from '@duebridge/runtime';
import { parse } from 'yaml';
import { pausePayment } from '../store/pause.ts';
import { keepGauges, overview } from '../admin/overview.ts';
import type { Funding } from '../funding.ts';
import { createPartnerClient } from '../partners/client.ts';
import { openPartnerRegistry } from '../partners/registry.ts';
import type { PaymentRow } from '../store/payments.ts';
import { listPayments } from '../store/payment-search.ts';
import { createEngine } from './engine.ts';
import {
  actsOf,
  eventually,
  keptLog,
  SEAL_KEY,
  scriptedPartner,
  SHORT_TIMES,
  engineRig,
  sandboxFunds,
} from './testing.ts';

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
    await eventually('the worker to be frozen owns every slot', async () =>
      ownedBy(() => true).then((count) => count === 1_024),
    );
    const engine = rig.engine();
    await engine.start();
    const mine = engine.workerId;
    const isMine = (worker_id: string): boolean => worker_id === mine;
    await eventually('both own half of the slots', async () => (await ownedBy(isMine)) === 512);

    // What the frozen one could have locked at most: its heartbeat and its slots.
    const other = openDatabase({
      url: rig.database.url,
      applicationName: 'holds the locks of the frozen worker',
      statementTimeoutMs: 0,
    });
    rig.database.closing(() => other.close());
    const held = Promise.withResolvers<void>();
    const letGo = Promise.withResolvers<void>();
    const holding = other.transaction(async (tx) => {
      for (const table of ['workers', 'slots']) {
        await tx.query(
          `SELECT 1 FROM duebridge_platform.${table} WHERE worker_id <> $1 FOR UPDATE`,
          [mine],
        );
      }
      held.resolve();
      await letGo.promise;
    });
    await held.promise;
    t.after(() => letGo.resolve());
    await eventually('its heartbeat waits for the lock', async () => {
      const rows = await rig.database.query(
        `SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'to be frozen' AND wait_event_type = 'Lock'`,
      );
      return rows.length > 0;
    });
    child.kill('SIGSTOP');
    // Longer than a lease.
    const until = performance.now() + SHORT_TIMES.leaseMs + 1_000;
    while (performance.now() < until) {
      const row = await rig.pay(engine, 'acme');
      assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
      assert.equal(engine.workerId, mine, 'the lease was lost to a frozen neighbour');
      await systemClock.sleep(100);
    }
    letGo.resolve();
    await holding;
    await eventually('it takes over what the frozen one drove', async () =>
      ownedBy(isMine).then((count) => count === 1_024),
    );
    child.kill('SIGCONT');
    await eventually('the other comes back, and gets its part', async () =>
      ownedBy(isMine).then((count) => count === 512),
    );
    assert.equal(engine.workerId, mine);
  });

  test('a hold that cannot be recorded keeps each payment queued once, and all end when the partner accepts us again [LV3 LV6]', async (t) => {
    const log = keptLog();
    const rig = await engineRig(t, { log });
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    let refused = 0;
    const registry: typeof rig.registry = {
      ...rig.registry,
      hold(...hold) {
        if (hold[1] === null) return rig.registry.hold(...hold);
        refused += 1;
        return Promise.reject(
          refused % 2 === 0
            ? new Error('a bug')
            : new DatabaseUnavailable('it is away', 'not_executed'),
        );
      },
    };
    const underWay = new Map<string, number>();
    let most = 0;
    partner.script = async (seen, itself) => {
      const id = seen.path.split('/').at(-1) ?? '';
      const now = (underWay.get(id) ?? 0) + 1;
      underWay.set(id, now);
      most = Math.max(most, now);
      // Open for as long as a second call of the same payment would need to arrive.
      await systemClock.sleep(20);
      underWay.set(id, now - 1);
      return refused < 4 ? { status: 401, json: {} } : itself.right(seen);
    };
    const engine = rig.engine({ registry, options: { trialMs: 50 } });
    await engine.start();
    const rows = await Promise.all(Array.from({ length: 8 }, () => rig.pay(engine, 'acme')));
    for (const { platform_payment_id } of rows) {
      assert.equal((await rig.until(platform_payment_id, settled)).status, 'succeeded');
      assert.deepEqual(await actsOf(rig, platform_payment_id), ['authorize', 'capture']);
    }
    assert.ok(refused >= 4, 'no hold failed');
    assert.equal(most, 1, 'two calls for one payment at once');
  });

  test('while the row of a refused partner is locked, one write waits for it, and the last reason is the one that stays [LV3]', async (t) => {
    const rig = await engineRig(t);
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    const row = Promise.withResolvers<void>();
    let [refused, waiting, most] = [0, 0, 0];
    const noted: (string | null)[] = [];
    const registry: typeof rig.registry = {
      ...rig.registry,
      async hold(...hold) {
        most = Math.max(most, ++waiting);
        await row.promise;
        waiting -= 1;
        noted.push(hold[1]);
        await rig.registry.hold(...hold);
      },
    };
    partner.script = (seen, itself) => {
      if (waiting > 0 && refused >= 3) return itself.right(seen);
      refused += 1;
      return { status: 401, json: {} };
    };
    const engine = rig.engine({ registry, options: { trialMs: 50 } });
    await engine.start();
    const rows = await Promise.all(Array.from({ length: 4 }, () => rig.pay(engine, 'acme')));
    for (const { platform_payment_id } of rows) await rig.until(platform_payment_id, settled);
    assert.deepEqual([most, noted], [1, []]);
    row.resolve();
    // The refusal is noted first; the partner has answered normally since.
    await eventually('it is not held in the end', async () => {
      const [held] = await rig.database.query<{ pause_reason: string | null }>(
        'SELECT pause_reason FROM duebridge_platform.partners',
      );
      return noted.length > 1 && held?.pause_reason === null;
    });
    assert.match(noted[0] ?? '', /credentials/);
    assert.equal(most, 1);
  });

  describe('the database is down for six seconds', { concurrency: 2 }, () => {
    for (const lease of ['kept', 'lost'] as const) {
      test(`the lease is ${lease}: due work moves at once when it is back, and the log says so once [LV1 LV8]`, (t) =>
        awayForSixSeconds(t, lease));
    }
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
        ...rig.funding,
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
    await eventually('the capture is tried again', () => captures >= 3);
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
    const over = new AbortController();
    const gauges = keepGauges({
      database: rig.database,
      metrics,
      clock: { ...systemClock, now: () => Date.now() + 61 * 60_000 },
      log,
      signal: over.signal,
    });
    const figure = async (name: string): Promise<number> =>
      Number(new RegExp(`^${name} (.*)$`, 'm').exec(await metrics.text())?.[1]);
    await eventually('the gauge is read', async () => (await figure('duebridge_unsettled')) === 1);
    assert.equal(await figure('duebridge_paused'), 1);
    const ages = {
      duebridge_unsettled_oldest_seconds: await figure('duebridge_unsettled_oldest_seconds'),
      duebridge_paused_oldest_seconds: await figure('duebridge_paused_oldest_seconds'),
    };
    over.abort();
    await gauges;
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
    assert.deepEqual(await actsOf(rig, platform_payment_id), ['authorize', 'capture']);
    assert.deepEqual(await listPayments(rig.database, { status: 'unsettled', limit: 10 }), []);
  });

  test('a funding method that never answers delays neither the others nor a stop [LV3 LV5]', async (t) => {
    const rig = await engineRig(t);
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    let hanging = 0;
    const funding: Funding = {
      ...rig.funding,
      authorize(order, call) {
        if (order.funding_method !== 'hanging_bank') return rig.funding.authorize(order, call);
        hanging += 1;
        return new Promise<never>(() => undefined);
      },
    };
    const engine = rig.engine({ funding, options: { stopMs: 300 } });
    await engine.start();
    await Promise.all(
      Array.from({ length: 300 }, () =>
        rig.pay(engine, 'acme', { funding_method: 'hanging_bank' }),
      ),
    );
    await eventually('the port hangs', () => hanging >= 256);
    const { platform_payment_id } = await rig.pay(engine, 'acme');
    assert.equal((await rig.until(platform_payment_id, settled)).status, 'succeeded');
    const from = performance.now();
    await engine.stop();
    assert.ok(performance.now() - from < 10_000, 'the stop ends within its limit');
  });

  test('a funding method that fails for many payments is told once when it begins and once when it ends [LV8]', async (t) => {
    const log = keptLog();
    const rig = await engineRig(t, { log });
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    let failures = 0;
    let isDown = true;
    const engine = rig.engine({
      funding: {
        ...rig.funding,
        authorize(order, call) {
          if (!isDown) return rig.funding.authorize(order, call);
          failures += 1;
          return Promise.reject(new Error('the processor is away'));
        },
      },
    });
    await engine.start();
    const rows = await Promise.all(Array.from({ length: 10 }, () => rig.pay(engine, 'acme')));
    await eventually('each has been tried again', () => failures >= 30);
    isDown = false;
    for (const { platform_payment_id } of rows) await rig.until(platform_payment_id, settled);
    assert.ok(timesLogged(log, 'the funding port failed; retrying') < 5, 'the first few only');
    assert.equal(timesLogged(log, 'the funding method fails every call; retrying'), 1);
    assert.equal(timesLogged(log, 'the funding method answers again'), 1);
  });

  test('an authorization that arrives after the release is declined', async (t) => {
    const rig = await engineRig(t);
    const partner = await scriptedPartner(t);
    await rig.register('acme', partner.url);
    const { platform_payment_id } = await rig.pay(rig.engine(), 'acme');
    const order = { platform_payment_id, funding_method: 'sandbox_bank', amount_in_cents: 12_345 };
    await rig.funding.void(order);
    assert.equal((await rig.funding.authorize(order)).kind, 'declined');
    assert.deepEqual(await actsOf(rig, platform_payment_id), ['void']);
  });

  test('a database outage is logged once, and all that waited for it continues at once [LV8]', async (t) => {
    const log = keptLog();
    const rig = await engineRig(t, { log });
    const partner = await scriptedPartner(t);
    let isDown = false;
    let refused = 0;
    const away = (statement?: Statement): Promise<never> => {
      const isStep =
        typeof statement === 'object' && /^payment_(advance|end)$/.test(statement.name);
      if (isStep) refused += 1;
      return Promise.reject(new DatabaseUnavailable('it is away', 'unknown'));
    };
    const database: Database = {
      ...rig.database,
      query: (statement, values) =>
        isDown ? away(statement) : rig.database.query(statement, values),
      transaction: (work, options) => (isDown ? away() : rig.database.transaction(work, options)),
    };
    await rig.register('acme', partner.url);
    const engine = rig.engine({
      database,
      leaseDatabase: rig.database,
      funding: sandboxFunds(database),
    });
    await engine.start();
    const warm = await rig.pay(engine, 'acme');
    await rig.until(warm.platform_payment_id, settled);
    // The answers arrive while the database is away.
    partner.script = (seen) => {
      isDown ||= seen.method === 'PUT';
      return undefined;
    };
    const rows = await Promise.all(Array.from({ length: 30 }, () => rig.pay(engine, 'acme')));
    await eventually('payments wait for the database', () => refused > 0);
    partner.script = () => undefined;
    isDown = false;
    const from = performance.now();
    for (const row of rows) {
      assert.equal((await rig.until(row.platform_payment_id, settled)).status, 'succeeded');
    }
    assert.ok(performance.now() - from < 5_000, `${performance.now() - from} ms`);
    const errors = log.lines.filter((line) => line.message.includes('payments wait'));
    assert.equal(errors.length, 1, 'once, not once for each payment');
    await eventually('the log says that it is over', () =>
      log.lines.some((line) => line.message.includes('answers again')),
    );
  });
}

/**
 * The database is away for everything but the test. With the times of production, a lease that was about to be renewed is lost
 * meanwhile; a longer one is kept.
 */
async function awayForSixSeconds(t: TestContext, lease: 'kept' | 'lost'): Promise<void> {
  const log = keptLog();
  const rig = await engineRig(t, { log });
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, {
    budget: {
      call_timeout_ms: 20_000,
      wait_seconds: 0,
      max_concurrent_calls: 64,
      max_calls_per_second: 1_000,
    },
  });
  let state: 'here' | 'about to go' | 'away' = 'here';
  let backAt = Number.POSITIVE_INFINITY;
  let firstEndAt: number | undefined;
  let refused = 0;
  const away = (): Promise<never> => {
    refused += 1;
    return Promise.reject(new DatabaseUnavailable('it is away', 'not_executed'));
  };
  const cut = (database: Database): Database => ({
    ...database,
    async query<Row>(...args: Parameters<Database['query']>): Promise<Row[]> {
      const name = typeof args[0] === 'string' ? '' : args[0].name;
      if (name === 'worker_renew' && state === 'about to go') state = 'away';
      if (state === 'away') return away();
      const rows = await database.query<Row>(...args);
      if (name === 'payment_end' && rows.length > 0 && performance.now() > backAt) {
        firstEndAt ??= performance.now();
      }
      return rows;
    },
    transaction: (work, options) =>
      state === 'away' ? away() : database.transaction(work, options),
  });
  const database = cut(rig.database);
  const engine = createEngine({
    database,
    leaseDatabase: cut(rig.database),
    registry: rig.registry,
    client: rig.client,
    funding: sandboxFunds(database),
    clock: systemClock,
    log,
    ...(lease === 'kept' ? { options: { leaseMs: 30_000 } } : {}),
  });
  rig.database.closing(() => engine.stop());
  await engine.start();
  const { workerId } = engine;
  await eventually('it owns every slot', () =>
    log.lines.some(({ message }) => message === 'slots taken over'),
  );
  // The partner's answers arrive while the database is away.
  const answers = Promise.withResolvers<void>();
  partner.pollsToEnd = 0;
  partner.script = async () => {
    await answers.promise;
    return undefined;
  };
  const rows = await Promise.all(Array.from({ length: 40 }, () => rig.pay(engine, 'acme')));
  await eventually('the first payments are sent', () => partner.seen.length >= 4);
  state = 'about to go';
  await eventually('the next heartbeat finds no database', () => refused > 0);
  answers.resolve();
  await eventually('payments wait for it', () => refused >= 5);
  await systemClock.sleep(6_000);
  state = 'here';
  // A machine that is busy with other tests delays the engine and this test alike.
  const lag = monitorEventLoopDelay({ resolution: 10 });
  lag.enable();
  backAt = performance.now();
  for (const { platform_payment_id } of rows) {
    assert.equal((await rig.until(platform_payment_id, settled)).status, 'succeeded');
    assert.deepEqual(await actsOf(rig, platform_payment_id), ['authorize', 'capture']);
  }
  assert(firstEndAt !== undefined);
  t.diagnostic(`the first payment ended ${Math.round(firstEndAt - backAt)} ms after the return`);
  lag.disable();
  // A second; and one more where the worker had to register again.
  const limitMs = (lease === 'kept' ? 1_000 : 2_000) + (10 * lag.max) / 1e6;
  assert.ok(firstEndAt - backAt < limitMs, `${firstEndAt - backAt} ms`);
  assert.equal(engine.workerId === workerId, lease === 'kept');
  const troubles = log.lines.filter(({ level }) => level === 'warn' || level === 'error');
  assert.deepEqual(
    troubles.map(({ message }) => message).toSorted(),
    [
      'the database does not answer; payments wait',
      'the heartbeat failed; retrying',
      ...(lease === 'lost'
        ? ['the lease was lost: this worker drops its payments and registers again']
        : []),
    ].toSorted(),
  );
}

async function workAndFreeze(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'to be frozen' });
  const base = { database, clock: systemClock, log: silentLog };
  const registry = openPartnerRegistry({ ...base, sealKey: SEAL_KEY, allowPrivateAddresses: true });
  const client = createPartnerClient({ ...base, registry, allowPrivateAddresses: true });
  const engine = createEngine({
    ...base,
    registry,
    client,
    funding: sandboxFunds(database),
    options: SHORT_TIMES,
  });
  await engine.start();
  // The test ends it; should the test be gone, it ends by itself.
  await systemClock.sleep(60_000);
  process.exit(0);
}
