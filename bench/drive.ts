/**
 * F3 and F4: how fast the platform drives payments that are inserted to their end, durable at each change and with the evidence of every
 * call, as the product has it; and what a poll that finds no change costs the database. Three ways of the funds:
 *   elsewhere   nothing is reserved, and the platform collects by its own means: a PUT and a poll
 *   port        the funds are asked of the port, whose adapter answers at once: what the port itself costs
 *   processor   the adapter calls a processor over HTTP: authorize, PUT, poll, capture
 * beside others that make the same calls to the same stub partner:
 *   bare        the two calls, nothing stored: the upper limit
 *   least       the two calls and one durable UPDATE by group commit: what any durable driver has to do
 *   loop        a plain loop over rows of a table, with an UPDATE after each of its two calls
 *   loop-of-4   the same with the processor's two calls: four calls and three UPDATEs
 *   graphile    graphile-worker, one job a payment, default settings; graphile-local with its local queue. A job does both calls in one
 *               task, which is less than what we do: a crash in between repeats both
 *
 * Nobody's payments are inserted on the clock. The stub runs in a separate process; everything else shares this machine with it. Rounds
 * alternate, each in its own database. The last lines are the ratios and the processor time of a payment, and the writes per poll.
 *
 *     node bench/drive.ts [--rounds 3] [--payments 10000] [--concurrency 64] [--only elsewhere,loop]
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { groupCommit, openDatabase, sql, systemClock } from '@duebridge/runtime';
import { Pool } from 'undici';
import { importTool } from '../scripts/tool.ts';
import { end, measureProcessorTime, withDatabase } from './database.ts';
import { openEngine, type Way } from './engine.ts';
import { benchOptions, chosenOf } from './options.ts';
import { ratios, report, spread } from './report.ts';

const flags = benchOptions({
  rounds: '3',
  payments: '10000',
  concurrency: '64',
  only: 'bare,loop,elsewhere,port,loop-of-4,processor',
});
const { payments, concurrency } = flags;

/** Payments for the second figure: they stay processing and are polled repeatedly. */
const IDLE_PAYMENTS = 2_000;
/** How long their polls are counted; the delays between polls grow. */
const IDLE_MS = 6_000;
/** A round in which no payment ends for so long has failed, in milliseconds; the slowest takes a second for a few of them. */
const STALLED_MS = 60_000;
/** Between looks at how many payments have ended. */
const LOOK_MS = 100;
const HEADERS = { 'content-type': 'application/json', 'x-api-key': 'benchmark-key-0123456789' };

/** What a round gave: payments a second, and the microseconds of processor time of one payment. */
interface Driven {
  readonly perSecond: number;
  readonly node: number;
  readonly postgres: number;
}
/** Makes its payments in an empty database, and then drives them on the clock against the partner at `stub`. */
type Contender = (url: string, stub: string) => Promise<Driven>;

const CONTENDERS: Readonly<Record<string, Contender>> = {
  bare: plainLoop([['PUT'], ['GET']]),
  least,
  loop: plainLoop([
    ['PUT', 'accepted'],
    ['GET', 'succeeded'],
  ]),
  graphile: graphile(false),
  'graphile-local': graphile(true),
  elsewhere: ours('elsewhere'),
  port: ours('port'),
  'loop-of-4': plainLoop([
    ['authorize', 'authorized'],
    ['PUT'],
    ['GET', 'succeeded'],
    ['capture', 'captured'],
  ]),
  processor: ours('processor'),
};

/** What ours is held to beside another: rates divided, and processor times divided. */
const BESIDE: readonly (readonly [ours: Way, theirs: string, rate?: string, time?: string])[] = [
  ['elsewhere', 'bare', 'at least 0.6'],
  ['elsewhere', 'least'],
  ['elsewhere', 'loop', 'at least 1.3', 'at most 1.25'],
  ['elsewhere', 'graphile', 'at least 3', 'at most 0.6'],
  ['elsewhere', 'graphile-local', 'at least 3', 'at most 1.5'],
  ['processor', 'loop-of-4', 'at least 1.5'],
];
const AT_MOST_US: Readonly<Record<Way, string>> = {
  elsewhere: 'at most 600',
  port: 'at most 800',
  processor: 'none',
};

