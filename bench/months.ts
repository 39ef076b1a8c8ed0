/**
 * Years of payments in the tables: what they weigh, how fast a platform drives payments beside them, and how long payments take while a month is
 * archived. The payments of the past are written into the tables by SQL, evenly over the months, as the platform leaves them; at most as many as
 * half of the free disk holds.
 *
 *     node bench/months.ts [--payments 1000000] [--months 24] [--driven 5000] [--rounds 3]
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock, type Database } from '@duebridge/runtime';
import { archiveMonths, type ArchivedMonth } from '../packages/platform/src/store/archive.ts';
import { end, measureProcessorTime, withDatabase } from './database.ts';
import { openEngine } from './engine.ts';
import { benchOptions } from './options.ts';
import { quantile, ratios, report } from './report.ts';

const flags = benchOptions({ payments: '1000000', months: '24', driven: '5000', rounds: '3' });
/** Room for a payment with its indexes, and for the write-ahead log of its insert, in bytes. */
const ROOM = 4_000;
const AT_ONCE = 100_000;
const CONCURRENCY = 64;
/** Pause between two payments while a month is archived. */
const PACE_MS = 20;
const SCHEMA = 'duebridge_platform';

type Place = Awaited<ReturnType<typeof openEngine>>;

const child = fork(new URL('drive.ts', import.meta.url), ['stub']);
const [port] = (await once(child, 'message')) as [number];
const stub = `http://127.0.0.1:${port}`;
const folder = await mkdtemp(join(tmpdir(), 'duebridge-months-'));
try {
  await withDatabase((empty) => withDatabase((full) => compare(empty, full)));
} finally {
  await rm(folder, { recursive: true });
  child.kill();
}
await end();

async function compare(empty: string, full: string): Promise<void> {
  const without = await openEngine(empty, stub, 'elsewhere', CONCURRENCY);
  const beside = await openEngine(full, stub, 'elsewhere', CONCURRENCY);
  const { bavail, bsize } = await statfs(tmpdir());
  const payments = Math.min(flags.payments, Math.floor((bavail * bsize) / 2 / ROOM));
  await makeMonths(beside.database);
  await fill(beside.database, payments);
  const size = await weigh(beside.database);
  console.log(`${payments} payments over ${flags.months} months`);
  report({
    figure: 'F14',
    what: 'payments and audit, a payment',
    value: size / payments,
    unit: 'bytes',
  });
  const alone: Driven[] = [];
  const besides: Driven[] = [];
  for (let round = 0; round < flags.rounds; round += 1) {
    alone.push(await drive(without));
    besides.push(await drive(beside));
  }
  for (const [what, of, target] of [
    ['payments driven', 'perSecond', 'at least 0.95'],
    ['processor time of a payment', 'micros', 'at most 1.05'],
  ] as const) {
    const [ours, theirs] = [besides, alone].map((rounds) => rounds.map((one) => one[of]));
    const compared = ratios(ours ?? [], theirs ?? []);
    const named = `${what} beside years of payments / in an empty database`;
    report({ figure: 'F14', what: named, ...compared, target });
  }
  await duringArchive(beside, payments);
  await without.close();
  await beside.close();
}

