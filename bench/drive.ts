/**
 * F3 and F4: how fast the platform drives payments that are inserted to their end (a PUT, one poll), durable at each change
 * and with the evidence of every call, as the product has it; compared with
 *   bare      an undici loop that makes the same two calls for each payment and stores nothing
 * and what a poll that finds no change costs the database. The insert is not timed: it also reserves the funds (decision 168).
 *
 * The stub partner runs in a separate process; engine, loop and PostgreSQL share this machine with it. Rounds alternate.
 *
 *     node bench/drive.ts [--rounds 3] [--payments 10000] [--concurrency 64] [--profile FILE]
 *
 * The last lines are the ratio (the median of the rounds, with minimum and maximum) and the writes per poll.
 */
import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ensureDatabase, migrate, openDatabase, silentLog, systemClock } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { Pool } from 'undici';
import { benchOptions } from './options.ts';
import { measureProcessorTime, startProfile, type ProcessorTime } from './processor-time.ts';
import { batchFor } from '../packages/platform/src/reconciliation/batch.ts';
import { createEngine } from '../packages/platform/src/engine/engine.ts';
import type { EngineTimes } from '../packages/platform/src/engine/options.ts';
import { sandboxFunding } from '../packages/platform/src/funding.ts';
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
import { ratios, report } from './report.ts';
import { insertPayment, type PaymentRow } from '../packages/platform/src/store/payments.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  payments: '10000',
  concurrency: '64',
  profile: undefined,
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

async function main(): Promise<void> {
  const rounds = Number(flags.rounds);
  const payments = Number(flags.payments);
  const concurrency = Number(flags.concurrency);
  const server = await testServer();
  const stub = await startStub();
  const rates: Record<'bare' | 'engine', number[]> = { bare: [], engine: [] };
  try {
    for (let round = 1; round <= rounds; round += 1) {
      rates.bare.push(await bare(stub.url, payments, concurrency));
      rates.engine.push((await drive(server.url, stub.url, payments, concurrency)).perSecond);
      const line = Object.entries(rates).map(
        ([what, list]) => `${what} ${Math.round(list.at(-1) ?? 0)}/s`,
      );
      console.log(`round ${round}: ${line.join(', ')}`);
    }
    const idle = await pollsOnly(server.url, `${stub.url}/never`);
    console.log(`${payments} payments, ${concurrency} calls at once, fsync on, ${rounds} rounds`);
    report({
      figure: 'F4',
      what: `rows written by ${idle.polls} polls that found no change`,
      value: idle.rows,
      unit: 'rows',
      target: '0',
    });
    report({
      figure: 'F3',
      what: 'drive / bare loop without storage',
      ...ratios(rates.engine, rates.bare),
      target: 'at least 0.6',
    });
  } finally {
    stub.process.kill();
    await server.stop();
  }
}

/** The same two calls for each payment, and nothing else. */
export async function bare(url: string, payments: number, concurrency: number): Promise<number> {
  const pool = new Pool(url, { connections: concurrency });
  let next = 0;
  const body = JSON.stringify({
    amount_in_cents: 12_345,
    platform_batch_id: 'batch',
    platform_payment_id: 'x',
  });
  const work = async (): Promise<void> => {
    while (next < payments) {
      next += 1;
      const path = `/biller/acme-1/account/A-1/payment/bare-${next}`;
      for (const method of ['PUT', 'GET'] as const) {
        const answer = await pool.request({
          path,
          method,
          headers: { 'content-type': 'application/json', 'x-api-key': 'benchmark-key-0123456789' },
          body: method === 'PUT' ? body : null,
        });
        await answer.body.json();
      }
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
  /** Inserts payments, 500 in a transaction unless it says otherwise. */
  readonly make: (count: number, perTransaction?: number) => Promise<PaymentRow[]>;
  /** Writes the evidence that still waits in memory. */
  readonly finish: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** A platform's engine in an empty database, with one partner at the stub. */
async function ground(serverUrl: string, partnerUrl: string, concurrency: number): Promise<Ground> {
  const name = `bench_${randomBytes(5).toString('hex')}`;
  const place = await groundIn(await ensureDatabase(serverUrl, name), partnerUrl, concurrency);
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
  const funding = sandboxFunding({ database });
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
    async make(count, perTransaction = 500) {
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
          for (
            let index = 0;
            index < perTransaction && rows.length + made.length < count;
            index += 1
          ) {
            const place = places[index % places.length];
            assert(place);
            const { partner, platform_batch_id } = place;
            made.push(
              await insertPayment(tx, {
                partner_id: partner.partner_id,
                biller_id: partner.partner_id,
                account_id: 'A-1',
                platform_batch_id,
                amount_in_cents: 12_345,
                session_id: null,
                funding_method: 'sandbox_bank',
                ...engine.placeForNew(partner, {
                  funding_method: 'sandbox_bank',
                  amount_in_cents: 100,
                }),
                actor: 'bench',
              }),
            );
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
): Promise<Driven> {
  const place = await ground(serverUrl, partnerUrl, concurrency);
  return driveOn(place, payments, undefined, beside);
}

/** Drives new payments in a database that may hold others. */
export async function driveIn(
  url: string,
  partnerUrl: string,
  payments: number,
  concurrency: number,
  perTransaction?: number,
): Promise<{ perSecond: number }> {
  return driveOn(await groundIn(url, partnerUrl, concurrency), payments, perTransaction);
}

async function driveOn(
  place: Ground,
  payments: number,
  perTransaction?: number,
  beside?: (database: Ground['database']) => () => Promise<void>,
): Promise<Driven> {
  const rows = await place.make(payments, perTransaction);
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
  const micros = (seconds: number): string => ((seconds * 1e6) / payments).toFixed(0);
  console.log(`  CPU of a payment: Node ${micros(node)} us, PostgreSQL ${micros(postgres)} us`);
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
  const place = await ground(serverUrl, partnerUrl, 32);
  const polled = async (): Promise<number> =>
    Number(await (await fetch(`${partnerUrl}/count`)).text());
  // Compare the versions of all rows instead of PostgreSQL's statistics, which arrive late on a busy machine.
  const versions = async (): Promise<Set<string>> => {
    const rows = await place.database.query<{ version: string }>(
      `SELECT 'payment ' || platform_payment_id || xmin || ctid AS version FROM duebridge_platform.payments
       UNION ALL SELECT 'audit ' || audit_id FROM duebridge_platform.audit
       UNION ALL SELECT 'funds ' || platform_payment_id || phase FROM duebridge_platform.sandbox_funds`,
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

/** Answers PUT with processing and GET with succeeded, or always with processing below /never. */
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
