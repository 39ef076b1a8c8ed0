/**
 * F12 at the partner kit: the time from acceptance to the end of healthy payments while others are locked, hang, fail or wait, or while the
 * database is far away, against the same without. A steady stream of `--rate` payments a second to many accounts of one biller. Each
 * trouble is there before the stream begins, gets five more payments a second, and lasts until the stream has ended. None may wait more
 * than two seconds beside one thing in trouble, and ten with a database that is far away.
 *
 *     node bench/kit-neighbours.ts [--rounds 3] [--rate 40] [--seconds 10] [--only locked,far-300]
 */
import assert from 'node:assert/strict';
import { openDatabase, systemClock, type Database, type Transaction } from '@duebridge/runtime';
import { holdLock } from '@duebridge/runtime/testing';
import type {
  AccountSystem,
  Posting,
  PostOutcome,
} from '../packages/partner/src/account-system.ts';
import { importAccounts, ledger } from '../packages/partner/src/ledger.ts';
import { kitDatabase, startKit } from '../packages/partner/test/kit.ts';
import { PostgresProxy } from '../test/rig/postgres-proxy.ts';
import { end } from './database.ts';
import { benchOptions } from './options.ts';
import { compareTroubles, steadily, type Trouble } from './report.ts';

const flags = benchOptions({ rounds: '3', rate: '40', seconds: '10', only: 'all' });
const ACCOUNTS = 200;
/** Payments in trouble before the stream begins. */
const SICK = 40;
const SICK_ACCOUNTS = Array.from({ length: 10 }, (_, index) => `sick-${index}`);

interface KitTrouble extends Trouble {
  /** Where postings go: the kit's ledger, the biller's own tables beside it, or a core of the biller's that takes 5 ms for each. */
  readonly to: 'ledger' | 'tables' | 'core';
  /** Biller and account of the payments in trouble. */
  readonly sick?: (index: number) => readonly [biller_id: string, account_id: string];
  /** What is done with them. */
  readonly post?: () => Promise<PostOutcome>;
  /** A statement that locks something while it lasts. */
  readonly lock?: string;
  /** Milliseconds that each round trip to the database takes longer. */
  readonly awayMs?: number;
}

const never = (): Promise<never> => new Promise(() => undefined);
const ofAccount = (): [string, string] => ['acme', 'sick-0'];
const ofBiller = (index: number): [string, string] => ['sick', `A-${index}`];

const far = (awayMs: number): KitTrouble => ({
  what: `the database is ${awayMs} ms away`,
  target: 'none',
  to: 'ledger',
  awayMs,
});
const target = 'at most 1.5';

const TROUBLES: Readonly<Record<string, KitTrouble>> = {
  'far-100': far(100),
  'far-300': far(300),
  locked: {
    what: 'an account row is locked',
    target,
    to: 'ledger',
    sick: ofAccount,
    lock: "SELECT FROM duebridge_partner.account WHERE account_id = 'sick-0' FOR UPDATE",
  },
  'locked-ten': {
    what: 'ten account rows are locked',
    target,
    to: 'ledger',
    sick: (index) => ['acme', `sick-${index % 10}`],
    lock: "SELECT FROM duebridge_partner.account WHERE account_id LIKE 'sick%' FOR UPDATE",
  },
  'locked-table': {
    what: "a row of the biller's own table is locked",
    target,
    to: 'tables',
    sick: ofAccount,
    lock: "SELECT FROM shop.bill WHERE account_no = 'sick-0' FOR UPDATE",
  },
  'posting-hangs': {
    what: "postings of one biller hang in the kit's transaction",
    target,
    to: 'ledger',
    sick: ofBiller,
    post: never,
  },
  account: { what: 'calls for one account hang', target, to: 'core', sick: ofAccount, post: never },
  biller: { what: 'calls for one biller hang', target, to: 'core', sick: ofBiller, post: never },
  failing: {
    what: 'calls for one biller fail',
    target,
    to: 'core',
    sick: ofBiller,
    post: () => Promise.reject(new Error('the core failed')),
  },
  slow: {
    what: 'calls for one biller take 3 s',
    target,
    to: 'core',
    sick: ofBiller,
    post: async () => {
      await systemClock.sleep(3_000);
      return { outcome: 'posted' };
    },
  },
};

/** A core that takes 5 ms, except for payments in trouble. */
function coreOf(post: KitTrouble['post']): AccountSystem {
  return {
    posts: 'in_own_system',
    findAccount: () => Promise.resolve(undefined),
    post: (payments) =>
      Promise.all(
        payments.map(async ({ platform_payment_id }): Promise<PostOutcome> => {
          if (post !== undefined && platform_payment_id.startsWith('sick-')) return post();
          await systemClock.sleep(5);
          return { outcome: 'posted' };
        }),
      ),
  };
}