/** Partitions of the past, in the place of the empty first one. */
async function makeMonths(database: Database): Promise<void> {
  await database.query(
    `DO $do$ DECLARE parent text; month timestamp; name text; low text; high text; first text; BEGIN
       FOREACH parent IN ARRAY ARRAY['payments', 'audit'] LOOP
         SELECT c.relname INTO STRICT first FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
           WHERE i.inhparent = ('${SCHEMA}.' || parent)::regclass AND pg_get_expr(c.relpartbound, c.oid) LIKE '%MINVALUE%';
         EXECUTE format('ALTER TABLE ${SCHEMA}.%I DETACH PARTITION ${SCHEMA}.%I', parent, first);
         FOR ago IN 0..${flags.months} LOOP
           month := date_trunc('month', now() AT TIME ZONE 'UTC') - make_interval(months => ago);
           name := CASE ago WHEN 0 THEN first ELSE parent || to_char(month, '_YYYY_MM') END;
           low := month AT TIME ZONE 'UTC';
           high := (to_date(substr(name, length(parent) + 2), 'YYYY_MM') + interval '1 month') AT TIME ZONE 'UTC';
           IF parent = 'payments' THEN low := ${SCHEMA}.first_id(low::timestamptz); high := ${SCHEMA}.first_id(high::timestamptz); END IF;
           IF ago > 0 THEN EXECUTE format('CREATE TABLE ${SCHEMA}.%I (LIKE ${SCHEMA}.%I INCLUDING ALL)', name, parent); END IF;
           EXECUTE format('ALTER TABLE ${SCHEMA}.%I ATTACH PARTITION ${SCHEMA}.%I FOR VALUES FROM (%L) TO (%L)', parent, name, low, high);
         END LOOP;
       END LOOP;
     END $do$`,
  );
}

/** Payments of the past, all settled, and the line of each in the audit. */
async function fill(database: Database, payments: number): Promise<void> {
  for (let from = 0; from < payments; from += AT_ONCE) {
    const to = Math.min(payments, from + AT_ONCE);
    await database.transaction(
      async (tx) => {
        await tx.query('SET LOCAL session_replication_role = replica');
        await tx.query(
          `WITH made AS (
             SELECT n, at, substr(${SCHEMA}.first_id(at), 1, 15) || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0') AS id
               FROM generate_series($1::bigint, $2::bigint - 1) n,
                    LATERAL (SELECT date_trunc('month', now()) - make_interval(months => ${flags.months}) * (1 - n::float8 / $3) AS at) t
           ), paid AS (
             INSERT INTO ${SCHEMA}.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, session_id,
                    funding_method, status, stage, slot, payment_id, ended_by, initiated_at, posted_at, created_at, accepted_at, ended_at, settled_at)
             SELECT id, 'acme-1', 'acme-1', 'account-' || n % (1 + $3::bigint / 36), 'past-' || to_char(at, 'YYYYMMDD'), 100 + (n * 7919) % 100000,
                    gen_random_uuid()::text, 'elsewhere', 'succeeded', 'ended', n % 1024, gen_random_uuid()::text, 'partner', at, at, at, at,
                    at + interval '2 s', at + interval '2 s' FROM made RETURNING 1
           )
           INSERT INTO ${SCHEMA}.audit (at, actor, event, platform_payment_id, partner_id, detail)
           SELECT at + interval '2 s', 'worker-0123456789abcdef', 'payment_ended', id, 'acme-1',
                  jsonb_build_object('status', 'succeeded', 'by', 'partner', 'payment_id', gen_random_uuid(), 'amount_in_cents', 100) FROM made`,
          [from, to, payments],
        );
      },
      { statementTimeoutMs: 0 },
    );
  }
  await database.withConnection(async (connection) => {
    await connection.query('SET statement_timeout = 0');
    await connection.query('VACUUM ANALYZE');
  });
}

/** Bytes of payments and audit, with their indexes. */
async function weigh(database: Database): Promise<number> {
  const [row] = await database.query<{ bytes: number }>(
    `SELECT sum(pg_total_relation_size(inhrelid))::float8 AS bytes FROM pg_inherits
      WHERE inhparent IN ('${SCHEMA}.payments'::regclass, '${SCHEMA}.audit'::regclass)`,
  );
  return row?.bytes ?? 0;
}

interface Driven {
  readonly perSecond: number;
  /** Of this process and of PostgreSQL, a payment. */
  readonly micros: number;
}

