/**
 * kill -9 of everything, at any moment, under load: two platform workers, a partner and PostgreSQL are killed again and again while
 * customers pay. When it is over every payment has ended, none that was acknowledged is lost, and none was posted or charged twice.
 */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientKeyGrant } from '@duebridge/contract';
import {
  ensureDatabase,
  openDatabase,
  startEmbeddedPostgres,
  type Database,
} from '@duebridge/runtime';
import { freePort, seededRandom } from '@duebridge/runtime/testing';
import { Browser, call, createToken, type Client } from './support/customer.ts';
import { Server } from './support/processes.ts';

/** Replays the same kills with DUEBRIDGE_SEED=…; the load's own timing differs from run to run. */
const seed = Number(process.env['DUEBRIDGE_SEED'] ?? Date.now() % 1_000_000);

/** Each of the four victims is hit three times, at moments that differ. */
const ROUNDS = 12;
const CUSTOMERS = 10;
/** Between two payments of one customer: load enough to be hit at every moment, and no more than two cores bear. */
const PAUSE_MS = 150;
/** More than the load can pay in the time: it must not run dry before the last kill. */
const ACCOUNTS = 1_500;
const OPENING_BALANCE_IN_CENTS = 100_000;
const KEY = 'static-key-of-the-crash-test';
const secret = (letter: string): string => Buffer.alloc(32, letter).toString('base64');

interface Paid {
  readonly id: string;
  readonly amount_in_cents: number;
  readonly account_id: string;
}

