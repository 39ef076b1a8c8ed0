/**
 * F14: years of payments in the tables of both sides (fill-years.ts): what they weigh, whether any statement reads a large table from its
 * beginning to its end, how fast payments are accepted by the kit (F1) and driven by the platform (F3) beside them and in empty databases, and how
 * long payments take while a month is archived.
 *
 *     npm run bench -- years [--payments 200000] [--months 36] [--driven 3000] [--rounds 3]
 *
 * A payment takes 2.5 kB of the disk of the temporary directory, and a month once more while it is archived.
 */
import assert from 'node:assert/strict';
import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startPlatform } from '@duebridge/platform';
import { openDatabase, silentLog, systemClock, type Database } from '@duebridge/runtime';
import { readEverything, scansOf } from '../packages/platform/test/reads.ts';
import { driveKit, prepareKit } from './accept.ts';
import { end, measureProcessorTime, withDatabase } from './database.ts';
import { openEngine, SEAL_KEY } from './engine.ts';
import { fillYears, sizesOf } from './fill-years.ts';
import { benchOptions } from './options.ts';
import { quantile, ratios, report } from './report.ts';

const flags = benchOptions({ payments: '200000', months: '36', driven: '3000', rounds: '3' });
const CONCURRENCY = 64;
/** Pause between two payments while months are archived, and how many are to be measured. */
const [PACE_MS, MEASURED] = [5, 1_500];
/** Payments are made for so long before they are measured. */
const WARM_UP_MS = 3_000;
/** Payments that are made by the engine, and then copied. */
const MADE = 200;
const SCHEMA = 'duebridge_platform';

type Place = Awaited<ReturnType<typeof openEngine>>;
/** What a round gave: payments a second, and the microseconds of processor time of one, without that of the other side. */
interface Driven {
  readonly perSecond: number;
  readonly micros: number;
}

const stub = fork(new URL('drive.ts', import.meta.url), ['stub']);
const [port] = (await once(stub, 'message')) as [number];
async function withPlace(url: string, work: (place: Place) => Promise<void>): Promise<void> {
  const place = await openEngine(url, `http://127.0.0.1:${port}`, 'port', CONCURRENCY);
  await work(place);
  await place.close();
}
try {
  await withDatabase((kit) => withDatabase((platform) => measure(kit, platform)));
} finally {
  stub.kill();
}
await end();

async function measure(kitUrl: string, platformUrl: string): Promise<void> {
  const { payments, months } = flags;
  await withPlace(platformUrl, async (place) => {
    await drive(place, MADE);
    await place.finish();
  });
  await prepareKit(kitUrl);
  await driveKit('kit', kitUrl, { seconds: 1, connections: 8 });
  await Promise.all([
    fillYears(platformUrl, SCHEMA, payments, months),
    fillYears(kitUrl, 'duebridge_partner', payments, months),
  ]);
  console.log(`${payments} payments over ${months} months`);
  const open = (url: string): Database =>
    openDatabase({ url, applicationName: 'bench', maxConnections: 1 });
  const [kit, platform] = [open(kitUrl), open(platformUrl)];
  await showSizes(platform, SCHEMA);
  await showSizes(kit, 'duebridge_partner');
  const before = await scansOf(platform);
  await readConsole(platformUrl);
  await acceptBeside(kitUrl);
  await withPlace(platformUrl, driveBeside);
  const scanned = [...(await scansOf(platform))].flatMap(([name, scans]) =>
    scans > (before.get(name) ?? Infinity) ? [name] : [],
  );
  const what = `of ${before.size} large tables read as a whole ${scanned.join(', ')}`.trim();
  report({ figure: 'F14', what, value: scanned.length, unit: 'tables', target: '0' });
  await withPlace(platformUrl, (place) => archiveBeside(place, platformUrl));
  await kit.close();
  await platform.close();
}

