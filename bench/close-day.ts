/**
 * A day of a million payments for 500 billers: how long its batch takes to close and to become remittances at the desk, and how long a payment
 * waits meanwhile.
 *
 * The day is put into the tables as the platform would have left it: posted, settled and booked. Then one statement that a worker writes
 * for a payment runs every 20 ms while the batch is closed, compared, remitted and sent.
 *
 *     node bench/close-day.ts [--payments 1000000] [--billers 500]
 */
import { setTimeout as delay } from 'node:timers/promises';
import { migrate, openDatabase, silentLog, systemClock, type Database } from '@duebridge/runtime';
import { migrations } from '../packages/platform/src/migrations.ts';
import { checkMoney } from '../packages/platform/src/money/check.ts';
import { setPayout } from '../packages/platform/src/money/payouts.ts';
import { remit } from '../packages/platform/src/money/remittance.ts';
import { openPartnerRegistry } from '../packages/platform/src/partners/registry.ts';
import { openSealer } from '../packages/platform/src/partners/seal.ts';
import { closeBatches } from '../packages/platform/src/reconciliation/batch.ts';
import { end, withDatabase } from './database.ts';
import { benchOptions } from './options.ts';
import { report } from './report.ts';

const flags = benchOptions({ payments: '1000000', billers: '500' });
const sealKey = Buffer.alloc(32, 7).toString('base64');
const EVERY_MS = 20;

async function main(url: string): Promise<void> {
  const { payments, billers } = flags;
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
  try {
    await migrate(database, migrations, { log: silentLog });
    const base = { database, clock: systemClock, log: silentLog };
    const registry = openPartnerRegistry({ ...base, sealKey, allowPrivateAddresses: true });
    const sealer = openSealer(sealKey);
    await fill(database, registry, sealer, payments, billers);
    const compare = (id: string) =>
      database.query(
        `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences) VALUES ($1, 'bench', 'statement', $2, 0)`,
        [id, payments],
      );
    const remitting = { ...base, registry, sealer, channel: undefined, compare };

    const stop = new AbortController();
    const waits = neighbour(database, stop.signal);
    const started = performance.now();
    await closeBatches(database, 'bench');
    console.log(`closed after ${seconds(started)} s`);
    await remit(remitting);
    const waiting = await remit(remitting);
    const took = seconds(started);
    stop.abort();
    console.log(`remitted and at the desk after ${took} s; waiting: ${waiting.length}`);
    const worst = (await waits).toSorted((a, b) => a - b);
    const checked = performance.now();
    const { faults } = await checkMoney(database, Date.now(), 3);
    console.log(`checked in ${seconds(checked)} s, ${faults.length} faults`);
    if (faults.length > 0 || waiting.length > 0) {
      throw new Error(
        `the day did not end well: ${[...faults, ...waiting.map(({ why }) => why)].slice(0, 3).join('; ')}`,
      );
    }
    const day = `${payments} payments of ${billers} billers`;
    report({
      figure: 'F9',
      what: `a day of ${day}, closed and remitted`,
      value: took,
      unit: 's',
      target: 'at most 60 s',
    });
    report({
      figure: 'F9',
      what: `a payment's statement meanwhile, p99 of ${worst.length}`,
      value: Math.round(worst[Math.floor(worst.length * 0.99)] ?? 0),
      unit: 'ms',
      target: 'no payment waits for it',
    });
  } finally {
    await database.close();
  }
}

const seconds = (since: number): number => Math.round((performance.now() - since) / 100) / 10;

/** What a worker writes for a payment of today, again and again; how long each took, in milliseconds. */
async function neighbour(database: Database, signal: AbortSignal): Promise<number[]> {
  const waits: number[] = [];
  for (let count = 0; !signal.aborted; count += 1) {
    const began = performance.now();
    await database.query(
      `INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id)
       VALUES ($1, 'bench', current_date, 'taken', 'under_way', 1, 'neighbour', 'b')`,
      [`neighbour-${count}`],
    );
    waits.push(performance.now() - began);
    await delay(EVERY_MS);
  }
  return waits;
}

async function fill(
  database: Database,
  registry: ReturnType<typeof openPartnerRegistry>,
  sealer: ReturnType<typeof openSealer>,
  payments: number,
  billers: number,
): Promise<void> {
  const names = Array.from({ length: billers }, (_, index) => `biller-${index}`);
  await registry.add(
    {
      partner_id: 'agg',
      name: 'An aggregator',
      kind: 'aggregator',
      biller_names: Object.fromEntries(names.slice(0, 100).map((name) => [name, name])),
      base_url: 'http://127.0.0.1:9',
      origins: [],
      auth: { method: 'key', header: 'x-api-key', key: 'partner-key-0123456789' },
    },
    'bench',
  );
  const partner = await registry.get('agg');
  if (partner === undefined) throw new Error('the partner was not registered');
  for (const biller_id of names) {
    const account = { routing_number: '021000021', account_number: '000111222' };
    const payout = { biller_id, way: 'pain001', holder_name: biller_id, ...account } as const;
    await setPayout({ database, sealer }, partner, payout, 'bench');
  }
  await database.transaction(
    async (tx) => {
      await tx.query('SET LOCAL session_replication_role = replica');
      await tx.query(
        `INSERT INTO duebridge_platform.batches (platform_batch_id, partner_id, cutoff_at) VALUES ('day', 'agg', now() - interval '1 second')`,
      );
      const id = `lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0')`;
      await tx.query(
        `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
                funding_method, status, stage, slot, payment_id, ended_by, initiated_at, posted_at, created_at, accepted_at, ended_at, settled_at)
         SELECT left(${id}, 8) || '-' || right(${id}, 4) || '-7000-8000-' || lpad(n::text, 12, '0'), 'agg', 'biller-' || n % $2, 'A-' || n, 'day',
                100 + n % 9000, 'a_card', 'succeeded', 'ended', 7, 'P-' || n, 'partner', now(), now(), now(), now(), now(), now()
           FROM generate_series(1, $1::int) AS n`,
        [payments, billers],
      );
      await tx.query(
        `INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id, funding_method)
         SELECT p.platform_payment_id, 'settled', current_date, 'taken', 'owed', p.amount_in_cents, p.partner_id, p.biller_id, p.funding_method
           FROM duebridge_platform.payments p`,
      );
    },
    { statementTimeoutMs: 0 },
  );
}

await withDatabase(main);
await end();