/** The kit's ledger, whose postings hang while one in trouble is among them. */
function hangingLedger(database: Database): AccountSystem {
  const kit = ledger(database);
  return {
    ...kit,
    post: (payments: readonly Posting[], tx: Transaction) =>
      payments.some(({ biller_id }) => biller_id === 'sick') ? never() : kit.post(payments, tx),
  };
}

/** The biller's own table beside the kit's: each payment by a statement of its own, which waits for a locked row. */
async function tablesOf(database: Database): Promise<AccountSystem> {
  await database.query(
    `CREATE SCHEMA shop CREATE TABLE bill (account_no text PRIMARY KEY, due bigint NOT NULL DEFAULT 1000000)`,
  );
  await database.query(
    `INSERT INTO shop.bill (account_no) SELECT account_id FROM duebridge_partner.account`,
  );
  return {
    ...ledger(database),
    async post(payments: readonly Posting[], tx: Transaction) {
      for (const { account_id, amount_in_cents } of payments) {
        const pay = 'UPDATE shop.bill SET due = due - $2 WHERE account_no = $1';
        await tx.query(pay, [account_id, amount_in_cents]);
      }
      return payments.map((): PostOutcome => ({ outcome: 'posted' }));
    },
  };
}

/** The accounts of a kit in trouble; none for its own ledger. */
async function accountsOf(
  { to, post }: KitTrouble,
  database: Database,
): Promise<{ accounts?: AccountSystem }> {
  if (to === 'core') return { accounts: coreOf(post) };
  if (to === 'tables') return { accounts: await tablesOf(database) };
  return post === undefined ? {} : { accounts: hangingLedger(database) };
}

/** One stream to a kit on a fresh database; returns the sorted waits in milliseconds. */
async function stream(trouble: KitTrouble, isThere: boolean): Promise<readonly number[]> {
  const hooks: (() => Promise<void> | void)[] = [];
  try {
    const database = await kitDatabase({ after: (hook) => hooks.push(hook) }, 'bench');
    const names = Array.from({ length: ACCOUNTS }, (_, index) => `A-${index}`);
    await importAccounts(
      database,
      [...SICK_ACCOUNTS, ...names].map((account_id) => {
        return { biller_id: 'acme', account_id, amount_due_in_cents: 1_000_000 };
      }),
    );
    const address = new URL(database.url);
    const proxy = new PostgresProxy({ host: address.hostname, port: Number(address.port) });
    proxy.faults.latencyMs = isThere ? (trouble.awayMs ?? 0) / 2 : 0;
    address.port = String(await proxy.listen());
    hooks.unshift(() => proxy.close());
    const seen = openDatabase({ url: address.href, applicationName: 'bench', maxConnections: 10 });
    hooks.unshift(() => seen.close());
    const partner = await startKit(trouble.awayMs === undefined ? database : seen, {
      connections: 2_000,
      ...(await accountsOf(trouble, database)),
    });
    hooks.unshift(() => partner.close());
    const put = async (biller: string, account: string, id: string): Promise<void> => {
      const path = `/biller/${biller}/account/${account}/payment/${id}`;
      const body = '{"amount_in_cents":100,"platform_batch_id":"b"}';
      const { status, text } = await partner.call('PUT', path, { body });
      assert.equal(status, 200, text);
    };
    let sick = 0;
    const fallIll = async (): Promise<void> => {
      if (isThere && trouble.sick) await put(...trouble.sick(sick), `sick-${(sick += 1)}`);
    };
    const isLocked = isThere && trouble.lock !== undefined;
    const unlock = isLocked ? await holdLock(database.url, trouble.lock) : undefined;
    for (let n = 0; n < SICK; n += 1) await fallIll();
    await steadily(flags, async (n) => {
      if (n % Math.ceil(flags.rate / 5) === 0) await fallIll();
      await put('acme', `A-${n % ACCOUNTS}`, `p-${n}`);
    });
    const times = await waits(database);
    await unlock?.();
    return times;
  } finally {
    for (const hook of hooks) await hook();
  }
}

/** Waits until the payments of the stream have ended; returns the sorted times from acceptance to end, in milliseconds. */
async function waits(database: Database): Promise<number[]> {
  for (;;) {
    const rows = await database.query<{ ms: number | null }>(
      `SELECT (extract(epoch FROM ended_at - initiated_at) * 1000)::float8 AS ms
         FROM duebridge_partner.payment WHERE platform_payment_id LIKE 'p-%'`,
    );
    const times = rows.flatMap(({ ms }) => (ms === null ? [] : [ms]));
    if (times.length === rows.length) return times.toSorted((a, b) => a - b);
    await systemClock.sleep(100);
  }
}

await compareTroubles('F12', flags, TROUBLES, stream);
await end();
