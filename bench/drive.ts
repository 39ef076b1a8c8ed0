/**
 * F3 and F4: how fast the platform drives payments that are inserted to their end, durable at each change and with the evidence of every
 * call, as the product has it; and what a poll that finds no change costs the database. Three ways of the funds:
 *   elsewhere   nothing is reserved, and the platform collects by its own means: a PUT and a poll
 *   port        the funds are asked of the port, whose adapter answers at once: what the port itself costs
 *   processor   the adapter calls a processor over HTTP: authorize, PUT, poll, capture
 * compared with
 *   bare        an undici loop that makes the PUT and the poll of each payment and stores nothing
 *   loop        a plain loop over rows of a table, with an UPDATE after each of its two calls
 *   loop of 4   the same with the processor's two calls: four calls and three UPDATEs
 * No inserts are timed.
 *
 * The stub partner, which is the processor too, runs in a separate process; engine, loops and PostgreSQL share this machine with it.
 * Rounds alternate. One file because the ways make the same calls, and are read side by side.
 *
 *     node bench/drive.ts [--rounds 3] [--payments 10000] [--concurrency 64] [--profile FILE] [--only elsewhere,loop]
 *
 * The last lines are the ratios and the processor time of a payment (the median of the rounds, with minimum and maximum), and the writes
 * per poll.
 */
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  ensureDatabase,
  migrate,
  openDatabase,
  silentLog,
  sql,
  systemClock,
} from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { Pool } from 'undici';
import { benchOptions } from './options.ts';
import { measureProcessorTime, startProfile, type ProcessorTime } from './processor-time.ts';
import { batchFor } from '../packages/platform/src/reconciliation/batch.ts';
import { createEngine } from '../packages/platform/src/engine/engine.ts';
import type { EngineTimes } from '../packages/platform/src/engine/options.ts';
import type { FundingAdapter } from '../packages/platform/src/funding/adapter.ts';
import { openFunds } from '../packages/platform/src/funding/funds.ts';
import { migrations } from '../packages/platform/src/migrations.ts';
import {
  createPartnerClient,
  type PartnerClient,
} from '../packages/platform/src/partners/client.ts';
import {
  openPartnerRegistry,
  type PartnerRegistry,
} from '../packages/platform/src/partners/registry.ts';
import { openSealer } from '../packages/platform/src/partners/seal.ts';
import { keepAttempts, openAttempts } from '../packages/platform/src/store/attempts.ts';
import { ratios, report, spread } from './report.ts';
import { insertPayment, type PaymentRow } from '../packages/platform/src/store/payments.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  payments: '10000',
  concurrency: '64',
  profile: undefined,
  only: undefined,
});

/** One partner takes at most 10,000 calls a second, 5,000 payments; with several the engine is the limit, not that budget. Each is a biller. */
export const PARTNERS = ['acme-1', 'acme-2', 'acme-3', 'acme-4'] as const;

/** Payments for the second figure: they stay processing and are polled repeatedly. */
const IDLE_PAYMENTS = 2_000;
/** How long their polls are counted; the delays between polls grow. */
const IDLE_MS = 6_000;
/** A round in which no payment ends for so long has failed, in milliseconds; the slowest takes a second for a few of them. */
const STALLED_MS = 60_000;
/** One key for all grounds: a round in the same database finds the partners of the round before, sealed with it. */
const SEAL_KEY = randomBytes(32).toString('base64');

/** How the funds of a payment are moved. */
export type Way = 'elsewhere' | 'port' | 'processor';

