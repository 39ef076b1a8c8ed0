/**
 * An update of a platform's database while payments are made: the tables of version 0.1.0, as test/upgrade recorded them, with many copies of a
 * payment that it had settled, are migrated to this version. Meanwhile customers of 0.1.0 confirm: each payment and its line of the audit are
 * written in one transaction, with the columns that 0.1.0 knew. None may be refused.
 *
 *     npm run bench -- upgrade [--payments 1000000] [--writers 3]
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { createLogger, migrate, openDatabase, type Database } from '@duebridge/runtime';
import { migrations } from '../packages/platform/src/migrations.ts';
import { movedToNow, restore } from '../test/upgrade/recording.ts';
import { end, withDatabase } from './database.ts';
import { benchOptions } from './options.ts';
import { quantile, report } from './report.ts';

const flags = benchOptions({ payments: '1000000', writers: '3' });
/** Pause of a writer between two payments. */
const PACE_MS = 20;
/** Payments are made for so long before the update, for comparison. */
const BEFORE_MS = 5_000;
/** Days over which the copies are spread: the update moves them into the partitions of their months. */
const DAYS = 90;
const PORTION = 100_000;

/** Copies a settled payment with all that 0.1.0 kept of it. */
async function fill(database: Database, settled: string): Promise<void> {
  for (let from = 0; from < flags.payments; from += PORTION) {
    const to = Math.min(from + PORTION, flags.payments);
    for (const table of ['payments', 'audit', 'sandbox_funds']) {
      const columns = await database.query<{ name: string; isMoment: boolean }>(
        `SELECT attname AS name, atttypid = 'timestamptz'::regtype AS "isMoment" FROM pg_attribute
          WHERE attrelid = 'duebridge_platform.${table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
      );
      const values = columns.map(({ name, isMoment }) => {
        if (isMoment) return `s.${name} - m.ago`;
        if (name === 'platform_payment_id') return 'm.id';
        if (name === 'account_id') return `'account-' || m.n / 36`;
        // Each its own: an index of a million equal texts is no figure of a real database.
        if (name === 'payment_id') return 'm.payment_id';
        if (name === 'detail')
          return `CASE WHEN s.detail ? 'payment_id' THEN s.detail || jsonb_build_object('payment_id', m.payment_id) ELSE s.detail END`;
        return name === 'audit_id' ? 'gen_random_uuid()' : `s.${name}`;
      });
      // The first characters of an id are its time, as in those of 0.1.0.
      await database.transaction(async (tx) => {
        await tx.query('SET LOCAL session_replication_role = replica');
        await tx.query(
          `INSERT INTO duebridge_platform.${table} (${columns.map(({ name }) => name).join(', ')})
           SELECT ${values.join(', ')} FROM duebridge_platform.${table} s,
                  LATERAL (SELECT n, ago, md5(n::text)::uuid::text AS payment_id, substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-' || lpad(to_hex(n), 12, '0') AS id
                             FROM generate_series(${from}, ${to - 1}) n, make_interval(secs => ${DAYS * 86_400} * (1 - n::float8 / ${flags.payments})) ago,
                                  lpad(to_hex((extract(epoch FROM now() - ago) * 1000)::bigint), 12, '0') h) m
            WHERE s.platform_payment_id = $1`,
          [settled],
        );
      });
    }
    console.error(`${to} of ${flags.payments} payments`);
  }
  await database.query('VACUUM ANALYZE');
}

/** A customer of 0.1.0 who confirms one payment after the other until `signal`. Gives how long each took, in milliseconds; throws when one is refused. */
async function confirming(
  database: Database,
  like: string,
  signal: AbortSignal,
): Promise<number[]> {
  const took: number[] = [];
  while (!signal.aborted) {
    const ms = BigInt(Date.now()).toString(16).padStart(12, '0');
    const id = `${ms.slice(0, 8)}-${ms.slice(8)}-7${randomUUID().slice(15)}`;
    const began = performance.now();
    await database.transaction(async (tx) => {
      await tx.query(
        `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
                session_id, funding_method)
         SELECT $1, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, session_id, funding_method
           FROM duebridge_platform.payments WHERE platform_payment_id = $2`,
        [id, like],
      );
      await tx.query(
        `INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id) VALUES ('session bench', 'payment_created', $1)`,
        [id],
      );
    });
    took.push(performance.now() - began);
    await delay(PACE_MS);
  }
  return took;
}

/** Runs `work` while payments are made; gives how long these took, in order. */
async function beside(database: Database, like: string, work: () => Promise<unknown>) {
  const stop = new AbortController();
  const writers = Promise.all(
    Array.from({ length: flags.writers }, () => confirming(database, like, stop.signal)),
  );
  await Promise.race([work(), writers]).finally(() => stop.abort());
  return (await writers).flat().toSorted((one, other) => one - other);
}

await withDatabase(async (url) => {
  const options = { maxConnections: flags.writers, statementTimeoutMs: 0 };
  const open = () => openDatabase({ url, applicationName: 'bench', ...options });
  const [theirs, ours] = [open(), open()];
  const file = new URL('../test/upgrade/0.1.0-baseline.json', import.meta.url);
  const recording = movedToNow(readFileSync(file, 'utf8'));
  await restore(theirs, 'duebridge_platform', recording.platform);
  const { succeeded } = recording.payments;
  await fill(theirs, succeeded);
  const quiet = await beside(theirs, succeeded, () => delay(BEFORE_MS));
  const began = performance.now();
  const log = createLogger({ name: 'bench', level: 'warn' });
  const took = await beside(theirs, succeeded, async () => {
    await migrate(ours, migrations, { log });
    await migrate(ours, migrations, { log, finish: true });
  });
  const figure = (what: string, value: number, unit?: string) =>
    report({ figure: 'upgrade', what, value, ...(unit && { unit }) });
  figure('an update while payments are made', (performance.now() - began) / 1_000, 's');
  figure('payments made meanwhile, none refused', took.length);
  for (const [what, part] of Object.entries({ p50: 0.5, p99: 0.99, slowest: 1 })) {
    figure(`${what} of payments before`, quantile(quiet, part), 'ms');
    figure(`${what} of payments beside the update`, quantile(took, part), 'ms');
  }
  await Promise.all([theirs.close(), ours.close()]);
});
await end();