/** Drives payments, from the first that is handed over to the last that has ended. */
async function drive(place: Place): Promise<Driven> {
  const rows = await place.make(flags.driven);
  const used = await measureProcessorTime();
  const from = performance.now();
  for (const row of rows) place.engine.take(row);
  await allEnded(place.database);
  const perSecond = flags.driven / ((performance.now() - from) / 1_000);
  const { node, postgres } = used();
  const [ofNode, ofPostgres] = [node, postgres].map((one) => (one * 1e6) / flags.driven) as [
    number,
    number,
  ];
  console.log(
    `drove ${perSecond.toFixed(0)}/s, Node ${ofNode.toFixed(0)} us, PostgreSQL ${ofPostgres.toFixed(0)} us`,
  );
  return { perSecond, micros: ofNode + ofPostgres };
}

async function allEnded(database: Database): Promise<void> {
  for (;;) {
    const open = await database.query(
      `SELECT 1 FROM ${SCHEMA}.payments WHERE settled_at IS NULL LIMIT 1`,
    );
    if (open.length === 0) return;
    await systemClock.sleep(20);
  }
}

/** How long payments take from their insert to their end, without anything beside them and while the oldest month is archived. */
async function duringArchive(place: Place, payments: number): Promise<void> {
  const { database } = place;
  const size = await weigh(database);
  let done: ArchivedMonth | undefined;
  const archived = await timesOf(place, async () => {
    [done] = await archiveMonths({
      database,
      before: await second(database),
      folder,
      clock: systemClock,
      actor: 'bench',
    });
  });
  const alone = await timesOf(place, () => systemClock.sleep(archived.tookMs));
  assert(done);
  const { folder: where } = done;
  const months = `${done.payments.rows} payments in ${(archived.tookMs / 1_000).toFixed(1)} s`;
  const what = `p99 of payments while ${months} are archived / before`;
  report({ figure: 'F14', what, value: archived.p99 / alone.p99, target: 'at most 1.5' });
  const files = await Promise.all(
    ['payments.zst', 'audit.zst'].map(async (name) => (await stat(join(where, name))).size),
  );
  const inFiles = files.reduce((sum, bytes) => sum + bytes) / done.payments.rows;
  report({
    figure: 'F14',
    what: 'an archived payment in its files',
    value: inFiles,
    unit: 'bytes',
  });
  const freed = (size - (await weigh(database))) / done.payments.rows;
  report({ figure: 'F14', what: 'freed by archiving a payment', value: freed, unit: 'bytes' });
  const left = size / payments - freed;
  report({ figure: 'F14', what: 'left of an archived payment', value: left, unit: 'bytes' });
}

/** The month after the oldest one. */
async function second(database: Database): Promise<string> {
  const [row] = await database.query<{ month: string }>(
    `SELECT replace(substr(c.relname, 10), '_', '-') AS month FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = '${SCHEMA}.payments'::regclass AND c.relname ~ '_\\d{4}_\\d\\d$' ORDER BY c.relname OFFSET 1 LIMIT 1`,
  );
  return row?.month ?? '';
}

/** Pays one after the other while `work` goes on: the ninety-ninth of a hundred times, in milliseconds. */
async function timesOf(
  place: Place,
  work: () => Promise<void>,
): Promise<{ p99: number; tookMs: number }> {
  const ids: string[] = [];
  const from = performance.now();
  const over = new AbortController();
  const working = work().finally(() => over.abort());
  while (!over.signal.aborted) {
    const [row] = await place.make(1);
    assert(row);
    ids.push(row.platform_payment_id);
    place.engine.take(row);
    await systemClock.sleep(PACE_MS);
  }
  const tookMs = performance.now() - from;
  await working;
  await allEnded(place.database);
  const rows = await place.database.query<{ ms: number }>(
    `SELECT (extract(epoch FROM ended_at - created_at) * 1000)::float8 AS ms FROM ${SCHEMA}.payments WHERE platform_payment_id = ANY($1)`,
    [ids],
  );
  const times = rows.map(({ ms }) => ms).toSorted((a, b) => a - b);
  return { p99: quantile(times, 0.99), tookMs };
}
