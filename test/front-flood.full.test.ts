/**
 * A stranger on one address against a real platform with a real partner: what it costs the server is bounded, others are answered and
 * pay, payments end as fast as before, and the engine keeps its lease. The attacker is a process of its own, so that it does not
 * slow down the one who looks.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { constants, setPriority, tmpdir } from 'node:os';
import path from 'node:path';
import { after, before } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  startScriptedPartner,
  type ScriptedPartner,
} from '@duebridge/conformance/scripted-partner';
import type { ClientKeyGrant } from '@duebridge/contract';
import { ensureDatabase, openDatabase, type Database } from '@duebridge/runtime';
import { assertInTime, freePort, testInRealTime, testServer } from '@duebridge/runtime/testing';
import { request } from 'undici';
import { call, createToken, openSession, type Client } from './support/customer.ts';
import { Server } from './support/processes.ts';

const ADMIN_KEY = 'admin-key-of-the-flood-test';
const PARTNER_KEY = 'partner-key-of-the-flood-test';
/** Between two customers: below the 25 tokens a second that a client may ask for. */
const CUSTOMER_EVERY_MS = 60;
/** Customers of a quiet time: as many as come during the shortest attack at least. */
const QUIET_CUSTOMERS = 100;

let folder: string;
let postgres: Awaited<ReturnType<typeof testServer>>;
let platform: Server;
let partner: ScriptedPartner;
let books: Database;
let client: Client;
const logFile = (): string => path.join(folder, 'platform.log');

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'duebridge-flood-'));
  postgres = await testServer();
  const url = await ensureDatabase(postgres.url, `flood_${process.pid}`);
  const adminPort = await freePort();
  platform = new Server({
    args: ['platform', 'serve'],
    port: await freePort(),
    env: {
      DATABASE_URL: url,
      ADMIN_PORT: String(adminPort),
      DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
      DUEBRIDGE_DATA_DIR: folder,
      // The attacker has another address than the proxy.
      DUEBRIDGE_TRUSTED_PROXIES: '127.0.0.1',
      DUEBRIDGE_SEAL_KEY: Buffer.alloc(32, 1).toString('base64'),
      DUEBRIDGE_KEY_PEPPER: Buffer.alloc(32, 2).toString('base64'),
      DUEBRIDGE_ADMIN_KEY: ADMIN_KEY,
    },
    logFile: logFile(),
  });
  partner = await startScriptedPartner({
    auth: { method: 'key', header: 'x-api-key', key: PARTNER_KEY },
    accounts: [{ biller_id: 'sandbox-utility', account_id: 'active', status: 'active' }],
    processing_ms: 0,
  });
  await platform.start();
  books = openDatabase({ url, applicationName: 'flood' });
  const admin = `http://127.0.0.1:${adminPort}/admin/v1/partners`;
  const authorization = { authorization: `Bearer ${ADMIN_KEY}` };
  const registered = await call('POST', admin, authorization, {
    partner_id: 'sandbox',
    name: 'Sandbox Utility',
    kind: 'biller',
    biller_id: 'sandbox-utility',
    base_url: partner.url,
    origins: ['https://www.sandbox.example'],
    auth: { method: 'key', header: 'x-api-key', key: PARTNER_KEY },
  });
  assert.equal(registered.status, 200, JSON.stringify(registered.body));
  const grant = await call<ClientKeyGrant>('POST', `${admin}/sandbox/keys`, authorization, {});
  client = { platformUrl: platform.url, ...grant.body };
});
after(async () => {
  await Promise.all([platform.stop(), partner.stop()]);
  await books.close();
  const admin = openDatabase({ url: postgres.url, applicationName: 'flood' });
  await admin.query(`DROP DATABASE IF EXISTS flood_${process.pid} WITH (FORCE)`);
  await admin.close();
  await postgres.stop();
  await rm(folder, { recursive: true, force: true });
});

/** The slowest payment of a hundred, from the confirm to the end, and the processor time of the platform for one, in milliseconds. */
interface Paid {
  readonly p99: number;
  readonly count: number;
  readonly processorMs: number;
}

/** Customers come one after the other for as long as `goesOn`. */
async function paying(goesOn: (paid: number) => boolean): Promise<Paid> {
  const before = platform.processorMs;
  const customers: Promise<string>[] = [];
  while (goesOn(customers.length)) {
    const customer = pay();
    // Its failure is that of all, below.
    customer.catch(() => undefined);
    customers.push(customer);
    await delay(CUSTOMER_EVERY_MS);
  }
  const ids = await Promise.all(customers);
  for (;;) {
    const rows = await books.query<{ ms: number | null }>(
      `SELECT (extract(epoch FROM ended_at - created_at) * 1000)::float8 AS ms
         FROM duebridge_platform.payments WHERE platform_payment_id = ANY ($1::text[])`,
      [ids],
    );
    const times = rows.flatMap(({ ms }) => ms ?? []).sort((one, other) => one - other);
    if (times.length === ids.length) {
      const p99 = times[Math.ceil(times.length * 0.99) - 1] ?? 0;
      return { p99, count: times.length, processorMs: platform.processorMs - before };
    }
    await delay(50);
  }
}

let customers = 0;
async function pay(): Promise<string> {
  customers += 1;
  const email = `ada-${customers}@example.com`;
  const token = await createToken(client, { account_id: 'active' }, email);
  assertInTime(token.status !== 503, JSON.stringify(token.body));
  assert.equal(token.status, 200, JSON.stringify(token.body));
  const browser = await openSession(platform.url, token.body.token).catch((error: Error) => {
    assertInTime(!error.message.includes('"status":503'), error.message);
    throw error;
  });
  const paid = await browser.confirm(1_000 + customers);
  assertInTime(paid.status !== 503, JSON.stringify(paid.body));
  assert.equal(paid.status, 200, JSON.stringify(paid.body));
  return paid.body.platform_payment_id;
}

