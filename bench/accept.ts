/**
 * F1 and F2: how fast the partner kit accepts payments durably over HTTP, and how fast it posts them, compared with
 *   pgbench   64 clients of pgbench that each insert one row of the same table and wait for the commit, where it is installed
 *   handler   the handler most people write: a Fastify server, one INSERT … ON CONFLICT for each request
 *
 * All are driven on this machine, in alternating rounds, each in its own empty database. Servers run in separate processes; the
 * caller writes prepared bytes to sockets and parses only enough to find the end of each answer, so that it uses little of the
 * machine.
 *
 *     node bench/accept.ts [--rounds 3] [--seconds 5] [--connections 256]
 *
 * The last lines are the ratios: the median of the rounds, with minimum and maximum.
 */
import assert from 'node:assert/strict';
import { execFile, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import {
  createServer,
  importAccounts,
  migratePartner,
  openDatabase,
  partnerKit,
} from '@duebridge/partner';
import { sql } from '@duebridge/runtime';
import { fastify } from 'fastify';
import { end, measureProcessorTime, withDatabase } from './database.ts';
import { benchOptions } from './options.ts';
import { ratios, report } from './report.ts';

/** Number of accounts: enough that most payments of one transaction go to different ones, as with a real biller. */
const accountCount = 10_000;
const key = 'a-static-key-for-benchmarks';
/** Connections of pgbench and of the handler: where their figures were best. */
const bareConnections = 64;

/** For how long payments are put, and over how many connections. */
interface Load {
  readonly seconds: number;
  readonly connections: number;
}

type Kind = 'kit' | 'kit-accept' | 'handler';

/** What is measured, in this order in each round. */
const CONTENDERS = {
  pgbench,
  handler: (url: string, load: Load) => driveKit('handler', url, load),
  accept: (url: string, load: Load) => driveKit('kit-accept', url, load),
  post: (url: string, load: Load) => driveKit('kit', url, load),
};

async function main(): Promise<void> {
  const flags = benchOptions({ rounds: '3', seconds: '5', connections: '256' });
  const rates: Record<keyof typeof CONTENDERS, number[]> = {
    pgbench: [],
    handler: [],
    accept: [],
    post: [],
  };
  for (let round = 1; round <= flags.rounds; round += 1) {
    for (const [name, work] of Object.entries(CONTENDERS)) {
      const { perSecond } = await withDatabase(async (url) => {
        await prepareKit(url);
        return work(url, flags);
      });
      rates[name as keyof typeof CONTENDERS].push(perSecond);
      console.log(`round ${round}: ${name} ${(perSecond / 1000).toFixed(2)} k/s`);
    }
  }
  for (const [figure, what, one, other, target] of [
    ['F1', 'accept / pgbench', 'accept', 'pgbench', 'at least 1.0'],
    ['F2', 'accept and post / pgbench', 'post', 'pgbench', 'at least 0.5'],
    ['F1', 'accept / one INSERT per request', 'accept', 'handler', 'at least 2.5'],
  ] as const) {
    report({ figure, what, ...ratios(rates[one], rates[other]), target });
  }
}

/** The same insert by pgbench: 64 clients on two threads, prepared. Gives rows per second; NaN where it is not installed. */
async function pgbench(url: string, { seconds }: Load): Promise<{ perSecond: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-pgbench-'));
  const script = join(folder, 'insert.sql');
  await writeFile(
    script,
    `\\set account random(0, ${accountCount - 1})
INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
VALUES (gen_random_uuid()::text, gen_random_uuid(), 'batch-bare', 'acme', 'A-' || :account, 'static-key', 2500) ON CONFLICT (platform_payment_id) DO NOTHING;
`,
  );
  const words = `-n -M prepared -c ${bareConnections} -j 2 -T ${seconds} -f`.split(' ');
  const { stdout } = await promisify(execFile)('pgbench', [...words, script, url]).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
      console.log('pgbench is not installed: apt-get install postgresql-contrib');
      return { stdout: '' };
    },
  );
  await rm(folder, { recursive: true });
  return { perSecond: Number(/tps = ([\d.]+)/.exec(stdout)?.[1]) };
}

/** Makes the tables of a kit, and the accounts that payments are put to. */
export async function prepareKit(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 60_000 });
  await migratePartner(database);
  await importAccounts(
    database,
    Array.from({ length: accountCount }, (_, index) => ({
      biller_id: 'acme',
      account_id: `A-${index}`,
      amount_due_in_cents: 1_000_000,
    })),
  );
  await database.close();
}

/** The row that the kit writes, one per statement. */
const insertOne = sql(
  'insert_one',
  `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
   VALUES ($1, gen_random_uuid(), $2, $3, $4, 'static-key', $5) ON CONFLICT (platform_payment_id) DO NOTHING
   RETURNING payment_id, initiated_at`,
);

/** Ids as the platform generates them: ordered by time (UUIDv7), so that an index grows at one end. */
let minted = 0;
function mint(): string {
  minted += 1;
  return `${(Date.now() * 4096 + (minted % 4096)).toString(16)}-${randomBytes(8).toString('hex')}`;
}

/**
 * Starts a server of a kind, puts payments for some seconds and, if it posts them, waits until all have ended. Returns payments
 * per second, and the microseconds of processor time that PostgreSQL took for one.
 */