async function main(): Promise<void> {
  const rounds = Number(flags.rounds);
  const payments = Number(flags.payments);
  const concurrency = Number(flags.concurrency);
  const server = await testServer();
  const stub = await startStub();
  const contenders: Record<string, () => Promise<Driven>> = {
    bare: async () => ({
      perSecond: await bare(stub.url, payments, concurrency),
      cpu: { node: 0, postgres: 0 },
    }),
    loop: () => plainLoop(server.url, stub.url, payments, concurrency, false),
    elsewhere: () => drive(server.url, stub.url, payments, concurrency),
    port: () => drive(server.url, stub.url, payments, concurrency, undefined, 'port'),
    'loop of 4': () => plainLoop(server.url, stub.url, payments, concurrency, true),
    processor: () => drive(server.url, stub.url, payments, concurrency, undefined, 'processor'),
  };
  const only = typeof flags.only === 'string' ? flags.only.split(',') : Object.keys(contenders);
  const driven = new Map<string, Driven[]>(only.map((name) => [name, []]));
  try {
    for (let round = 1; round <= rounds; round += 1) {
      for (const [name, run] of Object.entries(contenders)) {
        const one = driven.has(name) ? await run() : undefined;
        if (one === undefined) continue;
        driven.get(name)?.push(one);
        const { node, postgres } = one.cpu;
        const micros = `Node ${Math.round(node * 1e6)} us, PostgreSQL ${Math.round(postgres * 1e6)} us`;
        console.log(`round ${round}: ${name} ${Math.round(one.perSecond)}/s, ${micros}`);
      }
    }
    console.log(`${payments} payments, ${concurrency} calls at once, fsync on, ${rounds} rounds`);
    if (only.includes('elsewhere')) {
      const idle = await pollsOnly(server.url, `${stub.url}/never`);
      report({
        figure: 'F4',
        what: `rows written by ${idle.polls} polls that found no change`,
        value: idle.rows,
        unit: 'rows',
        target: '0',
      });
    }
    const rates = (name: string): number[] => (driven.get(name) ?? []).map((one) => one.perSecond);
    const ratio = (ours: Way, theirs: string, target: string): void => {
      if (rates(ours).length === 0 || rates(theirs).length === 0) return;
      const what = `drive, ${ours} / ${theirs}`;
      report({ figure: 'F3', what, ...ratios(rates(ours), rates(theirs)), target });
    };
    ratio('elsewhere', 'bare', 'at least 0.6');
    ratio('elsewhere', 'loop', 'at least 1.3');
    ratio('processor', 'loop of 4', 'at least 1.5');
    const costs = (name: Way, target: string): void => {
      const cpu = (driven.get(name) ?? []).map(
        (one) => Math.round((one.cpu.node + one.cpu.postgres) * 1e7) / 10,
      );
      if (cpu.length === 0) return;
      const what = `processor time of a payment, ${name}`;
      report({ figure: 'F3', what, ...spread(cpu), unit: 'us', target });
    };
    costs('elsewhere', 'at most 600');
    costs('port', 'at most 800');
    costs('processor', 'none');
  } finally {
    stub.process.kill();
    await server.stop();
  }
}

/** One call, as every loop makes it. */
async function call(pool: Pool, method: 'PUT' | 'GET' | 'POST', path: string, body?: string) {
  const headers = { 'content-type': 'application/json', 'x-api-key': AUTH.key };
  const answer = await pool.request({ method, path, headers, body: body ?? null });
  await answer.body.json();
}

