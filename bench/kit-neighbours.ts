/**
 * F12 at the partner kit: the time from acceptance to the end of healthy payments while others are locked, hang, fail or wait, against the
 * same without them, in alternating rounds. A steady stream of `--rate` payments a second to many accounts of one biller. Each
 * trouble is there before the stream begins, gets five more payments a second, and lasts until the stream has ended.
 *
 *     node bench/kit-neighbours.ts [--rounds 3] [--rate 40] [--seconds 10] [--only locked]
 */
import assert from 'node:assert/strict';
import { systemClock, type Database, type Transaction } from '@duebridge/runtime';
import { holdLock } from '@duebridge/runtime/testing';
import type {
  AccountSystem,
  Posting,
  PostOutcome,
} from '../packages/partner/src/account-system.ts';
import { ledger } from '../packages/partner/src/ledger.ts';
import { withKit } from './kit-stream.ts';
import { benchOptions, chosenOf } from './options.ts';
import { quantile, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, {
  rounds: '3',
  rate: '40',
  seconds: '10',
  only: undefined,
});
/** Payments in trouble before the stream begins. */
const SICK = 40;
const SICK_ACCOUNTS = Array.from({ length: 10 }, (_, index) => `sick-${index}`);

interface Trouble {
  readonly what: string;
  /** Where postings go: the kit's ledger, the biller's own tables beside it, or a core of the biller's that takes 5 ms for each. */
  readonly to: 'ledger' | 'tables' | 'core';
  /** Biller and account of the payments in trouble. */
  readonly sick: (index: number) => readonly [biller_id: string, account_id: string];
  /** What is done with them. */
  readonly post?: () => Promise<PostOutcome>;
  /** A statement that locks something while it lasts. */
  readonly lock?: string;
}

const never = (): Promise<never> => new Promise(() => undefined);
const ofAccount = (): [string, string] => ['acme', 'sick-0'];
const ofBiller = (index: number): [string, string] => ['sick', `A-${index}`];

const TROUBLES: Readonly<Record<string, Trouble>> = {
  locked: {
    what: 'an account row is locked',
    to: 'ledger',
    sick: ofAccount,
    lock: "SELECT FROM duebridge_partner.account WHERE account_id = 'sick-0' FOR UPDATE",
  },
  'locked-ten': {
    what: 'ten account rows are locked',
    to: 'ledger',
    sick: (index) => ['acme', `sick-${index % 10}`],
    lock: "SELECT FROM duebridge_partner.account WHERE account_id LIKE 'sick%' FOR UPDATE",
  },
  'locked-table': {
    what: "a row of the biller's own table is locked",
    to: 'tables',
    sick: ofAccount,
    lock: "SELECT FROM shop.bill WHERE account_no = 'sick-0' FOR UPDATE",
  },
  'posting-hangs': {
    what: "postings of one biller hang in the kit's transaction",
    to: 'ledger',
    sick: ofBiller,
    post: never,
  },
  account: { what: 'calls for one account hang', to: 'core', sick: ofAccount, post: never },
  biller: { what: 'calls for one biller hang', to: 'core', sick: ofBiller, post: never },
  failing: {
    what: 'calls for one biller fail',
    to: 'core',
    sick: ofBiller,
    post: () => Promise.reject(new Error('the core failed')),
  },
  slow: {
    what: 'calls for one biller take 3 s',
    to: 'core',
    sick: ofBiller,
    post: async () => {
      await systemClock.sleep(3_000);
      return { outcome: 'posted' };
    },
  },
};

/** A core that takes 5 ms, except for payments in trouble. */
function coreOf(post: Trouble['post']): AccountSystem {
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

/** One stream; returns the sorted waits in milliseconds. */
function stream(trouble: Trouble, isThere: boolean): Promise<number[]> {
  const kit = async (database: Database): Promise<{ accounts?: AccountSystem }> => {
    if (trouble.to === 'core') return { accounts: coreOf(trouble.post) };
    if (trouble.to === 'tables') return { accounts: await tablesOf(database) };
    return trouble.post === undefined ? {} : { accounts: hangingLedger(database) };
  };
  return withKit({ accounts: SICK_ACCOUNTS, kit }, async ({ url, put, stream: send, waits }) => {
    let sick = 0;
    const fallIll = (): Promise<void> => put(...trouble.sick(sick), `sick-${(sick += 1)}`);
    const end =
      isThere && trouble.lock !== undefined ? await holdLock(url, trouble.lock) : undefined;
    const before = isThere ? SICK : 0;
    for (let n = 0; n < before; n += 1) await fallIll();
    const rate = Number(flags.rate);
    await send(rate, Number(flags.seconds), async (n) => {
      if (isThere && n % Math.ceil(rate / 5) === 0) await fallIll();
    });
    const times = await waits();
    await end?.();
    return times;
  });
}

for (const name of chosenOf(flags.only, Object.keys(TROUBLES))) {
  const trouble = TROUBLES[name];
  assert(trouble);
  const [p99s, worst]: [number[], number[]] = [[], []];
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    const calm = await stream(trouble, false);
    const beside = await stream(trouble, true);
    p99s.push(quantile(beside, 0.99) / quantile(calm, 0.99));
    worst.push(quantile(beside, 1));
    const show = (part: number): string =>
      `${quantile(calm, part).toFixed(0)} -> ${quantile(beside, part).toFixed(0)} ms`;
    console.log(`${name}, round ${round}: p50 ${show(0.5)}, p99 ${show(0.99)}, all ${show(1)}`);
  }
  report({
    figure: 'F12',
    what: `kit: p99 while ${trouble.what} / without`,
    ...spread(p99s),
    target: 'at most 1.5',
  });
  report({
    figure: 'F12',
    what: `kit: slowest while ${trouble.what}`,
    ...spread(worst),
    unit: 'ms',
    target: 'at most 2,000 ms',
  });
}
process.exit(0);