export async function driveKit(
  kind: Kind,
  url: string,
  load: Load,
): Promise<{ perSecond: number; micros: number }> {
  const child = fork(new URL(import.meta.url), ['serve'], { execArgv: [] });
  child.send({ kind, url });
  const [port] = (await once(child, 'message')) as [number];
  const ended = (): Promise<void> => (kind === 'kit' ? allEnded(url) : Promise.resolve());
  // A warm-up that is not counted.
  await put(port, { ...load, seconds: 1 });
  await ended();
  const used = await measureProcessorTime();
  const began = performance.now();
  const accepted = await put(port, load);
  await ended();
  const perSecond = (accepted / (performance.now() - began)) * 1000;
  const micros = (used().postgres * 1e6) / accepted;
  const gone = once(child, 'exit');
  child.send('stop');
  await gone;
  return { perSecond, micros };
}

async function allEnded(url: string): Promise<void> {
  const database = openDatabase({ url, applicationName: 'bench', maxConnections: 1 });
  const processing = 'SELECT FROM duebridge_partner.payment_processing LIMIT 1';
  // Checks every 20 ms; the resulting error is small compared with the seconds measured.
  while ((await database.query(processing)).length > 0) await delay(20);
  const bad = `SELECT FROM duebridge_partner.payment WHERE platform_batch_id = 'batch-kit' AND status <> 'succeeded' LIMIT 1`;
  assert.deepEqual(await database.query(bad), [], 'a payment did not succeed');
  await database.close();
}

/** Puts payments over all connections, each with one request in flight. Returns how many were answered 200. */
async function put(port: number, { seconds, connections }: Load): Promise<number> {
  let done = 0;
  const until = performance.now() + seconds * 1000;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true });
      await once(socket, 'connect');
      await new Promise<void>((resolve, reject) => {
        let seen = '';
        const send = (): void => {
          if (performance.now() >= until) {
            socket.end();
            resolve();
            return;
          }
          const body = `{"amount_in_cents":2500,"platform_batch_id":"batch-kit"}`;
          const account = `A-${Math.floor(Math.random() * accountCount)}`;
          socket.write(
            `PUT /biller/acme/account/${account}/payment/${mint()} HTTP/1.1\r\nHost: bench\r\nx-api-key: ${key}\r\n` +
              `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
          );
        };
        socket.on('data', (bytes: Buffer) => {
          seen += bytes.toString('latin1');
          const head = seen.indexOf('\r\n\r\n');
          if (head < 0) return;
          const length = Number(/content-length: (\d+)/i.exec(seen)?.[1] ?? 0);
          if (seen.length < head + 4 + length) return;
          assert.ok(seen.startsWith('HTTP/1.1 200'), seen);
          done += 1;
          seen = '';
          send();
        });
        socket.on('error', reject);
        send();
      });
    }),
  );
  return done;
}

async function serve(kind: Kind, url: string): Promise<void> {
  const app = kind === 'handler' ? handlerServer(url) : await kitServer(url, kind === 'kit');
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  process.send?.(Number(new URL(address).port));
  await once(process, 'message');
  await app.close();
  process.exit(0);
}

/** The kit. Without posting, payments stay in their cancel window, because F1 measures accepting. */
async function kitServer(url: string, posting: boolean) {
  const database = openDatabase({ url, applicationName: 'bench kit' });
  const app = createServer();
  await app.register(partnerKit, {
    database,
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
    ...(posting ? {} : { holdMs: 86_400_000 }),
  });
  app.addHook('onClose', () => database.close());
  return app;
}

/** The usual hand-written handler. */
function handlerServer(url: string) {
  const pool = { applicationName: 'bench handler', maxConnections: bareConnections };
  const database = openDatabase({ url, ...pool });
  const app = fastify();
  const properties = {
    amount_in_cents: { type: 'integer', minimum: 1 },
    platform_batch_id: { type: 'string' },
  };
  const body = { type: 'object', required: Object.keys(properties), properties };
  app.put<{
    Params: { biller_id: string; account_id: string; platform_payment_id: string };
    Body: { amount_in_cents: number; platform_batch_id: string };
  }>(
    '/biller/:biller_id/account/:account_id/payment/:platform_payment_id',
    { schema: { body } },
    async ({ headers, params, body }, reply) => {
      if (headers['x-api-key'] !== key) return reply.code(401).send({});
      const { platform_payment_id, biller_id, account_id } = params;
      const { amount_in_cents, platform_batch_id } = body;
      const keys = [platform_payment_id, platform_batch_id, biller_id, account_id];
      const [row] = await database.query<object>(insertOne, [...keys, amount_in_cents]);
      const shown = { platform_payment_id, amount_in_cents };
      return { ...row, ...shown, status: 'processing', posted_at: null };
    },
  );
  app.addHook('onClose', () => database.close());
  return app;
}

// As a child of itself it is the server.
if (process.argv[2] === 'serve') {
  // It ends with the benchmark, however that ends.
  process.once('disconnect', () => process.exit());
  const [{ kind, url }] = (await once(process, 'message')) as [{ kind: Kind; url: string }];
  await serve(kind, url);
} else if (import.meta.main) {
  await main();
  await end();
}