/**
 * Looks on during an attack: /healthz must answer within a second, no lease may be lost, and the attack itself may take a second of the
 * platform's processor, whatever else this machine does: the faults took 13 s. The p99 of payments, which should be at most 1.5 of what it
 * was a moment before, varies threefold by itself on a busy machine, so it gets two more tries and fails by a second at the earliest.
 * A machine that is too slow for the payments alone judges nothing.
 */
async function under(attack: string): Promise<Record<string, number>> {
  for (let tried = 1; ; tried += 1) {
    const quiet = await paying((paid) => paid < QUIET_CUSTOMERS);
    const { seen, slowestMs, attacked } = await attackedBy(attack);
    const log = await readFile(logFile(), 'utf8');
    assertInTime(!log.includes('the lease was lost'), 'the lease was lost');
    const ratio = attacked.p99 / quiet.p99;
    const ofPayments = (quiet.processorMs / quiet.count) * attacked.count;
    const processorMs = Math.round(attacked.processorMs - ofPayments);
    console.log(
      `p99 ${Math.round(quiet.p99)} ms quiet, ${Math.round(attacked.p99)} ms under attack: ${ratio.toFixed(2)}; ` +
        `the attack took ${processorMs} ms of the processor, a payment ${Math.round(quiet.processorMs / quiet.count)} ms; /healthz ${Math.round(slowestMs)} ms`,
    );
    const isFast = slowestMs < 1_000 && (ratio <= 1.5 || attacked.p99 < 1_000);
    if (isFast && processorMs < 1_000) return seen;
    const found = `/healthz took ${slowestMs} ms, p99 is ${ratio} of the quiet one, the processor ${processorMs} ms`;
    assertInTime(tried < 3, found);
    // An address that was shut out is let in again.
    await delay(11_000);
  }
}

/**
 * Runs an attack in a process of its own, which prints what it saw as JSON; meanwhile customers pay, and /healthz is asked from another
 * address.
 */
async function attackedBy(
  attack: string,
): Promise<{ seen: Record<string, number>; slowestMs: number; attacked: Paid }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', attack, platform.url], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  // The attacker is on another machine: it takes no processor from the servers.
  if (child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_LOW);
  let printed = '';
  child.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()));
  const ended = once(child, 'close');
  const goesOn = (): boolean => child.exitCode === null && child.signalCode === null;
  const payments = paying(goesOn);
  payments.catch(() => undefined);
  let slowestMs = 0;
  while (goesOn()) {
    const at = performance.now();
    const answer = await request(`${platform.url}/healthz`, { reset: true });
    await answer.body.dump();
    slowestMs = Math.max(slowestMs, performance.now() - at);
    await delay(50);
  }
  await ended;
  const attacked = await payments;
  return { seen: JSON.parse(printed) as Record<string, number>, slowestMs, attacked };
}

testInRealTime('requests whose answers nobody reads', async () => {
  await under(`
    import net from 'node:net';
    const url = new URL(process.argv[1]);
    const one = 'GET /openapi.json HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n';
    for (let index = 0; index < 300; index += 1) {
      const socket = net.connect({ port: Number(url.port), host: '127.0.0.1', localAddress: '127.0.0.2' }, () => socket.write(one.repeat(400)));
      socket.on('error', () => {}).pause();
    }
    setTimeout(() => { console.log('{}'); process.exit(0); }, 15_000);`);
});

testInRealTime('pages, for ten seconds, from one address', async () => {
  const seen = await under(`
    import http from 'node:http';
    const agent = new http.Agent({ keepAlive: true, maxSockets: 50 });
    const paths = ['/flow/v1/acme', '/openapi.json', '/sdk/v1/duebridge.js', '/flow/ping'];
    const seen = {};
    const until = Date.now() + 10_000;
    const one = (path) => new Promise((done) => {
      const count = (what) => { seen[what] = (seen[what] ?? 0) + 1; done(); };
      http.get(process.argv[1] + path, { agent, localAddress: '127.0.0.2', headers: { 'accept-encoding': 'gzip' } }, (answer) => {
        answer.resume().on('end', () => count(answer.statusCode)).on('error', () => count('cut'));
      }).on('error', () => count('cut'));
    });
    await Promise.all(Array.from({ length: 50 }, async () => {
      for (let index = 0; Date.now() < until; index += 1) await one(paths[index % 4]);
    }));
    console.log(JSON.stringify(seen));`);
  // It is told to slow down first, and loses its fifty connections when it does not; the next fifty are held.
  assert.ok((seen['429'] ?? 0) > 100 && (seen['cut'] ?? 0) >= 50, JSON.stringify(seen));
  assert.ok((seen['cut'] ?? 0) < 1_000, JSON.stringify(seen));
  assert.ok((seen['200'] ?? 0) < 2_000, JSON.stringify(seen));
});

testInRealTime('connections, ten thousand from one address', async () => {
  const seen = await under(`
    import net from 'node:net';
    const url = new URL(process.argv[1]);
    let open = 0, closed = 0;
    for (let index = 0; index < 10_000; index += 1) {
      const socket = net.connect({ port: Number(url.port), host: '127.0.0.1', localAddress: '127.0.0.2' }, () => (open += 1));
      socket.on('error', () => {}).on('close', () => (closed += 1));
      if (index % 500 === 0) await new Promise((done) => setTimeout(done, 50));
    }
    setTimeout(() => { console.log(JSON.stringify({ open, closed })); process.exit(0); }, 5_000);`);
  assert.ok(10_000 - seen['closed']! < 2_000, JSON.stringify(seen));
});
