/**
 * F5: a million payments in flight in one worker: its memory, and how long another worker needs to take them all over after a kill.
 *
 * The payments are put into the table as a dead platform would have left them: accepted by a partner, in slots of a worker that
 * no longer sends heartbeats. No statistics are gathered, as on a new database. Then a real platform starts in a process of its
 * own, is killed when it holds them all, and a second one takes over when the first one's lease expires. The partner is paused,
 * so that the benchmark measures taking over and holding payments, not driving them.
 *
 *     node bench/adopt.ts [--payments 1000000] [--partners 20]
 *
 * Prints for each start when its listeners answered, when it held every payment, its memory then, and whether a lease was lost; the
 * last line is the figure. Exits with 1 when a payment is missing or a lease was lost.
 */
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import {
  createLogger,
  ensureDatabase,
  migrate,
  openDatabase,
  silentLog,
  systemClock,
  type Database,
} from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { migrations } from '../packages/platform/src/migrations.ts';
import { openPartnerRegistry } from '../packages/platform/src/partners/registry.ts';
import { startPlatform } from '../packages/platform/src/server.ts';
import { benchOptions } from './options.ts';
import { report } from './report.ts';

const flags = benchOptions(import.meta.main, { payments: '1000000', partners: '20' });

/** Time limit for a worker to hold every payment. */
const PATIENCE_MS = 180_000;
const secrets = {
  sealKey: Buffer.alloc(32, 7).toString('base64'),
  keyPepper: Buffer.alloc(32, 9).toString('base64'),
  adminKey: 'admin-key-of-the-benchmark',
};

interface Taken {
  readonly child: ChildProcess;
  readonly startedMs: number;
  readonly heldMs: number;
  readonly megabytes: number;
}

async function main(): Promise<boolean> {
  const payments = Number(flags.payments);
  const server = await testServer();
  const url = await ensureDatabase(server.url, `bench_adopt_${randomBytes(4).toString('hex')}`);
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
  const children: ChildProcess[] = [];
  try {
    await migrate(database, migrations, { log: silentLog });
    await fill(database, payments, Number(flags.partners));
    const first = await takeOver(url, payments, children);
    show('first start', first);
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    const second = await takeOver(url, payments, children);
    show('after a kill', second);
    const lost = await database.query<{ count: number }>(
      "SELECT count(*) AS count FROM duebridge_platform.workers WHERE heartbeat_at < now() - interval '5 s'",
    );
    // The killed worker may still be listed; a second stale worker has lost its lease.
    const kept = (lost[0]?.count ?? 0) <= 1;
    const leaseMs = 10_000;
    const seconds = (second.heldMs - leaseMs) / 1_000;
    console.log(`no lease lost: ${kept ? 'yes' : 'NO'}`);
    const name = `${payments} payments in flight`;
    report({
      figure: 'F5',
      what: `${name}, resident memory`,
      value: second.megabytes,
      unit: 'MB',
      target: 'at most 500 MB',
    });
    report({
      figure: 'F5',
      what: `${name}, taken over after the lease of the killed worker ran out`,
      value: Math.max(0, seconds),
      unit: 's',
      target: 'at most 20 s',
    });
    return kept;
  } finally {
    for (const child of children) child.kill('SIGKILL');
    await database.close();
    await server.stop();
  }
}

function show(what: string, taken: Taken): void {
  const { startedMs, heldMs, megabytes } = taken;
  console.log(
    `${what}: listeners after ${(startedMs / 1_000).toFixed(1)} s, everything held after ${(heldMs / 1_000).toFixed(1)} s, ${megabytes} MB`,
  );
}

/** Inserts accepted payments into every slot, owned by a dead worker. */
async function fill(database: Database, payments: number, partners: number): Promise<void> {
  const registry = openPartnerRegistry({
    database,
    sealKey: secrets.sealKey,
    allowPrivateAddresses: true,
    clock: systemClock,
    log: silentLog,
  });
  for (let index = 0; index < partners; index += 1) {
    const partner_id = `partner-${index}`;
    await registry.add(
      {
        partner_id,
        name: 'A biller',
        kind: 'biller',
        biller_id: `biller-${index}`,
        base_url: 'http://127.0.0.1:9',
        origins: [],
        auth: { method: 'key', header: 'x-api-key', key: 'benchmark-key' },
      },
      'bench',
    );
    await registry.change(partner_id, { paused: true }, 'bench');
  }
  await database.transaction(async (tx) => {
    // Insert them directly in their accepted state; the table's triggers would require every stage in between.
    await tx.query('SET LOCAL session_replication_role = replica');
    await tx.query(
      `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at)
       SELECT '2026-01-01-' || md5(partner_id), partner_id, now() + interval '1 day' FROM duebridge_platform.partners`,
    );
    await tx.query(
      `INSERT INTO duebridge_platform.payments
         (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, session_id, funding_method,
          stage, slot, payment_id, initiated_at, accepted_at)
       SELECT gen_random_uuid(), 'partner-' || n % $2, 'biller-' || n % $2, 'ACC-' || n, '2026-01-01-' || md5('partner-' || n % $2), 12345,
              gen_random_uuid(), 'sandbox_bank', 'accepted', n % 1024, gen_random_uuid(), now(), now()
         FROM generate_series(1, $1) n`,
      [payments, partners],
    );
    await tx.query(`UPDATE duebridge_platform.slots SET worker_id = 'worker-of-yesterday'`);
  });
}

/** Starts a platform and waits until it holds every payment. */
async function takeOver(url: string, payments: number, children: ChildProcess[]): Promise<Taken> {
  const startedAt = performance.now();
  const child = fork(new URL(import.meta.url), [], {
    env: { ...process.env, ADOPT_DATABASE: url },
    // As the image and the systemd unit start a server.
    execArgv: ['--max-semi-space-size=16'],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  children.push(child);
  const [adminUrl] = (await once(child, 'message')) as [string];
  const startedMs = performance.now() - startedAt;
  for (;;) {
    const response = await fetch(new URL('/metrics', adminUrl));
    const text = await response.text();
    const held = Number(/^duebridge_payments_in_flight (\d+)$/m.exec(text)?.[1] ?? 0);
    if (held === payments) break;
    assert(performance.now() - startedAt < PATIENCE_MS, `only ${held} payments are held`);
    await delay(100);
  }
  const heldMs = performance.now() - startedAt;
  // Let the garbage collector free what loading used: the figure is the memory for holding the payments.
  await delay(3_000);
  assert(child.pid !== undefined);
  return { child, startedMs, heldMs, megabytes: megabytesOf(child.pid) };
}

/** Resident memory of a process. */
function megabytesOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) / 1_024);
}

async function platform(databaseUrl: string): Promise<void> {
  const { adminUrl } = await startPlatform({
    ...secrets,
    databaseUrl,
    port: 0,
    adminPort: 0,
    allowPrivateAddresses: true,
    log: process.env['VERBOSE'] === '1' ? createLogger({ name: 'platform' }) : silentLog,
  });
  process.send?.(adminUrl);
}

const databaseUrl = process.env['ADOPT_DATABASE'];
if (databaseUrl === undefined) process.exitCode = (await main()) ? 0 : 1;
else await platform(databaseUrl);
