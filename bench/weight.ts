/**
 * F13: how many bytes a payment leaves in the tables of both sides, a year later: customers pay through the real servers, one payment
 * each as in the demo; then everything is removed that leaves by itself, the tables are vacuumed as autovacuum does, and their sizes with
 * all indexes are divided by the payments. What is there before the first payment is not counted.
 *
 *     npm run bench -- weight [--payments 20000] [--customers 32]
 *
 * Tables of `leaving` are emptied by the sweeper at the time given in docs/operations.md, so they count while a payment is young only.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '@duebridge/runtime';
import { forget } from '../packages/platform/src/checkout/retention.ts';
import { BothSides, gasCompany } from '../test/support/both-sides.ts';
import { createToken, openSession } from '../test/support/customer.ts';
import { sizesOf, type Size } from './fill-years.ts';
import { benchOptions } from './options.ts';
import { report } from './report.ts';

const flags = benchOptions({ payments: '20000', customers: '32' });
const { payments } = flags;
/** No more payments an account than a customer makes in three years of monthly bills. */
const PAYMENTS_OF_AN_ACCOUNT = 36;
/** Emptied by the sweeper (operations.md, "What leaves"). Of `flow_payments` the latest of each customer at an account stays. */
const LEAVING = ['tokens', 'sessions', 'customers', 'mails', 'attempts'];
const PARTNER_KEY = 'the-key-that-the-biller-chose';

/** Runs a statement of maintenance, however long it takes. */
async function maintain(books: Database, statement: string): Promise<void> {
  await books.withConnection(async (connection) => {
    await connection.query('SET statement_timeout = 0');
    await connection.query(statement);
  });
}

/** Sizes of all tables of a side, after a vacuum. */
async function sizes(books: Database, side: 'platform' | 'partner'): Promise<Size[]> {
  await maintain(books, 'VACUUM ANALYZE');
  return sizesOf(books, `duebridge_${side}`);
}

/** Prints what each table has grown by a payment. Gives the sum of those that stay, and of those that leave, in bytes a payment. */
async function print(books: Database, side: 'platform' | 'partner', before: readonly Size[]) {
  const sum = { staying: 0, leaving: 0 };
  console.log(`duebridge_${side}: bytes a payment      rows    table  indexes`);
  for (const { table, rows, heap, indexes } of await sizes(books, side)) {
    const was = before.find((one) => one.table === table);
    const grown = [heap - (was?.heap ?? 0), indexes - (was?.indexes ?? 0)] as const;
    const [inTable, inIndexes] = grown.map((bytes) => bytes / payments) as [number, number];
    if (inTable + inIndexes < 1) continue;
    const leaves = LEAVING.includes(table);
    sum[leaves ? 'leaving' : 'staying'] += inTable + inIndexes;
    const figures = [(rows / payments).toFixed(2), inTable.toFixed(0), inIndexes.toFixed(0)];
    console.log(
      `  ${table.padEnd(24)}${figures.map((one) => one.padStart(9)).join('')}${leaves ? '  leaves' : ''}`,
    );
  }
  return sum;
}

const sides = new BothSides();
try {
  const partner = await sides.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [PARTNER_KEY] },
  });
  const accounts = Math.ceil(payments / PAYMENTS_OF_AN_ACCOUNT) + flags.customers;
  const rows = Array.from({ length: accounts }, (_, at) => `gas,acc-${at},active,20000.00\n`);
  await partner.importAccounts(`biller_id,account_id,status,amount_due\n${rows.join('')}`);
  const platform = await sides.platform();
  const client = await platform.register(gasCompany(partner.server.url, PARTNER_KEY));
  const ourBefore = await sizes(platform.books, 'platform');
  const theirBefore = await sizes(partner.books, 'partner');
  // A run makes in minutes what a table sees in weeks: autovacuum looks as often in relation to it, and decides by the rule that it always has.
  for (const books of [platform.books, partner.books]) {
    await books.query(`ALTER SYSTEM SET autovacuum_naptime = '1s'`);
    await books.query('SELECT pg_reload_conf()');
  }
  let made = 0;
  const customer = async (): Promise<void> => {
    while (made < payments) {
      const at = made++;
      if (at % 1_000 === 0) console.error(`${at} of ${payments} payments`);
      const token = await createToken(client, { account_id: `acc-${at % accounts}` });
      assert.equal(token.status, 200, JSON.stringify(token.body));
      const browser = await openSession(client.platformUrl, token.body.token);
      await browser.canPay();
      const confirmed = await browser.confirm(100 + (at % 90_000));
      assert.equal(confirmed.status, 200, JSON.stringify(confirmed.body));
      // As the page does: a row that is read after its last change leaves an entry less in the index of ids.
      await browser.ended(confirmed.body.platform_payment_id, 1_000);
    }
  };
  await Promise.all(Array.from({ length: flags.customers }, customer));
  const open = `SELECT count(*)::int AS n FROM duebridge_platform.payments WHERE settled_at IS NULL`;
  for (;;) {
    const [left] = await platform.books.query<{ n: number }>(open);
    if (left?.n === 0) break;
    await delay(250);
  }
  const young = await print(platform.books, 'platform', ourBefore);
  // The customers' time is over: the sweeper takes them and their visits. Later visits fill the room that these leave.
  await platform.books.query(
    `UPDATE duebridge_platform.customers SET erase_after = now() - interval '1 minute'`,
  );
  await forget(platform.books);
  await maintain(platform.books, 'VACUUM FULL duebridge_platform.flow_payments');
  const ours = await print(platform.books, 'platform', ourBefore);
  await maintain(platform.books, 'REINDEX TABLE duebridge_platform.payments');
  const packed = await print(platform.books, 'platform', ourBefore);
  const theirs = await print(partner.books, 'partner', theirBefore);
  const bytes = { figure: 'F13', unit: 'bytes' };
  const figure = (what: string, value: number, target?: string) =>
    report({ ...bytes, what, value: Math.round(value), ...(target && { target }) });
  figure('a payment in the platform, for good', ours.staying, 'at most 1200');
  figure('a payment in the platform, once its month is packed', packed.staying);
  figure(
    'a payment in the platform, until the sweeper comes',
    young.staying + young.leaving - ours.staying,
  );
  figure('a payment in the kit, for good', theirs.staying, 'at most 600');
} finally {
  await sides.stop();
}