async function showSizes(database: Database, schema: string): Promise<void> {
  const all = (await sizesOf(database, schema)).filter(({ rows }) => rows >= 1_000);
  console.log(`${schema}: MB, and bytes a payment, of tables and indexes`);
  for (const { table, heap, indexes } of all) {
    const figures = [heap / 1e6, indexes / 1e6, heap / flags.payments, indexes / flags.payments];
    const shown = figures.map((one) => one.toFixed(0).padStart(9)).join('');
    console.log(`  ${table.padEnd(20)}${shown}`);
  }
  const value = all.reduce((sum, { heap, indexes }) => sum + heap + indexes, 0) / flags.payments;
  report({ figure: 'F14', what: `a payment of the past in ${schema}`, value, unit: 'bytes' });
}

/** Every page of the console and every search, each as an operator asks, while the loops of a platform run. */
async function readConsole(databaseUrl: string): Promise<void> {
  const platform = await startPlatform({
    port: 0,
    adminPort: 0,
    databaseUrl,
    sealKey: SEAL_KEY,
    keyPepper: Buffer.alloc(32, 8).toString('base64'),
    adminKey: 'a-key-of-the-benchmark-0123456789',
    allowPrivateAddresses: true,
    log: silentLog,
  });
  const read = async (
    path: string,
    search?: object,
  ): Promise<{ status: number; body: unknown }> => {
    const answer = await fetch(platform.adminUrl + path, {
      headers: {
        authorization: `Bearer ${platform.adminKey}`,
        'content-type': 'application/json',
      },
      ...(search && { method: 'POST', body: JSON.stringify(search) }),
    });
    return { status: answer.status, body: await answer.json() };
  };
  // The first request of a new server loads what the others use.
  await read('/admin/v1/partners');
  const took = await readEverything(read);
  await platform.stop();
  const slowest = took.toSorted((one, other) => other.ms - one.ms);
  for (const { path, ms } of slowest.slice(0, 5)) console.log(`  ${ms.toFixed(0)} ms  ${path}`);
  const what = `${took.length} pages and searches of the console, the slowest`;
  report({ figure: 'F14', what, value: slowest[0]?.ms ?? Number.NaN, unit: 'ms' });
}

async function acceptBeside(kitUrl: string): Promise<void> {
  const load = { seconds: 5, connections: 64 };
  await inTurns(
    'accepted',
    () => driveKit('kit-accept', kitUrl, load),
    () =>
      withDatabase(async (url) => {
        await prepareKit(url);
        return driveKit('kit-accept', url, load);
      }),
  );
}

async function driveBeside(place: Place): Promise<void> {
  await withDatabase((empty) =>
    withPlace(empty, (without) =>
      inTurns(
        'driven',
        () => drive(place, flags.driven),
        () => drive(without, flags.driven),
      ),
    ),
  );
}

/** Reports rates and processor times beside years of payments, divided by those in an empty database. */
async function inTurns(
  done: string,
  beside: () => Promise<Driven>,
  alone: () => Promise<Driven>,
): Promise<void> {
  const [theirs, ours]: [Driven[], Driven[]] = [[], []];
  for (let round = 0; round < flags.rounds; round += 1) {
    theirs.push(await alone());
    ours.push(await beside());
  }
  for (const [what, of, target] of [
    [`payments ${done}`, 'perSecond', 'at least 0.95'],
    [`processor time of a payment ${done}`, 'micros', 'at most 1.05'],
  ] as const) {
    const [besides, alones] = [ours, theirs].map((rounds) => rounds.map((one) => one[of]));
    const compared = ratios(besides ?? [], alones ?? []);
    const named = `${what} beside years of payments / in an empty database`;
    report({ figure: 'F14', what: named, ...compared, target });
  }
}

/** Drives payments, from the first that is handed over to the last that has ended. */
async function drive(place: Place, count: number): Promise<Driven> {
  const rows = await place.make(count);
  const used = await measureProcessorTime();
  const from = performance.now();
  for (const row of rows) place.engine.take(row);
  await allEnded(place.database, rows[0]?.platform_payment_id);
  const perSecond = count / ((performance.now() - from) / 1_000);
  const { node, postgres } = used();
  return { perSecond, micros: ((node + postgres) * 1e6) / count };
}

/** Waits until all payments from this one on have ended; those before it are left out, so that the months before are not read. */
async function allEnded(database: Database, from = ''): Promise<void> {
  const open = `SELECT 1 FROM ${SCHEMA}.payments WHERE settled_at IS NULL AND platform_payment_id >= $1 LIMIT 1`;
  while ((await database.query(open, [from])).length > 0) await systemClock.sleep(20);
}