/** A plain loop over rows of a table, with an UPDATE after each call but the first of two that follow each other. */
async function plainLoop(
  serverUrl: string,
  stubUrl: string,
  payments: number,
  concurrency: number,
  withProcessor: boolean,
): Promise<Driven> {
  const name = `bench_${randomBytes(5).toString('hex')}`;
  const url = await ensureDatabase(serverUrl, name);
  const database = openDatabase({ url, applicationName: 'bench loop', maxConnections: 10 });
  await database.query('CREATE TABLE payment (id text PRIMARY KEY, status text NOT NULL)');
  const ids = Array.from({ length: payments }, (_, index) => `p-${index}`);
  await database.query(`INSERT INTO payment SELECT unnest($1::text[]), 'created'`, [ids]);
  const step = sql('step', 'UPDATE payment SET status = $2 WHERE id = $1');
  const pool = new Pool(stubUrl, { connections: concurrency });
  const body = JSON.stringify({ amount_in_cents: 12_345, platform_batch_id: 'batch' });
  const used = await measureProcessorTime(database);
  const startedAt = performance.now();
  const queue = ids.values();
  const work = async (): Promise<void> => {
    for (const id of queue) {
      const path = `/biller/acme-1/account/A-1/payment/${id}`;
      if (withProcessor) {
        await call(pool, 'POST', `/processor/${id}/authorize`, '{}');
        await database.query(step, [id, 'authorized']);
        await call(pool, 'PUT', path, body);
      } else {
        await call(pool, 'PUT', path, body);
        await database.query(step, [id, 'accepted']);
      }
      await call(pool, 'GET', path);
      await database.query(step, [id, 'succeeded']);
      if (!withProcessor) continue;
      await call(pool, 'POST', `/processor/${id}/capture`, '{}');
      await database.query(step, [id, 'captured']);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  const perSecond = payments / ((performance.now() - startedAt) / 1_000);
  const { node, postgres } = used();
  await pool.close();
  await database.query('DROP TABLE payment');
  await database.close();
  return { perSecond, cpu: { node: node / payments, postgres: postgres / payments } };
}

/** The adapter of a way: one that answers at once, or one over the stub's processor. */
function adapterFor(way: Way, partnerUrl: string, concurrency: number) {
  const pool = new Pool(new URL(partnerUrl).origin, { connections: concurrency });
  const ask = async (id: string, act: string): Promise<void> => {
    if (way !== 'processor') return;
    await call(pool, 'POST', `/processor/${id}/${act}`, '{}');
  };
  const method = { funding_method: way, label: way, sandbox: true } as const;
  const adapter: FundingAdapter = {
    name: 'bench',
    methods: () => [way === 'elsewhere' ? { ...method, collection: 'elsewhere' } : method],
    async authorize({ platform_payment_id }) {
      await ask(platform_payment_id, 'authorize');
      return { kind: 'authorized', expires_at: Date.now() + 7 * 86_400_000 };
    },
    async capture({ platform_payment_id }) {
      await ask(platform_payment_id, 'capture');
      return { kind: 'captured' };
    },
    void: () => Promise.resolve('released'),
    refund: () => Promise.resolve(),
  };
  return { adapter, close: () => pool.close() };
}

/** The same two calls for each payment, and nothing else. */
export async function bare(url: string, payments: number, concurrency: number): Promise<number> {
  const pool = new Pool(url, { connections: concurrency });
  let next = 0;
  const body = JSON.stringify({ amount_in_cents: 12_345, platform_batch_id: 'batch' });
  const work = async (): Promise<void> => {
    while (next < payments) {
      next += 1;
      const path = `/biller/acme-1/account/A-1/payment/bare-${next}`;
      await call(pool, 'PUT', path, body);
      await call(pool, 'GET', path);
    }
  };
  const startedAt = performance.now();
  await Promise.all(Array.from({ length: concurrency }, work));
  const perSecond = payments / ((performance.now() - startedAt) / 1_000);
  await pool.close();
  return perSecond;
}

export interface Ground {
  readonly database: ReturnType<typeof openDatabase>;
  readonly engine: ReturnType<typeof createEngine>;
  readonly registry: PartnerRegistry;
  /** It notes the evidence of its calls. */
  readonly client: PartnerClient;
  /** Inserts payments, 500 in a transaction. */
  readonly make: (count: number) => Promise<PaymentRow[]>;
  /** Writes the evidence that still waits in memory. */
  readonly finish: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** A platform's engine in an empty database, with one partner at the stub. */
async function ground(
  serverUrl: string,
  partnerUrl: string,
  concurrency: number,
  way: Way,
): Promise<Ground> {
  const name = `bench_${randomBytes(5).toString('hex')}`;
  const url = await ensureDatabase(serverUrl, name);
  const place = await groundIn(url, partnerUrl, concurrency, HANDED_OVER, way);
  return {
    ...place,
    async close() {
      await place.close();
      const admin = openDatabase({ url: serverUrl, applicationName: 'bench drive' });
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await admin.close();
    },
  };
}

const AUTH = { method: 'key', header: 'x-api-key', key: 'benchmark-key-0123456789' } as const;

/** For a figure that makes its payments first and hands them over afterwards. */
const HANDED_OVER = {
  pollMs: 1,
  // With rounds every 2 s, as in production, the engine would find many of the payments in its slots meanwhile, drive those before
  // the clock starts, and a second time when they are handed over.
  beatMs: 600_000,
  leaseMs: 3_600_000,
};

/** The same in a database that may hold payments. `options` are the engine's; without any it runs as in production. */
export async function groundIn(
  url: string,
  partnerUrl: string,
  concurrency: number,
  options: Partial<EngineTimes> = HANDED_OVER,
  way: Way = 'elsewhere',
): Promise<Ground> {
  const database = openDatabase({
    url,
    applicationName: 'bench drive',
    // As the platform opens the pool of its engine.
    maxConnections: 8,
    plansByKey: true,
  });
  await migrate(database, migrations);
  const base = { database, clock: systemClock, log: silentLog };
  const registry = openPartnerRegistry({
    ...base,
    sealKey: SEAL_KEY,
    allowPrivateAddresses: true,
  });
  for (const partner_id of PARTNERS) {
    if ((await registry.get(partner_id)) !== undefined) {
      // Of a round before, perhaps of another run, whose stub had another port and whose sealing key was another.
      await registry.change(partner_id, { base_url: partnerUrl, auth: AUTH }, 'bench');
      continue;
    }
    await registry.add(
      {
        partner_id,
        name: 'Acme',
        kind: 'biller',
        biller_id: partner_id,
        base_url: partnerUrl,
        origins: [],
        budget: {
          max_concurrent_calls: Math.ceil(concurrency / PARTNERS.length),
          max_calls_per_second: 10_000,
          wait_seconds: 0,
        },
        auth: AUTH,
      },
      'bench',
    );
  }
  // As the platform does: evidence of every call, written every few seconds through a pool of its own.
  const front = openDatabase({ url, applicationName: 'bench evidence', maxConnections: 2 });
  const attempts = openAttempts({ ...base, database: front, sealer: openSealer(SEAL_KEY) });
  const recording = new AbortController();
  const recorded = keepAttempts({ attempts, clock: systemClock, signal: recording.signal });
  const client = createPartnerClient({
    ...base,
    registry,
    allowPrivateAddresses: true,
    answered: (call) => attempts.note(call),
  });
  const { adapter, close: closeAdapter } = adapterFor(way, partnerUrl, concurrency);
  const sealer = openSealer(SEAL_KEY);
  const funding = openFunds({ ...base, sealer, adapters: [adapter] });
  const engine = createEngine({
    ...base,
    registry,
    client,
    funding,
    options,
  });
  await engine.start();
  return {
    database,
    engine,
    registry,
    client,
    async make(count) {
      const places = await Promise.all(
        PARTNERS.map(async (partner_id) => {
          const partner = await registry.get(partner_id);
          assert(partner);
          return { partner, platform_batch_id: await batchFor(database, partner, Date.now()) };
        }),
      );
      const rows: PaymentRow[] = [];
      while (rows.length < count) {
        const some = await database.transaction(async (tx) => {
          const made: PaymentRow[] = [];
          for (let index = 0; index < 500 && rows.length + made.length < count; index += 1) {
            const place = places[index % places.length];
            assert(place);
            const { partner, platform_batch_id } = place;
            const row = await insertPayment(tx, {
              partner_id: partner.partner_id,
              biller_id: partner.partner_id,
              account_id: 'A-1',
              platform_batch_id,
              amount_in_cents: 12_345,
              session_id: null,
              funding_method: way,
              ...engine.placeForNew(partner, { funding_method: way }),
              actor: 'bench',
            });
            await funding.keep(tx, row, undefined);
            made.push(row);
          }
          return made;
        });
        rows.push(...some);
      }
      return rows;
    },
    finish: () => attempts.flush(true),
    async close() {
      await engine.stop();
      await client.close();
      await closeAdapter();
      recording.abort();
      await recorded;
      await front.close();
      await database.close();
    },
  };
}

/** What a round gave: payments a second, and the seconds of CPU of one payment. */
export interface Driven {
  readonly perSecond: number;
  readonly cpu: ProcessorTime;
}

/** `beside` starts what goes on in the same database meanwhile, and returns what ends it: its work counts as the round's. */
export async function drive(
  serverUrl: string,
  partnerUrl: string,
  payments: number,
  concurrency: number,
  beside?: (database: Ground['database']) => () => Promise<void>,
  way: Way = 'elsewhere',
): Promise<Driven> {
  const place = await ground(serverUrl, partnerUrl, concurrency, way);
  return driveOn(place, payments, beside);
}

async function driveOn(
  place: Ground,
  payments: number,
  beside?: (database: Ground['database']) => () => Promise<void>,
): Promise<Driven> {
  const rows = await place.make(payments);
  let left = rows.length;
  const finished = Promise.withResolvers<void>();
  // As a customer's page does: watches until the payment has ended.
  for (const row of rows) {
    const unwatch = place.engine.watch(row.platform_payment_id, (now) => {
      if (now.stage !== 'ended') return;
      unwatch();
      left -= 1;
      if (left === 0) finished.resolve();
    });
  }
  const stopProfile =
    typeof flags.profile === 'string' ? await startProfile(flags.profile) : undefined;
  const processorTime = await measureProcessorTime(place.database);
  const endBeside = beside?.(place.database);
  const startedAt = performance.now();
  for (const row of rows) place.engine.take(row);
  await untilFinished(finished.promise, () => left);
  await place.finish();
  const perSecond = payments / ((performance.now() - startedAt) / 1_000);
  await endBeside?.();
  const { node, postgres } = processorTime();
  await stopProfile?.();
  const [paid] = await place.database.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM duebridge_platform.payments
      WHERE platform_payment_id = ANY($1) AND status = 'succeeded'`,
    [rows.map((row) => row.platform_payment_id)],
  );
  assert.equal(paid?.count, payments);
  await place.close();
  return { perSecond, cpu: { node: node / payments, postgres: postgres / payments } };
}

/** Waits for the end of a round; throws when no payment has ended for a minute, so that a stalled engine fails the bench. */
async function untilFinished(finished: Promise<void>, left: () => number): Promise<void> {
  let before = left();
  const watch = Promise.withResolvers<void>();
  const timer = setInterval(() => {
    if (left() === before) {
      watch.reject(new Error(`${before} payments did not end, none of them in the last minute`));
    }
    before = left();
  }, STALLED_MS);
  try {
    await Promise.race([finished, watch.promise]);
  } finally {
    clearInterval(timer);
  }
}

/** Rows of payments and audit written while payments that do not end are polled. */
async function pollsOnly(
  serverUrl: string,
  partnerUrl: string,
): Promise<{ polls: number; rows: number }> {
  const place = await ground(serverUrl, partnerUrl, 32, 'elsewhere');
  const polled = async (): Promise<number> =>
    Number(await (await fetch(`${partnerUrl}/count`)).text());
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
  const after = await versions();
  const result = { polls, rows: [...after].filter((version) => !before.has(version)).length };
  await place.close();
  return result;
}

// The stub partner ---------------------------------------------------------------------------------------------------------

export async function startStub(): Promise<{ url: string; process: ChildProcess }> {
  const child = fork(new URL(import.meta.url), ['stub']);
  const [port] = (await once(child, 'message')) as [number];
  return { url: `http://127.0.0.1:${port}`, process: child };
}

/**
 * Answers PUT with processing and GET with succeeded, or always with processing below /never; POST, as a processor, that the funds are
 * held or taken.
 */
function stub(): void {
  let never = 0;
  const server = createServer((request, response) => {
    const url = request.url ?? '';
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString('latin1');
    });
    request.on('end', () => {
      if (url.endsWith('/count')) {
        response.end(String(never));
        return;
      }
      if (request.method === 'POST') {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(url.endsWith('/capture') ? '{"state":"taken"}' : '{"state":"held"}');
        return;
      }
      const id = url.slice(url.lastIndexOf('/') + 1);
      if (request.method === 'PUT') batches.set(id, batchOf(body));
      const isNever = url.startsWith('/never');
      if (isNever && request.method === 'GET') never += 1;
      const ended = request.method === 'GET' && !isNever;
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(
        `{"payment_id":"P-${id}","platform_payment_id":"${id}","platform_batch_id":"${batches.get(id) ?? ''}","biller_id":"${url.split('/').at(-5) ?? ''}","account_id":"A-1","status":"${ended ? 'succeeded' : 'processing'}","amount_in_cents":12345,"initiated_at":"2026-01-01T00:00:00.000Z","posted_at":${ended ? '"2026-01-01T00:00:00.001Z"' : 'null'}}`,
      );
      if (ended) batches.delete(id);
    });
  });
  const batches = new Map<string, string>();
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
}

function batchOf(body: string): string {
  return /"platform_batch_id":"([^"]*)"/.exec(body)?.[1] ?? '';
}

if (process.argv[2] === 'stub') stub();
else if (process.argv[1] === import.meta.filename) await main();
