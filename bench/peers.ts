/**
 * F3 beside its peers: one payment is a PUT and a GET to the same stub partner, and each change has to be durable before the next
 * call. In alternating rounds, each in its own database:
 *   bare         the two calls, nothing stored: not durable, the upper limit
 *   least        the two calls and one durable UPDATE of one row of two columns, by group commit: what any durable driver has to do
 *   loop         a plain loop over rows of a table, with an UPDATE after each of the two calls
 *   graphile     graphile-worker, one job a payment, default settings; and with its local queue
 *   duebridge    our engine
 * No contender's payments are inserted on the clock. The jobs of a queue do both calls in one task, which is less than what we do: a
 * crash in between repeats both.
 *
 *     node bench/peers.ts [--rounds 3] [--payments 2000] [--concurrency 64] [--only loop,graphile]
 *
 * One file because the peers do the same work in different ways, and are read side by side.
 */
import { randomBytes } from 'node:crypto';
import { ensureDatabase, groupCommit, openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import pg from 'pg';
import { Pool } from 'undici';
import { importTool } from '../scripts/tool.ts';
import { benchOptions, chosenOf } from './options.ts';
import { bare, drive, startStub, type Driven } from './drive.ts';
import { measureProcessorTime, type ProcessorTime } from './processor-time.ts';
import { ratios, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  payments: '2000',
  concurrency: '64',
  only: undefined,
});
const payments = Number(flags.payments);
const concurrency = Number(flags.concurrency);

/** The input of every contender. */
interface Race {
  readonly url: string;
  readonly put: (id: string) => Promise<void>;
  readonly get: (id: string) => Promise<void>;
}

/** Prepares its state, and then drives the payments on the clock. */
type Contender = (race: Race) => Promise<Driven>;

/** Times `start` until all payments were reported as finished. */
async function timed(start: (finished: () => void) => Promise<void>): Promise<Driven> {
  const all = Promise.withResolvers<void>();
  let left = payments;
  const used = await measureProcessorTime(admin);
  const from = performance.now();
  await start(() => {
    left -= 1;
    if (left === 0) all.resolve();
  });
  await all.promise;
  const perSecond = payments / ((performance.now() - from) / 1_000);
  return { perSecond, cpu: perPayment(used()) };
}

function perPayment({ node, postgres }: ProcessorTime): ProcessorTime {
  return { node: node / payments, postgres: postgres / payments };
}

const ids = (): string[] => Array.from({ length: payments }, (_, index) => `p-${index}`);

/**
 * The least that is durable. Its calls go on while a write is under way, as ours do. The distance to it is what audit, funds, evidence,
 * fence and the order of calls cost.
 */
async function least({ url, put, get }: Race): Promise<Driven> {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  await pool.query('CREATE TABLE payment (id text PRIMARY KEY, status text NOT NULL)');
  await pool.query(`INSERT INTO payment SELECT unnest($1::text[]), 'created'`, [ids()]);
  const ends = groupCommit<string, null>({
    maxBatch: 500,
    maxQueued: payments,
    concurrency: 2,
    async flush(some) {
      const text = `UPDATE payment SET status = 'succeeded' WHERE id = ANY($1)`;
      await pool.query({ name: 'end', text, values: [some] });
      return some.map(() => null);
    },
  });
  const driven = await timed(async (finished) => {
    const queue = ids().values();
    const work = async (): Promise<void> => {
      for (const id of queue) {
        await put(id);
        await get(id);
        void ends.add(id).then(finished);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
  });
  await pool.end();
  return driven;
}

async function loop({ url, put, get }: Race): Promise<Driven> {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  await pool.query('CREATE TABLE payment (id text PRIMARY KEY, status text NOT NULL)');
  await pool.query(`INSERT INTO payment SELECT unnest($1::text[]), 'created'`, [ids()]);
  const update = (id: string, status: string) =>
    pool.query({
      name: 'step',
      text: 'UPDATE payment SET status = $2 WHERE id = $1',
      values: [id, status],
    });
  const driven = await timed(async (finished) => {
    const queue = ids().values();
    const work = async (): Promise<void> => {
      for (const id of queue) {
        await put(id);
        await update(id, 'accepted');
        await get(id);
        await update(id, 'succeeded');
        finished();
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
  });
  await pool.end();
  return driven;
}

function graphile(localQueue: boolean): Contender {
  return async ({ url, put, get }) => {
    const { Logger, run, runMigrations } = await importTool<GraphileWorker>('queues', 'bench');
    const logger = new Logger(() => () => undefined);
    await runMigrations({ connectionString: url, logger });
    const pool = new pg.Pool({ connectionString: url });
    await pool.query(
      `SELECT graphile_worker.add_jobs(array_agg(json_populate_record(NULL::graphile_worker.job_spec,
         json_build_object('identifier', 'pay', 'payload', json_build_object('id', id))))) FROM unnest($1::text[]) AS id`,
      [ids()],
    );
    await pool.end();
    let runner: Runner | undefined;
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
            await put(id);
            await get(id);
            finished();
          },
        },
      });
    });
    await runner?.stop();
    return driven;
  };
}