/**
 * How long payments take from their insert to their end, while the oldest months are archived and, in turns, for as long without anything beside them.
 */
async function archiveBeside(place: Place, platformUrl: string): Promise<void> {
  const { database } = place;
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-years-'));
  const before = await monthsOf(database);
  const [beside, alone]: [number[], number[]] = [[], []];
  await timesOf(place, () => systemClock.sleep(WARM_UP_MS));
  let archivedMs = 0;
  for (const { month } of before.slice(1, Math.max(2, flags.months))) {
    if (beside.length >= MEASURED) break;
    const archived = await timesOf(place, async () => {
      // A process of its own, as an operator starts it.
      const words = ['platform', 'archive', '--before', month, '--to', folder];
      const env = { ...process.env, DATABASE_URL: platformUrl };
      await promisify(execFile)(process.execPath, ['bin/duebridge.ts', ...words], { env });
    });
    beside.push(...archived.times);
    archivedMs += archived.tookMs;
    alone.push(...(await timesOf(place, () => systemClock.sleep(archived.tookMs))).times);
  }
  const done = await database.query<{ payments: number; folder: string }>(
    `SELECT payments::float8 AS payments, folder FROM ${SCHEMA}.archives ORDER BY month`,
  );
  const [first] = done;
  assert(first);
  const { payments, folder: where } = first;
  const months = `${done.length} months of ${payments} payments are archived, each in ${(archivedMs / 1_000 / done.length).toFixed(1)} s`;
  const bytes = { figure: 'F14', unit: 'bytes' };
  for (const part of [0.5, 0.99]) {
    const [slow, usual] = [beside, alone].map((times) =>
      quantile(
        times.toSorted((a, b) => a - b),
        part,
      ),
    );
    report({
      figure: 'F14',
      what: `p${part * 100} of ${beside.length} payments while ${months} (${slow?.toFixed(0)} ms) / of ${alone.length} without (${usual?.toFixed(0)} ms)`,
      value: (slow ?? Number.NaN) / (usual ?? Number.NaN),
      ...(part === 0.99 && { target: 'at most 1.5' }),
    });
  }
  const files = ['payments.zst', 'audit.zst'].map(async (name) => stat(join(where, name)));
  const inFiles = (await Promise.all(files)).reduce((sum, { size }) => sum + size, 0);
  report({ ...bytes, what: 'an archived payment in its files', value: inFiles / payments });
  const [full] = before;
  const [short] = await monthsOf(database);
  assert(full && short);
  const all = (full.heap + full.indexes) / payments;
  report({ ...bytes, what: 'its row and audit before, with all indexes', value: all });
  const row = short.heap / payments;
  report({ ...bytes, what: 'its short row, without indexes', value: row, target: 'at most 200' });
  report({ ...bytes, what: 'the indexes of its short row', value: short.indexes / payments });
  await rm(folder, { recursive: true });
}

/** The months of payments, the oldest first, with the bytes of their payments and audit. */
function monthsOf(database: Database): Promise<{ month: string; heap: number; indexes: number }[]> {
  return database.query(
    `SELECT replace(right(relname, 7), '_', '-') AS month, sum(pg_table_size(oid))::float8 AS heap, sum(pg_indexes_size(oid))::float8 AS indexes FROM pg_class
      WHERE relnamespace = '${SCHEMA}'::regnamespace AND relname ~ '^(payments|audit)_\\d{4}_\\d\\d$' GROUP BY 1 ORDER BY 1`,
  );
}

/** Pays one after the other while `work` goes on; gives the milliseconds that each payment took. */
async function timesOf(
  place: Place,
  work: () => Promise<void>,
): Promise<{ times: readonly number[]; tookMs: number }> {
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
  await allEnded(place.database, ids[0]);
  const rows = await place.database.query<{ ms: number }>(
    `SELECT (extract(epoch FROM ended_at - created_at) * 1000)::float8 AS ms FROM ${SCHEMA}.payments WHERE platform_payment_id = ANY($1)`,
    [ids],
  );
  return { times: rows.map(({ ms }) => ms), tookMs };
}