async function main(): Promise<void> {
  const chosen = chosenOf(flags.only, CONTENDERS);
  const child = fork(new URL(import.meta.url), ['stub']);
  const [port] = (await once(child, 'message')) as [number];
  const stub = `http://127.0.0.1:${port}`;
  const rounds = new Map<string, Driven[]>(chosen.map(([name]) => [name, []]));
  for (let round = 1; round <= flags.rounds; round += 1) {
    for (const [name, run] of chosen) {
      const one = await withDatabase((url) => run(url, stub));
      rounds.get(name)?.push(one);
      const micros = `Node ${Math.round(one.node)} us, PostgreSQL ${Math.round(one.postgres)} us`;
      console.log(`round ${round}: ${name} ${Math.round(one.perSecond)}/s, ${micros}`);
    }
  }
  console.log(`${payments} payments, ${concurrency} calls at once, fsync on`);
  if (rounds.has('elsewhere')) {
    const { polls, rows } = await withDatabase((url) => pollsOnly(url, `${stub}/never`));
    const what = `rows written by ${polls} polls that found no change`;
    report({ figure: 'F4', what, value: rows, unit: 'rows', target: '0' });
  }
  const rates = (name: string) => (rounds.get(name) ?? []).map(({ perSecond }) => perSecond);
  const times = (name: string) => (rounds.get(name) ?? []).map((one) => one.node + one.postgres);
  for (const [mine, theirs, rate, time] of BESIDE) {
    if (!rounds.has(mine) || !rounds.has(theirs)) continue;
    const what = `drive, ${mine} / ${theirs}`;
    report({ figure: 'F3', what, ...ratios(rates(mine), rates(theirs)), target: rate });
    if (theirs === 'bare') continue;
    // A busy machine inflates processor time, but that of all contenders alike.
    const compared = ratios(times(mine), times(theirs));
    report({
      figure: 'F3',
      what: `processor time, ${mine} / ${theirs}`,
      ...compared,
      target: time,
    });
  }
  for (const [way, target] of Object.entries(AT_MOST_US)) {
    if (!rounds.has(way)) continue;
    const what = `processor time of a payment, ${way}`;
    report({ figure: 'F3', what, ...spread(times(way)), unit: 'us', target });
  }
  child.kill();
}

/** Times `start` until all payments were reported as finished, and what `finish` still writes; throws when none has for a minute. */
async function timed(
  start: (finished: () => void) => Promise<unknown>,
  finish: () => Promise<void> = () => Promise.resolve(),
): Promise<Driven> {
  const all = Promise.withResolvers<void>();
  let left = payments;
  let before = left;
  const watch = setInterval(() => {
    if (left === before) all.reject(new Error(`${left} payments did not end for a minute`));
    before = left;
  }, STALLED_MS);
  const used = await measureProcessorTime();
  const from = performance.now();
  await start(() => {
    left -= 1;
    if (left === 0) all.resolve();
  });
  await all.promise;
  await finish();
  const perSecond = payments / ((performance.now() - from) / 1_000);
  const { node, postgres } = used();
  clearInterval(watch);
  return { perSecond, node: (node * 1e6) / payments, postgres: (postgres * 1e6) / payments };
}

/** Makes one call of a payment's: PUT or GET at the partner, or an act of the processor. */
function callsTo(stub: string) {
  const pool = new Pool(stub, { connections: concurrency });
  const body = JSON.stringify({ amount_in_cents: 12_345, platform_batch_id: 'batch' });
  const call = async (step: string, id: string): Promise<void> => {
    const isOfPartner = step === 'PUT' || step === 'GET';
    const answer = await pool.request({
      method: isOfPartner ? step : 'POST',
      path: isOfPartner ? `/biller/acme-1/account/A-1/payment/${id}` : `/processor/${id}/${step}`,
      headers: HEADERS,
      body: step === 'GET' ? null : body,
    });
    await answer.body.json();
  };
  return { call, close: () => pool.close() };
}

