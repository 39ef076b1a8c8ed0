/**
 * F12 at the partner kit: the time from PUT to the end of healthy payments while others are locked, hang, fail or wait, against the same
 * without them, in alternating rounds. A steady stream of `--rate` payments a second over HTTP, to many accounts of two billers; the end is
 * seen by a waiting read, as a platform sees it. Each trouble is there before the stream begins, gets five more payments a
 * second, and lasts until the stream has ended.
 *
 *     node bench/kit-neighbours.ts [--rounds 3] [--rate 40] [--seconds 10] [--only locked]
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { openDatabase, systemClock, type Database, type Transaction } from '@duebridge/runtime';
import { holdLock } from '@duebridge/runtime/testing';
import type {
  AccountSystem,
  Posting,
  PostOutcome,
} from '../packages/partner/src/account-system.ts';
import { accountsOverHttp } from '../packages/partner/src/accounts-over-http.ts';
import { accountsBySql } from '../packages/partner/src/accounts-by-sql.ts';
import { importAccounts, ledger } from '../packages/partner/src/ledger.ts';
import {
  kitDatabase,
  startKit,
  withKey,
  type TestPartner,
} from '../packages/partner/src/testing.ts';
import { benchOptions, chosenOf } from './options.ts';
import { quantile, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  rate: '40',
  seconds: '10',
  only: undefined,
});
const ACCOUNTS = 200;
const LOCK_SICK = "SELECT FROM duebridge_partner.account WHERE account_id = 'sick' FOR UPDATE";
/** Payments in trouble before the stream begins. */
const SICK = 40;

interface Trouble {
  readonly what: string;
  /** Where postings go: the kit's ledger, the biller's own tables beside it, or a system of the biller's that takes 5 ms for each, called in this process or over HTTP. */
  readonly to: 'ledger' | 'tables' | 'core' | 'service';
  /** Biller and account of the payments in trouble. */
  readonly sick: (index: number) => readonly [biller_id: string, account_id: string];
  /** What the biller's own system does with them. */
  readonly post?: () => Promise<PostOutcome>;
  /** Starts what is not a payment; returns what ends it. */
  readonly begin?: (place: { url: string; partner: TestPartner }) => Promise<() => Promise<void>>;
}

const never = (): Promise<never> => new Promise(() => undefined);

const troubles: Record<string, Trouble> = {
  locked: {
    what: 'an account row is locked',
    to: 'ledger',
    sick: () => ['acme', 'sick'],
    begin: ({ url }) => lockAccount(url),
  },
  'locked-ten': {
    what: 'ten account rows are locked',
    to: 'ledger',
    sick: (index) => ['acme', `sick-${index % 10}`],
    begin: ({ url }) =>
      holdLock(
        url,
        "SELECT FROM duebridge_partner.account WHERE account_id LIKE 'sick%' FOR UPDATE",
      ),
  },
  'locked-table': {
    what: "a row of the biller's own table is locked",
    to: 'tables',
    sick: () => ['acme', 'sick'],
    begin: ({ url }) => holdLock(url, "SELECT FROM shop.bill WHERE account_no = 'sick' FOR UPDATE"),
  },
  'posting-hangs': {
    what: "postings of one biller hang in the kit's transaction",
    to: 'ledger',
    sick: (index) => ['sick', `A-${index}`],
    post: never,
  },
  'locked-by-turns': {
    what: 'a job locks an account row for 60 ms again and again',
    to: 'ledger',
    sick: () => ['acme', 'sick'],
    begin({ url }) {
      const stopped = new AbortController();
      // One connection for all: a new one for each lock would take the processor from the healthy payments.
      const own = openDatabase({ url, applicationName: 'job', maxConnections: 1 });
      const job = (async () => {
        while (!stopped.signal.aborted) {
          await own.transaction(async (tx) => {
            await tx.query(LOCK_SICK);
            await systemClock.sleep(60);
          });
        }
      })();
      return Promise.resolve(async () => {
        stopped.abort();
        await job;
        await own.close();
      });
    },
  },
  'locked-and-canceled': {
    what: 'an account row is locked and its payments are canceled',
    to: 'ledger',
    sick: () => ['acme', 'sick'],
    async begin({ url, partner }) {
      const end = await lockAccount(url);
      const stopped = new AbortController();
      const canceling = (async () => {
        for (let n = 0; !stopped.signal.aborted; n += 1) {
          await partner.app.partnerKit.cancel(`sick-${n % SICK}`, 'bench', 'asked');
          await systemClock.sleep(50, stopped.signal);
        }
      })();
      return async () => {
        stopped.abort();
        await end();
        await canceling;
      };
    },
  },
  account: {
    what: 'calls for one account of a core hang',
    to: 'core',
    sick: () => ['acme', 'sick'],
    post: never,
  },
  biller: {
    what: 'calls for one biller of a core hang',
    to: 'core',
    sick: (index) => ['sick', `A-${index}`],
    post: never,
  },
  failing: {
    what: 'calls for one biller of a core fail',
    to: 'core',
    sick: (index) => ['sick', `A-${index}`],
    post: () => Promise.reject(new Error('the core failed')),
  },
  slow: {
    what: 'calls for one biller of a core take 3 s',
    to: 'core',
    sick: (index) => ['sick', `A-${index}`],
    post: async () => {
      await systemClock.sleep(3_000);
      return { outcome: 'posted' };
    },
  },
  later: {
    what: 'one biller is answered "later"',
    to: 'core',
    sick: (index) => ['sick', `A-${index}`],
    post: () => Promise.resolve({ outcome: 'later' }),
  },
};

