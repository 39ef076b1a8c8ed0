/**
 * Load for a while: an engine drives `--rate` payments a second (default 200, about half of what it drives at full load on two
 * cores) at a partner kit of its own process, for `--minutes` (default 60). Every ten seconds: resident memory of both, the times
 * from confirm to end, and what the tables and their dead rows take. Flat is the figure: the last fifth against the second.
 *
 *     npm run bench -- soak --minutes 10 [--rate 200] [--out bench/results/soak.json]
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import {
  createServer,
  importAccounts,
  migratePartner,
  openDatabase,
  partnerKit,
} from '@duebridge/partner';
import { ensureDatabase, systemClock } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import pg from 'pg';
import { benchOptions } from './options.ts';
import { groundIn, PARTNERS } from './drive.ts';
import { quantile, report } from './report.ts';

const flags = benchOptions(import.meta.main, { minutes: '60', rate: '200', out: undefined });
const EVERY_MS = 10_000;

interface Sample {
  readonly seconds: number;
  readonly engine_mb: number;
  readonly kit_mb: number;
  readonly ended: number;
  readonly in_flight: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly platform_table_mb: number;
  readonly platform_index_mb: number;
  readonly dead_rows: number;
}

function megabytes(pid: number | 'self'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Math.round(Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1_024);
}

async function main(): Promise<void> {
  const server = await testServer();
  const made = ['platform', 'partner'].map(
    (side) => `bench_${side}_${randomBytes(4).toString('hex')}`,
  );
  const [url, kitUrl] = (await Promise.all(
    made.map((name) => ensureDatabase(server.url, name)),
  )) as [string, string];
  const kit = fork(new URL(import.meta.url), ['serve'], {
    env: { ...process.env, SOAK_DATABASE: kitUrl },
  });
  const [partnerUrl] = (await once(kit, 'message')) as [string];
  const place = await groundIn(url, partnerUrl, 64, {});
  const samples: Sample[] = [];
  const rate = Number(flags.rate);
  const began = performance.now();
  const until = began + Number(flags.minutes) * 60_000;
  const underWay = new Set<string>();
  let [times, created, late, unpaid]: [number[], number, number, number] = [[], 0, 0, 0];
  let nextSample = began + EVERY_MS;
  while (performance.now() < until) {
    // A tenth of a second's payments together, like confirms that share a flush.
    const due = Math.floor(((performance.now() - began) / 1_000) * rate) - created;
    if (due > rate * 2) late += 1;
    if (due > 0) {
      const rows = await place.make(Math.min(due, 500));
      const from = performance.now();
      for (const row of rows) {
        underWay.add(row.platform_payment_id);
        const unwatch = place.engine.watch(row.platform_payment_id, (now) => {
          if (now.stage !== 'ended') return;
          unwatch();
          underWay.delete(row.platform_payment_id);
          times.push(performance.now() - from);
          if (now.status !== 'succeeded') unpaid += 1;
        });
        place.engine.take(row);
      }
      created += rows.length;
    }
    if (performance.now() >= nextSample) {
      nextSample += EVERY_MS;
      const [sizes] = await place.database.query<{
        table_mb: number;
        index_mb: number;
        dead: number;
      }>(
        `SELECT (sum(pg_table_size(relid)) / 1048576)::int AS table_mb, (sum(pg_indexes_size(relid)) / 1048576)::int AS index_mb,
                sum(n_dead_tup)::bigint AS dead FROM pg_stat_user_tables WHERE schemaname = 'duebridge_platform'`,
      );
      const sorted = times.toSorted((a, b) => a - b);
      times = [];
      assert(kit.pid !== undefined && sizes);
      assert.equal(unpaid, 0, 'payments failed: the figures would be of refusals');
      const sample: Sample = {
        seconds: Math.round((performance.now() - began) / 1_000),
        engine_mb: megabytes('self'),
        kit_mb: megabytes(kit.pid),
        ended: sorted.length,
        in_flight: underWay.size,
        p50_ms: Math.round(quantile(sorted, 0.5)),
        p99_ms: Math.round(quantile(sorted, 0.99)),
        platform_table_mb: sizes.table_mb,
        platform_index_mb: sizes.index_mb,
        dead_rows: sizes.dead,
      };
      samples.push(sample);
      console.log(JSON.stringify(sample));
    }
    await systemClock.sleep(100);
  }
  for (const end = performance.now() + 60_000; underWay.size > 0 && performance.now() < end;)
    await systemClock.sleep(100);
  const [unfinished] = await place.database.query<{ wrong: number }>(
    `SELECT count(*) AS wrong FROM duebridge_platform.payments WHERE status <> 'succeeded'`,
  );
  await place.close();
  kit.send('stop');
  await once(kit, 'exit');
  const admin = new pg.Client(server.url);
  await admin.connect();
  for (const name of made) await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await admin.end();
  await server.stop();

  const fifth = Math.max(1, Math.floor(samples.length / 5));
  const [early, last] = [samples.slice(fifth, 2 * fifth), samples.slice(-fifth)];
  const mean = (list: readonly Sample[], key: keyof Sample): number =>
    list.reduce((sum, sample) => sum + sample[key], 0) / list.length;
  const what = `${flags.minutes} minutes at ${rate}/s, last fifth / second fifth`;
  for (const key of ['engine_mb', 'kit_mb', 'p50_ms', 'p99_ms', 'dead_rows'] as const) {
    report({ figure: 'soak', what: `${key}, ${what}`, value: mean(last, key) / mean(early, key) });
  }
  report({
    figure: 'soak',
    what: 'payments that did not succeed',
    value: unfinished?.wrong ?? Number.NaN,
    target: '0',
  });
  report({
    figure: 'soak',
    what: 'moments at which confirms were 2 s behind',
    value: late,
    target: '0',
  });
  const out = flags.out;
  if (typeof out === 'string')
    writeFileSync(
      out,
      `${JSON.stringify({ minutes: Number(flags.minutes), rate, created, late, samples }, null, 1)}\n`,
    );
}

async function serve(): Promise<void> {
  const database = openDatabase({
    url: process.env['SOAK_DATABASE'] ?? '',
    applicationName: 'soak kit',
  });
  await migratePartner(database);
  await importAccounts(
    database,
    PARTNERS.map((biller_id) => ({
      biller_id,
      account_id: 'A-1',
      amount_due_in_cents: 1_000_000_000,
    })),
  );
  const app = createServer();
  await app.register(partnerKit, {
    database,
    auth: { method: 'key', header: 'x-api-key', keys: ['benchmark-key-0123456789'] },
  });
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  process.send?.(address);
  await once(process, 'message');
  await app.close();
  await database.close();
  process.exit(0);
}

if (process.argv[2] === 'serve') await serve();
else await main();