const ids = (): string[] => Array.from({ length: payments }, (_, index) => `p-${index}`);

/** So many workers that take one payment after the other. */
async function workers(work: (id: string) => Promise<void>): Promise<void> {
  const queue = ids().values();
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      for (const id of queue) await work(id);
    }),
  );
}

async function tableOf(url: string) {
  const database = openDatabase({ url, applicationName: 'bench loop', maxConnections: 10 });
  await database.query('CREATE TABLE payment (id text PRIMARY KEY, status text NOT NULL)');
  await database.query(`INSERT INTO payment SELECT unnest($1::text[]), 'created'`, [ids()]);
  return database;
}

/** A plain loop over rows of a table: calls, with the status that an UPDATE writes after some. */
function plainLoop(steps: readonly (readonly [call: string, status?: string])[]): Contender {
  return async (url, stub) => {
    const { call, close } = callsTo(stub);
    const table = await tableOf(url);
    const update = sql('step', 'UPDATE payment SET status = $2 WHERE id = $1');
    const driven = await timed((finished) =>
      workers(async (id) => {
        for (const [step, status] of steps) {
          await call(step, id);
          if (status !== undefined) await table.query(update, [id, status]);
        }
        finished();
      }),
    );
    await close();
    await table.close();
    return driven;
  };
}

/**
 * The least that is durable. Its calls go on while a write is under way, as ours do. The distance to it is what audit, funds, evidence,
 * fence and the order of calls cost.
 */
async function least(url: string, stub: string): Promise<Driven> {
  const { call, close } = callsTo(stub);
  const table = await tableOf(url);
  const update = sql('end', `UPDATE payment SET status = 'succeeded' WHERE id = ANY($1)`);
  const ends = groupCommit<string, null>({
    maxBatch: 500,
    maxQueued: payments,
    concurrency: 2,
    async flush(some) {
      await table.query(update, [some]);
      return some.map(() => null);
    },
  });
  const driven = await timed((finished) =>
    workers(async (id) => {
      await call('PUT', id);
      await call('GET', id);
      void ends.add(id).then(finished);
    }),
  );
  await close();
  await table.close();
  return driven;
}

function graphile(localQueue: boolean): Contender {
  return async (url, stub) => {
    const { call, close } = callsTo(stub);
    const { Logger, run, runMigrations } = await importTool<GraphileWorker>('queues', 'bench');
    const logger = new Logger(() => () => undefined);
    await runMigrations({ connectionString: url, logger });
    const database = openDatabase({ url, applicationName: 'bench' });
    await database.query(
      `SELECT FROM graphile_worker.add_jobs((SELECT array_agg(json_populate_record(NULL::graphile_worker.job_spec,
         json_build_object('identifier', 'pay', 'payload', json_build_object('id', id)))) FROM unnest($1::text[]) AS id))`,
      [ids()],
    );
    await database.close();
    let runner: { stop(): Promise<void> } | undefined;
    const driven = await timed(async (finished) => {
      runner = await run({
        connectionString: url,
        concurrency,
        noHandleSignals: true,
        logger,
        preset: { worker: localQueue ? { localQueue: { size: 500 } } : {} },
        maxPoolSize: 10,
        taskList: {
          async pay({ id }) {
            await call('PUT', id);
            await call('GET', id);
            finished();
          },
        },
      });
    });
    await runner?.stop();
    await close();
    return driven;
  };
}

/** As much of graphile-worker as is used here. */
interface GraphileWorker {
  readonly Logger: new (factory: () => () => undefined) => object;
  readonly run: (options: {
    readonly taskList: Readonly<Record<string, (payload: { id: string }) => Promise<void>>>;
    readonly [option: string]: unknown;
  }) => Promise<{ stop(): Promise<void> }>;
  readonly runMigrations: (options: object) => Promise<void>;
}

