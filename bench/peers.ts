/**
 * F3 beside its peers: one payment is a PUT and a GET to the same stub partner, and each change has to be durable before the next
 * call. In alternating rounds, each in its own database:
 *   bare         the two calls, nothing stored: not durable, the upper limit
 *   least        the two calls and one durable UPDATE of one row of two columns, by group commit: what any durable driver has to do
 *   rows         `least` with what we write at the end of a payment instead: its row behind the fence, the funds, the audit line
 *   judged       `rows` with our client instead of bare calls: credentials, deadlines, strict reading, answers judged, evidence kept
 *   loop         a plain loop over rows of a table, with an UPDATE after each of the two calls
 *   graphile     graphile-worker, one job a payment, default settings; and with its local queue
 *   duebridge    our engine: `judged`, and a queue and a budget for each partner, the state of each payment, and a watcher for each
 * So `least`, `rows`, `judged` and `duebridge` show step by step what a guarantee costs, and `rows` what no faster program could avoid
 * that keeps the same. No contender's payments are inserted on the clock. The jobs of a queue do both calls in one task, which is less than what we do: a crash in between repeats both. A contender that fails,
 * or takes longer than a minute and a half, is left out of that round, and the others go on.
 *
 *     node bench/peers.ts [--rounds 3] [--payments 2000] [--concurrency 64] [--only loop,graphile]
 *
 * One file because the peers do the same work in different ways, and are read side by side.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import {
  ensureDatabase,
  groupCommit,
  openDatabase,
  silentLog,
  systemClock,
} from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import pg from 'pg';
import { Pool } from 'undici';
import { importTool } from '../scripts/tool.ts';
import { benchOptions, chosenOf } from './options.ts';
import { judgePoll, judgeSubmit } from '../packages/platform/src/engine/outcome.ts';
import { Outage } from '../packages/platform/src/engine/outage.ts';
import { PaymentRecords } from '../packages/platform/src/engine/records.ts';
import type { Ending, PaymentRow } from '../packages/platform/src/store/payments.ts';
import { bare, drive, groundIn, startStub, type Driven, type Ground } from './drive.ts';
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

/** Times `start` until all payments were reported as finished, and then `finish`. */
async function timed(
  start: (finished: () => void) => Promise<void>,
  finish?: () => Promise<void>,
): Promise<Driven> {
  const all = Promise.withResolvers<void>();
  let left = payments;
  const used = await measureProcessorTime(admin);
  const from = performance.now();
  await start(() => {
    left -= 1;
    if (left === 0) all.resolve();
  });
  await all.promise;
  await finish?.();
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

/** Makes `calls` for each of our own payments and writes the end that they tell as our engine does, while further calls go on. */
async function overOurRows(
  url: string,
  calls: (place: Ground, row: PaymentRow) => Promise<Ending>,
): Promise<Driven> {
  const place = await groundIn(url, stub.url, concurrency);
  const { database } = place;
  const rows = await place.make(payments);
  const [slot] = await database.query<{ worker_id: string }>(
    'SELECT worker_id FROM duebridge_platform.slots WHERE worker_id IS NOT NULL LIMIT 1',
  );
  assert(slot, 'the engine owns no slot');
  const { signal } = new AbortController();
  const records = new PaymentRecords({
    database,
    clock: systemClock,
    writer: () => ({ worker_id: slot.worker_id, at: new Date().toISOString() }),
    mayWrite: () => true,
    outage: new Outage({ database, clock: systemClock, log: silentLog, signal }),
    signal,
  });
  const end = async (
    { platform_payment_id }: PaymentRow,
    ending: Ending,
    finished: () => void,
  ): Promise<void> => {
    const write = { kind: 'end', by: 'partner', ending, settles: true } as const;
    const recorded = await records.write(platform_payment_id, 'dispatching', write);
    assert.equal(recorded.kind, 'changed');
    finished();
  };
  const driven = await timed(async (finished) => {
    const queue = rows.values();
    const work = async (): Promise<void> => {
      for (const row of queue) {
        const ending = await calls(place, row);
        void end(row, ending, finished);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, work));
  }, place.finish);
  await place.close();
  return driven;
}

function rows({ url, put, get }: Race): Promise<Driven> {
  return overOurRows(url, async (_, { platform_payment_id }) => {
    await put(platform_payment_id);
    await get(platform_payment_id);
    return {
      status: 'succeeded',
      payment_id: `P-${platform_payment_id}`,
      initiated_at: '2026-01-01T00:00:00.000Z',
      posted_at: '2026-01-01T00:00:00.001Z',
      failure_reason: null,
    };
  });
}

function judged({ url }: Race): Promise<Driven> {
  return overOurRows(url, async ({ client, registry }, row) => {
    const partner = await registry.get(row.partner_id);
    assert(partner);
    const accepted = judgeSubmit(row, await client.submit(partner, row));
    assert(accepted.kind === 'processing');
    const { payment_id } = accepted.acceptance;
    const outcome = judgePoll({ ...row, payment_id }, await client.poll(partner, row));
    assert(outcome.kind === 'ended');
    return outcome.ending;
  });
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

/** How long a contender may take in one round; three rounds of all of them take less than six minutes on two quiet cores. */
const PATIENCE_MS = 90_000;

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

/** What a contender did; undefined when it failed. */
async function unlessFailed(work: () => Promise<Driven>): Promise<Driven | undefined> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => late.reject(new Error(`took longer than ${PATIENCE_MS / 1_000} s`)),
    PATIENCE_MS,
  );
  try {
    return await Promise.race([work(), late.promise]);
  } catch (error) {
    console.log(`  failed: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

// A contender that failed may leave connections and timers that end in errors nobody waits for.
process.on('uncaughtException', (error) => console.log(`  afterwards: ${error.message}`));
process.on('unhandledRejection', (error) => console.log(`  afterwards: ${String(error)}`));

/** Steps from the least that is durable to ours. */
const STEPS = ['least', 'rows', 'judged'];

/** The target against a contender; none against a step, which guarantees less than we do. */
function targetOf(name: string): { target?: string } {
  if (STEPS.includes(name)) return {};
  if (name === 'bare') return { target: 'at least 0.6' };
  return { target: name === 'loop' ? 'at least 1.5' : 'at least 3' };
}

const contenders: Readonly<Record<string, Contender>> = {
  least,
  rows,
  judged,
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
  /** By contender, one entry for each round; undefined for a round in which it failed. */
  const results = new Map<string, (Driven | undefined)[]>();
  const note = (name: string, driven: Driven | undefined): void => {
    results.set(name, [...(results.get(name) ?? []), driven]);
    if (driven === undefined) return;
    const { perSecond, cpu } = driven;
    const [node, postgres] = [cpu.node * 1e6, cpu.postgres * 1e6];
    console.log(
      `  ${name}: ${perSecond.toFixed(0)}/s; processor time of a payment: Node ${node.toFixed(0)} us, PostgreSQL ${postgres.toFixed(0)} us`,
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
      note(
        name,
        await unlessFailed(() =>
          contender({ url, put: (id) => call('PUT', id), get: (id) => call('GET', id) }),
        ),
      );
      await pool.destroy();
      await drop(url);
    }
    note('duebridge', await drive(server.url, stub.url, payments, concurrency));
  }
  const rateOf = ({ perSecond }: Driven): number => perSecond;
  const microsOf = ({ cpu }: Driven): number => (cpu.node + cpu.postgres) * 1e6;
  /** A figure of one contender, `times` that, divided by that of another, in the rounds in which both ran. */
  const compare = (one: string, other: string, figure: (driven: Driven) => number, times = 1) => {
    const pairs = (results.get(one) ?? []).flatMap((first, round) => {
      const second = results.get(other)?.[round];
      return first === undefined || second === undefined ? [] : [[figure(first), figure(second)]];
    });
    return ratios(
      pairs.map(([first]) => times * (first ?? Number.NaN)),
      pairs.map(([, second]) => second ?? Number.NaN),
    );
  };
  const others = [...results.keys()].filter(
    (name) => name !== 'duebridge' && results.get(name)?.some((driven) => driven !== undefined),
  );
  for (const name of others) {
    const values = compare('duebridge', name, rateOf);
    report({ figure: 'F3', what: `drive / ${name}`, ...values, ...targetOf(name) });
  }
  // Decisions 210 and 221: a busy machine inflates processor time, but that of all contenders alike.
  const held: Readonly<Record<string, string>> = {
    loop: 'at most 1.25',
    graphile: 'at most 0.6',
    'graphile-local': 'at most 1.5',
  };
  for (const name of others) {
    const target = held[name];
    report({
      figure: 'F3',
      what: `processor time of a payment / ${name}`,
      ...compare('duebridge', name, microsOf),
      ...(target === undefined ? {} : { target }),
    });
  }
  // Where a step is below a target, no program that keeps what the step keeps reaches that target.
  for (const name of [...STEPS, 'duebridge'].filter((step) => results.has(step))) {
    const micros = results.get(name)?.flatMap((driven) => (driven ? [microsOf(driven)] : [])) ?? [];
    report({
      figure: 'F3',
      what: `processor time of a payment, ${name}`,
      ...spread(micros),
      unit: 'us',
    });
    for (const other of ['bare', 'loop'].filter(
      (one) => results.has(one) && name !== 'duebridge',
    )) {
      report({ figure: 'F3', what: `${name} / ${other}`, ...compare(name, other, rateOf) });
    }
  }
  // Where this is above 1, nothing that makes the two calls from one process can reach the target.
  for (const name of ['graphile', 'graphile-local']) {
    if (!others.includes(name)) continue;
    report({
      figure: 'F3',
      what: `three times ${name} / bare`,
      ...compare(name, 'bare', rateOf, 3),
    });
  }
} finally {
  stub.process.kill();
  await admin.close();
  await server.stop();
}
process.exit(0);
