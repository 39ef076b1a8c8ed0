/**
 * F5: a million payments in flight in one worker: its memory, and how long another worker needs to take them all over after a kill.
 *
 * The payments are put into the table as a dead platform would have left them: accepted by a partner, in slots of a worker that
 * no longer sends heartbeats. No statistics are gathered, as on a new database. Then a real platform starts, built as it is published and
 * with the words of the systemd unit, is killed when it holds them all, and a second one takes over when the first one's lease expires. The partner is paused,
 * so that the benchmark measures taking over and holding payments, not driving them.
 *
 *     node bench/adopt.ts [--payments 1000000] [--partners 20]
 *
 * Prints for each start when its listeners answered, when it held every payment, its memory then, and whether a lease was lost; the
 * last line is the figure. Exits with 1 when a payment is missing or a lease was lost.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { migrate, openDatabase, silentLog, systemClock, type Database } from '@duebridge/runtime';
import { freePort } from '@duebridge/runtime/testing';
import { migrations } from '../packages/platform/src/migrations.ts';
import { openPartnerRegistry } from '../packages/platform/src/partners/registry.ts';
import { buildPackages } from '../scripts/build.ts';
import { end, withDatabase } from './database.ts';
import { benchOptions } from './options.ts';
import { report } from './report.ts';

const flags = benchOptions({ payments: '1000000', partners: '20' });

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

async function main(url: string): Promise<boolean> {
  const { payments, partners } = flags;
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-adopt-'));
  const children: ChildProcess[] = [];
  try {
    const command = await productionCommand(folder);
    await migrate(database, migrations, { log: silentLog });
    await fill(database, payments, partners);
    const first = await takeOver(url, payments, { command, children });
    show('first start', first);
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    const second = await takeOver(url, payments, { command, children });
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
      what: `${name}, resident memory, the larger of both`,
      value: Math.max(first.megabytes, second.megabytes),
      unit: 'MB',
      target: 'at most 1,000 MB',
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
    rmSync(folder, { recursive: true, force: true });
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

/** How production starts a platform: the program and its words after node, from the systemd unit, with the packages as published. */
async function productionCommand(folder: string): Promise<readonly string[]> {
  const unit = readFileSync(
    join(import.meta.dirname, '../deploy/systemd/duebridge-platform@.service'),
    'utf8',
  );
  const words = /^ExecStart=\/usr\/bin\/env node (.*)$/m.exec(unit)?.[1]?.split(' ') ?? [];
  assert(words.includes('serve'), 'the systemd unit starts no platform');
  const modules = join(folder, 'node_modules');
  await buildPackages(modules, { web: false });
  const installed = join(import.meta.dirname, '../node_modules');
  for (const name of readdirSync(installed)) {
    if (!existsSync(join(modules, name))) symlinkSync(join(installed, name), join(modules, name));
  }
  return words.map((word) => word.replace('/opt/duebridge', folder));
}

/** Starts a platform and waits until it holds every payment. */
async function takeOver(
  url: string,
  payments: number,
  { command, children }: { command: readonly string[]; children: ChildProcess[] },
): Promise<Taken> {
  const [port, adminPort] = [await freePort(), await freePort()];
  const startedAt = performance.now();
  const child = spawn(process.execPath, command, {
    env: {
      PATH: process.env['PATH'],
      NODE_ENV: 'production',
      PORT: String(port),
      ADMIN_PORT: String(adminPort),
      DATABASE_URL: url,
      DUEBRIDGE_SEAL_KEY: secrets.sealKey,
      DUEBRIDGE_KEY_PEPPER: secrets.keyPepper,
      DUEBRIDGE_ADMIN_KEY: secrets.adminKey,
      DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
      LOG_LEVEL: process.env['VERBOSE'] === '1' ? 'info' : 'error',
    },
    stdio: 'inherit',
  });
  children.push(child);
  const text = async (address: string): Promise<string | undefined> => {
    assert(child.exitCode === null, 'the platform did not start');
    assert(performance.now() - startedAt < PATIENCE_MS, `${address}: not in time`);
    return fetch(address).then(
      (answer) => answer.text(),
      () => undefined,
    );
  };
  const metrics = `http://127.0.0.1:${adminPort}/metrics`;
  for (const address of [`http://127.0.0.1:${port}/healthz`, metrics]) {
    while ((await text(address)) === undefined) await delay(20);
  }
  const startedMs = performance.now() - startedAt;
  const all = new RegExp(`^duebridge_payments_in_flight ${payments}$`, 'm');
  // Each reading goes through all payments for the age of the oldest, and takes the time from the takeover.
  while (!all.test((await text(metrics)) ?? '')) await delay(500);
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

await end((await withDatabase(main)) ? 0 : 1);