function ours(way: Way): Contender {
  return async (url, stub) => {
    const { call, close } = callsTo(stub);
    const place = await openEngine(url, stub, way, concurrency, call);
    const rows = await place.make(payments);
    const driven = await timed(async (finished) => {
      for (const row of rows) place.engine.take(row);
      for (let seen = 0; seen < rows.length;) {
        await systemClock.sleep(LOOK_MS);
        const [ended] = await place.database.query<{ count: number }>(
          `SELECT count(*)::int AS count FROM duebridge_platform.payments WHERE stage = 'ended'`,
        );
        for (; seen < (ended?.count ?? 0); seen += 1) finished();
      }
    }, place.finish);
    const [paid] = await place.database.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM duebridge_platform.payments WHERE status = 'succeeded'`,
    );
    assert.equal(paid?.count, payments);
    await place.close();
    await close();
    return driven;
  };
}

/** Rows of payments and audit written while payments that do not end are polled. */
async function pollsOnly(url: string, partner: string): Promise<{ polls: number; rows: number }> {
  const place = await openEngine(url, partner, 'elsewhere', 32);
  const polled = async (): Promise<number> =>
    Number(await (await fetch(`${partner}/count`)).text());
  // Compare the versions of all rows instead of PostgreSQL's statistics, which arrive late on a busy machine.
  const versions = async (): Promise<Set<string>> => {
    const rows = await place.database.query<{ version: string }>(
      `SELECT 'payment ' || platform_payment_id || xmin || ctid AS version FROM duebridge_platform.payments
       UNION ALL SELECT 'audit ' || audit_id FROM duebridge_platform.audit
       UNION ALL SELECT 'funds ' || platform_payment_id || xmin FROM duebridge_platform.funds`,
    );
    return new Set(rows.map((row) => row.version));
  };
  for (const row of await place.make(IDLE_PAYMENTS)) place.engine.take(row);
  for (;;) {
    const [row] = await place.database.query<{ count: number }>(
      "SELECT count(*)::int AS count FROM duebridge_platform.payments WHERE stage = 'accepted'",
    );
    if (row?.count === IDLE_PAYMENTS) break;
    await systemClock.sleep(50);
  }
  const [before, pollsBefore] = [await versions(), await polled()];
  await systemClock.sleep(IDLE_MS);
  const polls = (await polled()) - pollsBefore;
  const rows = [...(await versions())].filter((version) => !before.has(version)).length;
  await place.close();
  return { polls, rows };
}

/**
 * The stub partner: answers PUT with processing and GET with succeeded, or always with processing below /never; POST, as a processor, that
 * the funds are held or taken.
 */
function stub(): void {
  // It ends with the benchmark, however that ends.
  process.once('disconnect', () => process.exit());
  let never = 0;
  const batches = new Map<string, string>();
  const server = createServer((request, response) => {
    const { url = '', method } = request;
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
    request.on('end', () => {
      if (url.endsWith('/count')) return void response.end(String(never));
      response.writeHead(200, { 'content-type': 'application/json' });
      if (method === 'POST') {
        return void response.end(
          url.endsWith('/capture') ? '{"state":"taken"}' : '{"state":"held"}',
        );
      }
      const id = url.slice(url.lastIndexOf('/') + 1);
      const batch = /"platform_batch_id":"([^"]*)"/.exec(body)?.[1];
      if (batch !== undefined) batches.set(id, batch);
      const isNever = url.startsWith('/never');
      if (isNever && method === 'GET') never += 1;
      const ended = method === 'GET' && !isNever;
      response.end(
        `{"payment_id":"P-${id}","platform_payment_id":"${id}","platform_batch_id":"${batches.get(id) ?? ''}","biller_id":"${url.split('/').at(-5) ?? ''}","account_id":"A-1","status":"${ended ? 'succeeded' : 'processing'}","amount_in_cents":12345,"initiated_at":"2026-01-01T00:00:00.000Z","posted_at":${ended ? '"2026-01-01T00:00:00.001Z"' : 'null'}}`,
      );
      if (ended) batches.delete(id);
    });
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

if (process.argv[2] === 'stub') stub();
else {
  await main();
  await end();
}
