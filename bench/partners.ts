/**
 * Many partners and many workers: costs that must not grow with their number. 5,000 partners (`--partners`), of which every
 * worker has calls for 1,000, and 20 workers (`--workers`):
 * - the heartbeat of a worker while all of them agree on shares, compared with a single worker
 * - one exchange of shares of one worker
 * - closing the batches of one evening, one for each partner
 * - the size of /metrics
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  isMainThread,
  MessageChannel,
  Worker as Thread,
  workerData,
  type MessagePort,
} from 'node:worker_threads';
import { createMetrics, openDatabase, systemClock } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { engineMetrics } from '../packages/platform/src/engine/metrics.ts';
import {
  DatabaseTime,
  registerWorker,
  renewHeartbeat,
} from '../packages/platform/src/engine/ownership.ts';
import { Shares, type Demand } from '../packages/platform/src/engine/shares.ts';
import { closeBatches } from '../packages/platform/src/reconciliation/batch.ts';
import { migrations } from '../packages/platform/src/migrations.ts';
import { benchOptions } from './options.ts';
import { quantile, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, {
  partners: '5000',
  busy: '1000',
  workers: '20',
  rounds: '5',
});
const [partners, busy, workers, rounds] = [
  flags.partners,
  flags.busy,
  flags.workers,
  flags.rounds,
].map(Number) as [number, number, number, number];

/** A pool of a platform. */
function pool(url: string, applicationName: string) {
  return openDatabase({ url, applicationName, maxConnections: 2, plansByKey: true });
}

/** One more worker, in a thread of its own: it only beats, and gives the times of its heartbeats. */
async function beat(port: MessagePort, url: string): Promise<void> {
  const lease = pool(url, 'lease');
  const time = new DatabaseTime(systemClock);
  await registerWorker(lease, 'worker-beating', time);
  let times: number[] | undefined;
  port.on('message', (what: 'begin' | 'end') => {
    if (what === 'end') port.postMessage(times);
    times = what === 'begin' ? [] : undefined;
  });
  port.postMessage('ready');
  for (;;) {
    const from = performance.now();
    assert.ok(await renewHeartbeat(lease, 'worker-beating', 600_000, time));
    times?.push(performance.now() - from);
    await systemClock.sleep(5);
  }
}

if (!isMainThread) {
  const { port, url } = workerData as { port: MessagePort; url: string };
  await beat(port, url);
}

const hooks: (() => Promise<void>)[] = [];
try {
  const database = await testDatabase(
    { after: (hook) => hooks.push(hook) },
    { migrations, name: 'partners' },
  );
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at)
       SELECT 'batch-' || n, 'partner-' || n, now() - interval '1 minute' FROM generate_series(1, $1::int) n`,
      [partners],
    );
    await tx.query(
      `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
              funding_method, stage, status, payment_id, initiated_at, accepted_at, posted_at, ended_at, settled_at)
       SELECT 'p-' || n, 'partner-' || n % $1::int + 1, 'biller', 'A', 'batch-' || n % $1::int + 1, 100, 'sandbox_bank', 'ended', 'succeeded',
              'P-' || n, now(), now(), now(), now(), now() FROM generate_series(1, 20 * $1::int) n`,
      [partners],
    );
  });
  await database.query('ANALYZE');

  // Heartbeats and shares: each worker with the two pools of a platform.
  const fleet = await Promise.all(
    Array.from({ length: workers }, async (_, index) => {
      const own = pool(database.url, 'engine');
      database.closing(() => own.close());
      const worker_id = `worker-${index}`;
      await registerWorker(own, worker_id, new DatabaseTime(systemClock));
      return { worker_id, shares: new Shares(own, worker_id, 600_000) };
    }),
  );
  // A platform is one worker, so its heartbeat waits for the thread of one worker and not for that of twenty.
  const { port1: port, port2 } = new MessageChannel();
  const thread = new Thread(new URL(import.meta.url), {
    workerData: { url: database.url, port: port2 },
    transferList: [port2],
  });
  database.closing(async () => void (await thread.terminate()));
  await once(port, 'message');
  const beats = async (until: Promise<unknown>): Promise<number[]> => {
    port.postMessage('begin');
    await until;
    port.postMessage('end');
    const [times] = (await once(port, 'message')) as [number[]];
    return times.sort((a, b) => a - b);
  };
  const exchanges: number[] = [];
  const agree = (round: number) =>
    Promise.all(
      fleet.map(async ({ shares }, index) => {
        const demands = new Map<string, Demand>();
        for (let n = 0; n < busy; n += 1) {
          // Needs change between rounds, so that claims have to be written.
          const need = 1 + ((n + round + index) % 4);
          demands.set(`partner-${n}`, {
            calls: { cap: 64, need, inUse: 0 },
            rate: { cap: 100, need: need * 2, inUse: 0 },
          });
        }
        const from = performance.now();
        await shares.exchange(demands, Date.now(), () => 0);
        exchanges.push(performance.now() - from);
      }),
    );
  const alone = await beats(systemClock.sleep(2_000));
  const usage = process.cpuUsage();
  const busyBeats = await beats(
    (async () => {
      for (let round = 0; round < rounds; round += 1) await agree(round);
    })(),
  );
  const used = process.cpuUsage(usage);
  const many = `${workers} workers with ${busy} partners each`;
  report({
    figure: 'partners',
    what: `heartbeat p99 while ${many} agree on shares`,
    value: quantile(busyBeats, 0.99),
    unit: 'ms',
    target: 'at most 2,000 ms',
  });
  report({
    figure: 'partners',
    what: 'heartbeat p99 alone',
    value: quantile(alone, 0.99),
    unit: 'ms',
  });
  report({
    figure: 'partners',
    what: `one exchange, all ${workers} at once`,
    ...spread(exchanges),
    unit: 'ms',
  });
  report({
    figure: 'partners',
    what: 'processor time of Node for one exchange',
    value: (used.user + used.system) / 1_000 / exchanges.length,
    unit: 'ms',
  });

  await database.query(
    `UPDATE duebridge_platform.slots SET worker_id = 'worker-' || slot % $1::int`,
    [workers],
  );
  const from = performance.now();
  const closed = await Promise.all(
    fleet.map(({ worker_id }) => closeBatches(database, worker_id, { of: worker_id })),
  );
  assert.equal(closed.flat().length, partners);
  report({
    figure: 'partners',
    what: `closing ${partners} batches of 20 payments, by ${workers} workers in one process`,
    value: (performance.now() - from) / 1_000,
    unit: 's',
  });

  const metrics = createMetrics();
  const counting = engineMetrics(metrics, {
    inFlight: () => 0,
    ages: () => ({ oldestSeconds: 0, overdue: 0 }),
  });
  for (let n = 0; n < partners; n += 1) {
    counting.submitted(`partner-${n}`, 'accepted');
    counting.polled(`partner-${n}`, 'processing');
    counting.ended(`partner-${n}`, 'succeeded', 1_000);
  }
  report({
    figure: 'partners',
    what: `/metrics with ${partners} partners`,
    value: (await metrics.text()).length / 1_000,
    unit: 'kB',
    target: 'at most 1,000 kB',
  });
} finally {
  for (const hook of hooks) await hook();
}