/** The same at a core behind HTTP. */
const TROUBLES: Readonly<Record<string, Trouble>> = {
  ...troubles,
  ...Object.fromEntries(
    Object.entries(troubles)
      .filter(([, { to }]) => to === 'core')
      .map(([name, trouble]) => [
        `${name}-http`,
        { ...trouble, to: 'service', what: `${trouble.what}, over HTTP` },
      ]),
  ),
};

/** Holds the lock of the account `sick`. */
function lockAccount(url: string): Promise<() => Promise<void>> {
  return holdLock(url, LOCK_SICK);
}

/** A core that takes 5 ms, except for payments in trouble. */
function coreOf(post: Trouble['post']): AccountSystem {
  return {
    posts: 'in_own_system',
    findAccount: () => Promise.resolve(undefined),
    async post(payments: readonly Posting[]) {
      return Promise.all(
        payments.map(async ({ platform_payment_id }): Promise<PostOutcome> => {
          if (post !== undefined && platform_payment_id.startsWith('sick-')) return post();
          await systemClock.sleep(5);
          return { outcome: 'posted' };
        }),
      );
    },
  };
}

/** The same core as a service of the biller's, which treats the question whether it knows a payment like the payment itself. */
async function serviceOf(
  post: Trouble['post'],
  hooks: (() => Promise<void>)[],
): Promise<AccountSystem> {
  const posted = new Set<string>();
  const server = createServer((request, response) => {
    void (async () => {
      let body = '';
      for await (const part of request.setEncoding('utf8')) body += String(part);
      const isPost = request.method === 'POST';
      const id = isPost
        ? (JSON.parse(body) as Posting).platform_payment_id
        : String(request.url).slice(String(request.url).lastIndexOf('/') + 1);
      let outcome: PostOutcome | undefined;
      if (post !== undefined && id.startsWith('sick-')) outcome = await post();
      else {
        await systemClock.sleep(5);
        if (isPost) posted.add(id);
        if (posted.has(id)) outcome = { outcome: 'posted' };
      }
      response.statusCode = outcome === undefined ? 404 : 200;
      response.end(JSON.stringify(outcome ?? {}));
    })().catch(() => {
      response.statusCode = 500;
      response.end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  hooks.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  return accountsOverHttp({ url: `http://127.0.0.1:${port}`, secret: 'secret of the bench' });
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

/** The biller's own table beside the kit's, and the statements on it. */
async function tablesOf(database: Database, accounts: readonly string[]): Promise<AccountSystem> {
  await database.query(
    `CREATE SCHEMA shop CREATE TABLE bill (account_no text PRIMARY KEY, due bigint NOT NULL DEFAULT 1000000)`,
  );
  await database.query(`CREATE TABLE shop.booking (id text PRIMARY KEY, account_no text NOT NULL)`);
  await database.query(`INSERT INTO shop.bill (account_no) SELECT unnest($1::text[])`, [accounts]);
  return accountsBySql(database, {
    find_account: `SELECT 'active' AS status FROM shop.bill WHERE account_no = $2 AND $1 <> ''`,
    find_posting: `SELECT 1 FROM shop.booking WHERE id = $1`,
    post_payment: `WITH paid AS (
                     UPDATE shop.bill SET due = due - $4 WHERE account_no = $3 AND $2 <> '' RETURNING account_no
                   ) INSERT INTO shop.booking SELECT $1, account_no FROM paid WHERE $5 <> '' RETURNING 1`,
  });
}

/** One stream; returns the sorted times from PUT to the end, in milliseconds. */
async function stream(trouble: Trouble, isThere: boolean): Promise<number[]> {
  const hooks: (() => Promise<void>)[] = [];
  try {
    const database = await kitDatabase({ after: (hook) => hooks.push(hook) }, 'bench');
    const names = [
      'sick',
      ...Array.from({ length: 10 }, (_, index) => `sick-${index}`),
      ...Array.from({ length: ACCOUNTS }, (_, index) => `A-${index}`),
    ];
    await importAccounts(
      database,
      names.map((account_id) => ({
        biller_id: 'acme',
        account_id,
        amount_due_in_cents: 1_000_000,
      })),
    );
    const accounts =
      trouble.to === 'core'
        ? coreOf(trouble.post)
        : trouble.to === 'service'
          ? await serviceOf(trouble.post, hooks)
          : trouble.to === 'tables'
            ? await tablesOf(database, names)
            : trouble.post === undefined
              ? undefined
              : hangingLedger(database);
    const partner = await startKit(database, {
      connections: 2_000,
      ...(accounts === undefined ? {} : { accounts }),
    });
    const put = async (biller: string, account: string, id: string): Promise<string> => {
      const path = `/biller/${biller}/account/${account}/payment/${id}`;
      const body = '{"amount_in_cents":100,"platform_batch_id":"b"}';
      const { status, text } = await partner.call('PUT', path, { body });
      assert.equal(status, 200, text);
      return path;
    };
    const pay = async (id: string, account: number): Promise<number> => {
      const began = performance.now();
      const path = await put('acme', `A-${account % ACCOUNTS}`, id);
      for (;;) {
        const headers = { ...withKey, prefer: 'wait=20' };
        const { body } = await partner.call('GET', path, { headers });
        if (body['status'] === 'succeeded') return performance.now() - began;
        assert.equal(body['status'], 'processing');
      }
    };
    for (let n = 0; n < 20; n += 1) await pay(`warm-${n}`, n);
    let sick = 0;
    let end: (() => Promise<void>) | undefined;
    if (isThere) {
      end = await trouble.begin?.({ url: database.url, partner });
      for (; sick < SICK; sick += 1) await put(...trouble.sick(sick), `sick-${sick}`);
    }
    const rate = Number(flags.rate);
    const all: Promise<number>[] = [];
    const from = performance.now();
    for (let n = 0; n < rate * Number(flags.seconds); n += 1) {
      const wait = from + (n * 1_000) / rate - performance.now();
      if (wait > 0) await systemClock.sleep(wait);
      all.push(pay(`p-${n}`, n));
      if (isThere && n % Math.ceil(rate / 5) === 0) {
        await put(...trouble.sick(sick), `sick-${sick}`);
        sick += 1;
      }
    }
    const times = await Promise.all(all);
    await end?.();
    return times.toSorted((a, b) => a - b);
  } finally {
    for (const hook of hooks) await hook();
  }
}

for (const name of chosenOf(flags.only, Object.keys(TROUBLES))) {
  const trouble = TROUBLES[name];
  assert(trouble);
  const [p50s, p99s, worst]: [number[], number[], number[]] = [[], [], []];
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    const calm = await stream(trouble, false);
    const beside = await stream(trouble, true);
    p50s.push(quantile(beside, 0.5) / quantile(calm, 0.5));
    p99s.push(quantile(beside, 0.99) / quantile(calm, 0.99));
    worst.push(quantile(beside, 1));
    const show = (part: number): string =>
      `${quantile(calm, part).toFixed(0)} -> ${quantile(beside, part).toFixed(0)} ms`;
    console.log(`${name}, round ${round}: p50 ${show(0.5)}, p99 ${show(0.99)}, all ${show(1)}`);
  }
  const figure = 'F12';
  report({
    figure,
    what: `kit: p50 while ${trouble.what} / without`,
    ...spread(p50s),
    target: 'at most 1.5',
  });
  report({
    figure,
    what: `kit: p99 while ${trouble.what} / without`,
    ...spread(p99s),
    target: 'at most 1.5',
  });
  report({
    figure,
    what: `kit: slowest while ${trouble.what}`,
    ...spread(worst),
    unit: 'ms',
    target: 'at most 2,000 ms',
  });
}
process.exit(0);
