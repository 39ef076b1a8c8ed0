/**
 * F6: what millions of stored payments cost: accepting (F1) and driving (F3) with `--payments` (10,000,000) in the tables, against
 * `--small` (10,000), in alternating rounds. The stored payments have ended, over 1,000 batches, as a living platform's have; the
 * tables are analyzed, because a living database's are.
 *
 *     node bench/growth.ts [--payments 10000000] [--small 10000] [--rounds 3] [--seconds 5]
 */
import { randomBytes } from 'node:crypto';
import { ensureDatabase, migrate, openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { migrations } from '../packages/platform/src/migrations.ts';
import { benchOptions } from './options.ts';
import { driveKit, prepareKit } from './accept.ts';
import { driveIn, startStub } from './drive.ts';
import { ratios, report } from './report.ts';

const flags = benchOptions(import.meta.main, {
  payments: '10000000',
  small: '10000',
  rounds: '3',
  seconds: '5',
  drive: '5000',
});
const sizes = { small: Number(flags.small), large: Number(flags.payments) };
/** Rows of one INSERT while filling: seconds each. */
const CHUNK = 250_000;

async function fill(url: string, count: number, statement: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'bench fill', statementTimeoutMs: 0 });
  for (let from = 1; from <= count; from += CHUNK) {
    await database.transaction(async (tx) => {
      // Inserted in the final state; the triggers would require each step on the way.
      await tx.query('SET LOCAL session_replication_role = replica');
      await tx.query('SET LOCAL synchronous_commit = off');
      await tx.query(statement, [from, Math.min(count, from + CHUNK - 1)]);
    });
  }
  await database.query('VACUUM (ANALYZE)');
  await database.query('CHECKPOINT');
  await database.close();
}

const server = await testServer();
const stub = await startStub();
const made: string[] = [];
async function newDatabase(): Promise<string> {
  const name = `bench_${randomBytes(5).toString('hex')}`;
  made.push(name);
  return ensureDatabase(server.url, name);
}

async function kitWith(count: number): Promise<string> {
  const url = await newDatabase();
  await prepareKit(url);
  await fill(
    url,
    count,
    `INSERT INTO duebridge_partner.payment
       (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents, status, failure_reason, initiated_at, ended_at)
     SELECT lpad(to_hex(n), 12, '0') || '-' || md5(n::text), gen_random_uuid(), 'batch-' || n % 1000, 'acme', 'A-' || n % 10000, 'static-key', 2500,
            'failed', 'stored before', now(), now()
       FROM generate_series($1::bigint, $2::bigint) n`,
  );
  return url;
}

async function platformWith(count: number): Promise<string> {
  const url = await newDatabase();
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
  await migrate(database, migrations);
  await database.close();
  await fill(
    url,
    count,
    `INSERT INTO duebridge_platform.payments
       (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, session_id, funding_method,
        stage, status, payment_id, initiated_at, accepted_at, posted_at, ended_at, settled_at)
     SELECT lpad(to_hex(n), 12, '0') || '-' || md5(n::text), 'partner-' || n % 100, 'biller', 'ACC-' || n % 1000000, 'batch-' || n % 1000, n % 100000 + 1,
            gen_random_uuid(), 'sandbox_bank', 'ended', 'succeeded', 'P-' || n, now(), now(), now(), now(), now()
       FROM generate_series($1::bigint, $2::bigint) n`,
  );
  return url;
}

try {
  const from = performance.now();
  const kits = { small: await kitWith(sizes.small), large: await kitWith(sizes.large) };
  const platforms = {
    small: await platformWith(sizes.small),
    large: await platformWith(sizes.large),
  };
  console.log(`filled in ${((performance.now() - from) / 1_000).toFixed(0)} s`);
  const accepted = { small: [] as number[], large: [] as number[] };
  const driven = { small: [] as number[], large: [] as number[] };
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    for (const size of ['small', 'large'] as const) {
      accepted[size].push(await driveKit('kit-accept', kits[size], 256, Number(flags.seconds)));
      driven[size].push(
        (await driveIn(platforms[size], stub.url, Number(flags.drive), 64)).perSecond,
      );
      console.log(
        `round ${round}, ${sizes[size]} stored: accept ${Math.round(accepted[size].at(-1) ?? 0)}/s, drive ${Math.round(driven[size].at(-1) ?? 0)}/s`,
      );
    }
  }
  const target = 'at least 0.85';
  const what = `with ${sizes.large} payments stored / with ${sizes.small}`;
  report({
    figure: 'F6',
    what: `accept ${what}`,
    ...ratios(accepted.large, accepted.small),
    target,
  });
  report({ figure: 'F6', what: `drive ${what}`, ...ratios(driven.large, driven.small), target });
} finally {
  stub.process.kill();
  const admin = openDatabase({ url: server.url, applicationName: 'bench', statementTimeoutMs: 0 });
  for (const name of made) await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  await admin.close();
  await server.stop();
}