test('nothing acknowledged is lost and nothing is paid twice, whatever is killed [S4 PF2 RU2 RU5 EE1 EE2 F69 F88]', async (t) => {
  t.diagnostic(`DUEBRIDGE_SEED=${seed}`);
  const random = seededRandom(seed);
  const folder = await mkdtemp(join(tmpdir(), 'duebridge-crash-'));
  // When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere and left there.
  await chmod(folder, 0o711);
  const postgres = await startEmbeddedPostgres({ dataDirectory: join(folder, 'data') });
  const urls = {
    platform: await ensureDatabase(postgres.url, 'crash_platform'),
    partner: await ensureDatabase(postgres.url, 'crash_partner'),
  };
  const ports = await Promise.all(Array.from({ length: 6 }, () => freePort()));
  const adminKey = 'admin-key-of-the-crash-test';
  const common = {
    DUEBRIDGE_ADMIN_KEY: adminKey,
    DUEBRIDGE_DATA_DIR: folder,
    LOG_LEVEL: 'warn',
  };
  const partner = new Server({
    args: ['partner', 'serve'],
    port: ports[0]!,
    env: {
      ...common,
      ADMIN_PORT: String(ports[1]),
      DATABASE_URL: urls.partner,
      DUEBRIDGE_PARTNER_KEY: KEY,
    },
    logFile: join(folder, 'partner.log'),
  });
  const worker = (name: string, port: number, adminPort: number): Server =>
    new Server({
      args: ['platform', 'serve'],
      port,
      env: {
        ...common,
        ADMIN_PORT: String(adminPort),
        DATABASE_URL: urls.platform,
        DUEBRIDGE_SEAL_KEY: secret('s'),
        DUEBRIDGE_KEY_PEPPER: secret('p'),
        DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES: '1',
        DUEBRIDGE_IP_RATE: '0',
      },
      logFile: join(folder, `${name}.log`),
    });
  const platforms = [worker('one', ports[2]!, ports[3]!), worker('two', ports[4]!, ports[5]!)];
  const [first, second] = platforms as [Server, Server];
  const books: Database[] = [];
  t.after(async () => {
    await Promise.all([partner, first, second].map((server) => server.kill()));
    await Promise.all(books.map((book) => book.close()));
    await postgres.stop();
    await rm(folder, { recursive: true, force: true });
  });
  await Promise.all([partner.start(), first.start(), second.start()]);

  // Setting up -----------------------------------------------------------------------------------
  const admin = { authorization: `Bearer ${adminKey}` };
  const csv = Array.from(
    { length: ACCOUNTS },
    (_, index) => `gas,acc-${index},active,${OPENING_BALANCE_IN_CENTS}`,
  );
  const imported = await call(
    'POST',
    `http://127.0.0.1:${ports[1]}/admin/v1/accounts/import`,
    admin,
    { csv: `biller_id,account_id,status,amount_due_in_cents\n${csv.join('\n')}\n` },
  );
  assert.equal(imported.status, 200);
  const platformAdmin = `http://127.0.0.1:${ports[3]}/admin/v1/partners`;
  const registered = await call('POST', platformAdmin, admin, {
    partner_id: 'gas',
    name: 'Gas',
    kind: 'biller',
    biller_id: 'gas',
    base_url: partner.url,
    origins: [],
    auth: { method: 'key', header: 'x-api-key', key: KEY },
    // A killed partner opens the breaker and stretches the schedule; what is proven here is what happens, not when.
    budget: { call_timeout_ms: 2_000, wait_seconds: 2 },
  });
  assert.equal(registered.status, 200, JSON.stringify(registered.body));
  const keys = await Promise.all(
    Array.from({ length: 4 }, () =>
      call<ClientKeyGrant>('POST', `${platformAdmin}/gas/keys`, admin, {}),
    ),
  );

  // The load: customers who try again whatever happens -------------------------------------------
  const paid: Paid[] = [];
  const trouble = { refused: 0, retried: 0 };
  const closing = new AbortController();
  let nextAccount = 0;

  /** Repeats a step at either platform until it gets its 200; every other answer must be a passing one. */
  const insist = async <T>(
    step: (platformUrl: string) => Promise<{ status: number; body: T }>,
  ): Promise<T> => {
    for (let tried = 0; ; tried += 1) {
      const platform = platforms[tried % 2]!;
      const answer = await step(platform.url).catch(() => undefined);
      if (answer?.status === 200) return answer.body;
      trouble.retried += 1;
      if (answer !== undefined && ![429, 500, 503].includes(answer.status)) {
        trouble.refused += 1;
        throw new Error(`a customer was refused: ${answer.status} ${JSON.stringify(answer.body)}`);
      }
      await delay(50);
    }
  };
  const customer = async (): Promise<void> => {
    while (!closing.signal.aborted && nextAccount < ACCOUNTS) {
      const index = nextAccount++;
      const account_id = `acc-${index}`;
      const { client_id, api_key } = keys[index % keys.length]!.body;
      const client = (platformUrl: string): Client => ({ platformUrl, client_id, api_key });
      const { token } = await insist((url) => createToken(client(url), { account_id }));
      const { session } = await insist(async (url) =>
        call<{ session: string }>(
          'POST',
          `${url}/v1/flow/session`,
          { authorization: `Bearer ${token}` },
          {},
        ),
      );
      const amount_in_cents = 100 + index;
      const payment = await insist((url) => new Browser(url, session).confirm(amount_in_cents));
      // Acknowledged: from here on it may not be lost. A repeat gives the same payment (PL3).
      paid.push({ id: payment.platform_payment_id, amount_in_cents, account_id });
      const again = await insist((url) => new Browser(url, session).confirm(amount_in_cents));
      assert.equal(again.platform_payment_id, payment.platform_payment_id);
      await delay(PAUSE_MS);
    }
  };
  const customers = Promise.all(Array.from({ length: CUSTOMERS }, customer));
  // A refused customer fails the test at its end, not as an unhandled rejection in the middle.
  customers.catch(() => undefined);

  // The killer -----------------------------------------------------------------------------------
  const victims = ['platform one', 'platform two', 'partner', 'postgres'] as const;
  // Each victim once in every four rounds, in an order that the seed decides.
  const order = Array.from({ length: ROUNDS / victims.length }, () =>
    shuffled(victims, random),
  ).flat();
  for (const victim of order) {
    await delay(100 + Math.floor(random() * 500));
    if (victim === 'postgres') {
      const { pid } = postgres;
      process.kill(pid, 'SIGKILL');
      while (postgres.pid === pid) await delay(10);
      continue;
    }
    const server = victim === 'partner' ? partner : victim === 'platform one' ? first : second;
    await server.kill();
    await delay(Math.floor(random() * 300));
    await startThrough(server);
  }
  closing.abort();
  await customers;
  assert.ok(nextAccount < ACCOUNTS, 'the load ran dry before the last kill');
  assert.ok(paid.length >= 50, `only ${paid.length} payments were made: the load was no load`);
  t.diagnostic(
    `${paid.length} payments acknowledged, ${order.length} kills, ${trouble.retried} retries`,
  );

  // What must hold -------------------------------------------------------------------------------
  const ours = openDatabase({ url: urls.platform, applicationName: 'crash test' });
  const theirs = openDatabase({ url: urls.partner, applicationName: 'crash test' });
  books.push(ours, theirs);
  const open = `SELECT platform_payment_id, stage, review_reason FROM duebridge_platform.payments WHERE settled_at IS NULL`;
  const until = performance.now() + 90_000;
  for (let left = await ours.query(open); left.length > 0; left = await ours.query(open)) {
    assert.ok(performance.now() < until, `not ended: ${JSON.stringify(left.slice(0, 5))}`);
    await delay(200);
  }

  const here = await ours.query<{ id: string; status: string; cents: number; account_id: string }>(
    `SELECT platform_payment_id AS id, status, amount_in_cents AS cents, account_id
       FROM duebridge_platform.payments ORDER BY 1`,
  );
  const there = await theirs.query<{
    id: string;
    status: string;
    cents: number;
    account_id: string;
  }>(
    `SELECT platform_payment_id AS id, status, amount_in_cents AS cents, account_id
       FROM duebridge_partner.payment ORDER BY 1`,
  );
  assert.deepEqual(here, there, 'the two sides differ');
  assert.deepEqual([...new Set(here.map((row) => row.status))], ['succeeded']);
  const byId = new Map(here.map((row) => [row.id, row]));
  for (const { id, amount_in_cents, account_id } of paid) {
    const row = byId.get(id);
    assert.ok(row, `the acknowledged payment ${id} is lost`);
    assert.equal(row.cents, amount_in_cents);
    assert.equal(row.account_id, account_id);
  }
  assert.equal(
    new Set(here.map((row) => row.account_id)).size,
    here.length,
    'an account paid twice',
  );

  const postings = await theirs.query<{ id: string; cents: number }>(
    `SELECT transfer_id AS id, (-amount_in_cents)::bigint AS cents FROM duebridge_partner.entry
       JOIN duebridge_partner.transfer USING (transfer_id) WHERE line = 1 AND kind = 'payment' ORDER BY 1`,
  );
  assert.deepEqual(
    postings,
    here.map(({ id, cents }) => ({ id, cents })),
    'postings and payments differ',
  );
  const wrong = await theirs.query(
    `SELECT account_id FROM duebridge_partner.account
      WHERE amount_due_in_cents <> $1 - coalesce((SELECT sum(p.amount_in_cents) FROM duebridge_partner.payment p
             WHERE p.account_id = account.account_id AND p.status = 'succeeded'), 0)`,
    [OPENING_BALANCE_IN_CENTS],
  );
  assert.deepEqual(wrong, [], 'a balance differs from what was paid');
  const funds = await ours.query(
    `SELECT p.platform_payment_id FROM duebridge_platform.payments p
      WHERE 1 <> (SELECT count(*) FROM duebridge_platform.sandbox_funds f
                   WHERE f.platform_payment_id = p.platform_payment_id AND f.act = 'capture'
                     AND f.amount_in_cents = p.amount_in_cents)`,
  );
  assert.deepEqual(funds, [], 'a succeeded payment was not captured once');
});

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, at: random() }))
    .toSorted((one, other) => one.at - other.at)
    .map(({ item }) => item);
}

/** A start that meets the moment in which PostgreSQL is down is made again, as a supervisor would. */
async function startThrough(server: Server): Promise<void> {
  for (let tried = 0; tried < 5; tried += 1) {
    try {
      await server.start();
      return;
    } catch {
      await server.kill();
    }
  }
  await server.start();
}