/** As much of graphile-worker as is used here. */
interface GraphileWorker {
  readonly Logger: new (factory: () => () => undefined) => object;
  readonly run: (options: {
    readonly taskList: Readonly<Record<string, (payload: { id: string }) => Promise<void>>>;
    readonly [option: string]: unknown;
  }) => Promise<Runner>;
  readonly runMigrations: (options: object) => Promise<void>;
}
interface Runner {
  stop(): Promise<void>;
}

/** Drops a contender's database, once its connections are gone: to end one that is just closing would crash this process. */
async function drop(url: string): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  const client = new pg.Client(server.url);
  await client.connect();
  for (let look = 0; look < 50; look += 1) {
    const { rowCount } = await client.query('SELECT 1 FROM pg_stat_activity WHERE datname = $1', [
      name,
    ]);
    if (rowCount === 0) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await client.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await client.end();
}

/** What each contender is held to: our rate divided by its rate, and our processor time of a payment divided by its own. */
const TARGETS: Readonly<Record<string, { readonly rate?: string; readonly time?: string }>> = {
  bare: { rate: 'at least 0.6' },
  least: {},
  loop: { rate: 'at least 1.5', time: 'at most 1.25' },
  graphile: { rate: 'at least 3', time: 'at most 0.6' },
  'graphile-local': { rate: 'at least 3', time: 'at most 1.5' },
};

const contenders: Readonly<Record<string, Contender>> = {
  least,
  loop,
  graphile: graphile(false),
  'graphile-local': graphile(true),
};
const chosen = chosenOf(flags.only, Object.keys(contenders));

const server = await testServer();
const admin = openDatabase({ url: server.url, applicationName: 'bench peers', maxConnections: 1 });
const stub = await startStub();
const body = JSON.stringify({
  amount_in_cents: 12_345,
  platform_batch_id: 'batch',
  platform_payment_id: 'x',
});
try {
  /** By contender, one entry for each round. */
  const results = new Map<string, Driven[]>();
  const note = (name: string, driven: Driven): void => {
    results.set(name, [...(results.get(name) ?? []), driven]);
    const { perSecond, cpu } = driven;
    console.log(
      `  ${name}: ${perSecond.toFixed(0)}/s; processor time of a payment: Node ${(cpu.node * 1e6).toFixed(0)} us, PostgreSQL ${(cpu.postgres * 1e6).toFixed(0)} us`,
    );
  };
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    console.log(`round ${round}`);
    const used = await measureProcessorTime(admin);
    const perSecond = await bare(stub.url, payments, concurrency);
    note('bare', { perSecond, cpu: perPayment(used()) });
    for (const [name, contender] of Object.entries(contenders)) {
      if (!chosen.includes(name)) continue;
      const pool = new Pool(stub.url, { connections: concurrency });
      const call = async (method: 'PUT' | 'GET', id: string): Promise<void> => {
        const answer = await pool.request({
          path: `/biller/acme/account/A-1/payment/${id}`,
          method,
          headers: { 'content-type': 'application/json', 'x-api-key': 'benchmark-key-0123456789' },
          body: method === 'PUT' ? body : null,
        });
        await answer.body.json();
      };
      const url = await ensureDatabase(server.url, `bench_${randomBytes(5).toString('hex')}`);
      const race = {
        url,
        put: (id: string) => call('PUT', id),
        get: (id: string) => call('GET', id),
      };
      note(name, await contender(race));
      await pool.destroy();
      await drop(url);
    }
    note('duebridge', await drive(server.url, stub.url, payments, concurrency));
  }
  const all = (name: string, figure: (driven: Driven) => number): number[] =>
    (results.get(name) ?? []).map(figure);
  const rateOf = ({ perSecond }: Driven): number => perSecond;
  const microsOf = ({ cpu }: Driven): number => (cpu.node + cpu.postgres) * 1e6;
  for (const [name, { rate, time }] of Object.entries(TARGETS)) {
    if (!results.has(name)) continue;
    report({
      figure: 'F3',
      what: `drive / ${name}`,
      ...ratios(all('duebridge', rateOf), all(name, rateOf)),
      ...(rate && { target: rate }),
    });
    // A busy machine inflates processor time, but that of all contenders alike.
    report({
      figure: 'F3',
      what: `processor time of a payment / ${name}`,
      ...ratios(all('duebridge', microsOf), all(name, microsOf)),
      ...(time && { target: time }),
    });
  }
  report({
    figure: 'F3',
    what: 'processor time of a payment',
    ...spread(all('duebridge', microsOf)),
    unit: 'us',
  });
} finally {
  stub.process.kill();
  await admin.close();
  await server.stop();
}
process.exit(0);
