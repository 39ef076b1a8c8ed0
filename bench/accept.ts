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
import { execFile, fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  createServer,
  importAccounts,
  migratePartner,
  openDatabase,
  partnerKit,
} from '@duebridge/partner';
import { ensureDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import { fastify } from 'fastify';
import pg from 'pg';
import { benchOptions } from './options.ts';
import { ratios, report } from './report.ts';

/** Number of accounts: enough that most payments of one transaction go to different ones, as with a real biller. */
const accountCount = 10_000;
const key = 'a-static-key-for-benchmarks';
/** Connections of pgbench and of the handler: where their figures were best. */
const bareConnections = 64;

const flags = benchOptions(import.meta.main, { rounds: '3', seconds: '5', connections: '256' });

/** Messages to a server process and back. */
interface Start {
  readonly kind: 'kit' | 'kit-accept' | 'handler';
  readonly url: string;
}

async function main(): Promise<void> {
  const rounds = Number(flags.rounds);
  const seconds = Number(flags.seconds);
  const connections = Number(flags.connections);
  const server = await testServer();
  const hasPgbench = await isInstalled('pgbench');
  if (!hasPgbench) console.log('pgbench is not installed: apt-get install postgresql-contrib');
  const rates = {
    pgbench: [] as number[],
    handler: [] as number[],
    accept: [] as number[],
    post: [] as number[],
  };
  const measure = async (work: (url: string) => Promise<number>): Promise<number> => {
    const name = `bench_${randomBytes(5).toString('hex')}`;
    const url = await ensureDatabase(server.url, name);
    await prepareKit(url);
    const perSecond = await work(url);
    await drop(server.url, name);
    return perSecond;
  };
  for (let round = 1; round <= rounds; round += 1) {
    if (hasPgbench) rates.pgbench.push(await measure((url) => pgbench(url, seconds)));
    rates.handler.push(await measure((url) => driveKit('handler', url, connections, seconds)));
    rates.accept.push(await measure((url) => driveKit('kit-accept', url, connections, seconds)));
    rates.post.push(await measure((url) => driveKit('kit', url, connections, seconds)));
    const line = Object.entries(rates).map(([what, list]) => `${what} ${rate(list.at(-1) ?? 0)}`);
    console.log(`round ${round}: ${line.join(', ')}`);
  }
  await server.stop();
  console.log(`${connections} connections, ${seconds} s a measurement, fsync on, ${rounds} rounds`);
  if (hasPgbench) {
    report({
      figure: 'F1',
      what: 'accept / pgbench',
      ...ratios(rates.accept, rates.pgbench),
      target: 'at least 1.0',
    });
    report({
      figure: 'F2',
      what: 'accept and post / pgbench',
      ...ratios(rates.post, rates.pgbench),
      target: 'at least 0.5',
    });
  }
  report({
    figure: 'F1',
    what: 'accept / one INSERT per request',
    ...ratios(rates.accept, rates.handler),
    target: 'at least 2.5',
  });
}

async function isInstalled(program: string): Promise<boolean> {
  return promisify(execFile)(program, ['--version']).then(
    () => true,
    () => false,
  );
}

/** The same insert by pgbench: 64 clients on two threads, prepared. Returns rows per second. */
async function pgbench(url: string, seconds: number): Promise<number> {
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
  const { stdout } = await promisify(execFile)('pgbench', [...words, script, url]);
  await rm(folder, { recursive: true });
  return Number(/tps = ([\d.]+)/.exec(stdout)?.[1]);
}

function rate(perSecond: number): string {
  return `${(perSecond / 1000).toFixed(2)} k/s`;
}

async function prepareKit(url: string): Promise<void> {
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

async function drop(adminUrl: string, name: string): Promise<void> {
  const admin = new pg.Client(adminUrl);
  await admin.connect();
  await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await admin.query('CHECKPOINT');
  await admin.end();
}

/** The row that the kit writes, one per statement. */
const insertOne = {
  name: 'insert_one',
  text: `INSERT INTO duebridge_partner.payment (platform_payment_id, payment_id, platform_batch_id, biller_id, account_id, client_id, amount_in_cents)
         VALUES ($1, gen_random_uuid(), $2, $3, $4, 'static-key', $5) ON CONFLICT (platform_payment_id) DO NOTHING
         RETURNING payment_id, initiated_at`,
};

/** Ids as the platform generates them: ordered by time (UUIDv7), so that an index grows at one end. */
let minted = 0;
function mint(): string {
  minted += 1;
  return `${(Date.now() * 4096 + (minted % 4096)).toString(16)}-${randomBytes(8).toString('hex')}`;
}

/**
 * Starts a server of a kind, puts payments for some seconds and, if it posts them, waits until all have ended. Returns payments
 * per second.
 */
async function driveKit(
  kind: Start['kind'],
  url: string,
  connections: number,
  seconds: number,
): Promise<number> {
  const child = fork(new URL(import.meta.url), ['serve'], { execArgv: [] });
  child.send({ kind, url } satisfies Start);
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  // A warm-up that is not counted.
  await put(port, connections, 1);
  if (kind === 'kit') await allEnded(url);
  const began = performance.now();
  const accepted = await put(port, connections, seconds);
  if (kind === 'kit') await allEnded(url);
  const perSecond = (accepted / (performance.now() - began)) * 1000;
  await stop(child);
  return perSecond;
}

async function stop(child: ChildProcess): Promise<void> {
  const gone = once(child, 'exit');
  child.send('stop');
  await gone;
}

async function allEnded(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  for (;;) {
    // Checks every 20 ms; the resulting error is small compared with the seconds measured.
    await new Promise((resolve) => setTimeout(resolve, 20));
    const { rows } = await client.query<{ left: number }>(
      `SELECT count(*)::int AS left FROM (SELECT FROM duebridge_partner.payment_processing LIMIT 1) AS one`,
    );
    if (rows[0]?.left === 0) break;
  }
  const { rows } = await client.query<{ bad: number }>(
    `SELECT count(*)::int AS bad FROM duebridge_partner.payment WHERE platform_batch_id = 'batch-kit' AND status <> 'succeeded'`,
  );
  assert.equal(rows[0]?.bad, 0, 'a payment did not succeed');
  await client.end();
}

/** Puts payments over this many connections, each with one request in flight. Returns how many were answered 200. */
async function put(port: number, connections: number, seconds: number): Promise<number> {
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

async function serve({ kind, url }: Start): Promise<void> {
  const app = kind === 'handler' ? await handlerServer(url) : await kitServer(url, kind === 'kit');
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  process.send?.({ port: Number(new URL(address).port) });
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
async function handlerServer(url: string) {
  const pool = new pg.Pool({ connectionString: url, max: bareConnections });
  const app = fastify();
  app.put<{
    Params: { biller_id: string; account_id: string; platform_payment_id: string };
    Body: { amount_in_cents: number; platform_batch_id: string };
  }>(
    '/biller/:biller_id/account/:account_id/payment/:platform_payment_id',
    {
      schema: {
        body: {
          type: 'object',
          required: ['amount_in_cents', 'platform_batch_id'],
          properties: {
            amount_in_cents: { type: 'integer', minimum: 1 },
            platform_batch_id: { type: 'string' },
          },
        },
      },
    },
    async (request, reply) => {
      if (request.headers['x-api-key'] !== key) return reply.code(401).send({});
      const { biller_id, account_id, platform_payment_id } = request.params;
      const { amount_in_cents, platform_batch_id } = request.body;
      const values = [
        platform_payment_id,
        platform_batch_id,
        biller_id,
        account_id,
        amount_in_cents,
      ];
      const { rows } = await pool.query<{ payment_id: string; initiated_at: Date }>({
        ...insertOne,
        values,
      });
      return {
        ...rows[0],
        platform_payment_id,
        status: 'processing',
        amount_in_cents,
        posted_at: null,
      };
    },
  );
  app.addHook('onClose', () => pool.end());
  return Promise.resolve(app);
}

// As a child of itself it is the server.
if (process.argv[2] === 'serve') {
  const [start] = (await once(process, 'message')) as [Start];
  await serve(start);
} else await main();
