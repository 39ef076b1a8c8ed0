/**
 * The role that serves may do what the statements of its server do, and nothing else: the grants in docs/operations.md are made from
 * the statements, what must be kept is out of its reach, and with them alone both servers carry a payment from token to statement.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 prints the grants again instead of comparing them.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, type TestContext } from 'node:test';
import { platformAdminRoutes, type BatchPage } from '@duebridge/contract';
import { openDatabase } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { forget } from '../packages/platform/src/checkout/retention.ts';
import { BothSides, gasCompany } from './support/both-sides.ts';
import { createToken, openSession } from './support/customer.ts';
import { statementsOf, type Side } from './support/statements.ts';

const file = join(import.meta.dirname, '../docs/operations.md');
const RIGHTS = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'] as const;
type Right = (typeof RIGHTS)[number];

/** Statements that stand in packages/runtime and take the schema's name at run time. */
const SHARED: Readonly<Record<string, readonly Right[]>> = {
  migrations: ['SELECT'],
  deployment: ['SELECT', 'INSERT', 'UPDATE'],
  audit_seals: ['SELECT', 'INSERT'],
};

/** Tables of keys, whose statements take their name at run time (store/keys.ts). */
const KEY_RIGHTS = ['SELECT', 'INSERT', 'UPDATE'] as const;
const KEY_TABLES: Readonly<Record<Side, Readonly<Record<string, readonly Right[]>>>> = {
  platform: { client_keys: KEY_RIGHTS, operator_keys: KEY_RIGHTS },
  // Servers of the version before migration 023 post to these while they are replaced.
  partner: { entry: ['SELECT', 'INSERT'], transfer: ['SELECT', 'INSERT'] },
};

/** What each table is used for, read off the statements. A lock of a row is an update as far as PostgreSQL is concerned. */
function needsOf(side: Side): Map<string, Set<Right>> {
  const needs = new Map<string, Set<Right>>();
  const need = (table: string, right: Right): void => {
    needs.set(table, (needs.get(table) ?? new Set()).add(right));
  };
  for (const [table, rights] of Object.entries({ ...SHARED, ...KEY_TABLES[side] })) {
    for (const right of rights) need(table, right);
  }
  const words = new RegExp(
    String.raw`\b(?:(INSERT INTO|DELETE FROM|UPDATE) )?duebridge_${side}\.([a-z_]+)\b(?!\()|\b(DO UPDATE|FOR (?:NO KEY )?UPDATE|FOR (?:KEY )?SHARE|ON CONFLICT|RETURNING)\b`,
    'g',
  );
  for (const { text } of statementsOf(side)) {
    let [table, written]: (string | undefined)[] = [];
    for (const [, act, named, lock] of text.matchAll(words)) {
      if (named !== undefined) {
        table = named;
        if (act !== undefined) written = named;
        if (act === undefined) need(named, 'SELECT');
        else need(named, act.split(' ')[0] as Right);
        // Which rows an update or a delete means is read, too.
        if (act === 'UPDATE' || act === 'DELETE FROM') need(named, 'SELECT');
      } else if (lock?.startsWith('FOR')) {
        if (table !== undefined) need(table, 'UPDATE');
        // Between an insert and its conflict other tables may have been read.
      } else if (written !== undefined) need(written, lock === 'DO UPDATE' ? 'UPDATE' : 'SELECT');
    }
  }
  return needs;
}

/** The grants as one text: tables with the same rights in one statement. */
function grantsOf(side: Side): string {
  const schema = `duebridge_${side}`;
  const groups = new Map<string, string[]>();
  for (const [table, rights] of [...needsOf(side)].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    const key = RIGHTS.filter((right) => rights.has(right)).join(', ');
    groups.set(key, [...(groups.get(key) ?? []), `${schema}.${table}`]);
  }
  const role = `duebridge_${side}_service`;
  return [
    'BEGIN;',
    `GRANT USAGE ON SCHEMA ${schema} TO ${role};`,
    `REVOKE ALL ON ALL TABLES IN SCHEMA ${schema} FROM ${role};`,
    ...[...groups]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([rights, tables]) => `GRANT ${rights} ON\n  ${tables.join(',\n  ')}\n  TO ${role};`),
    'COMMIT;',
  ].join('\n');
}

/** What is kept for ever, and what may be done to it: nothing here is ever deleted, and most is never changed. */
const KEPT: Readonly<Record<Side, Readonly<Record<string, string>>>> = {
  platform: {
    audit: 'SELECT INSERT',
    audit_seals: 'SELECT INSERT',
    // Steps of a payment and the closing of a batch; triggers keep the rest.
    payments: 'SELECT INSERT UPDATE',
    batches: 'SELECT INSERT UPDATE',
    // Removed half a year after the payment was settled, never changed.
    attempts: 'SELECT INSERT DELETE',
    // Removed with its customer, except for the latest of a flow.
    flow_payments: 'SELECT INSERT DELETE',
    migrations: 'SELECT',
  },
  partner: {
    billed: 'INSERT',
    payment_audit: 'SELECT INSERT',
    audit_seals: 'SELECT INSERT',
    payment: 'SELECT INSERT UPDATE',
    account: 'SELECT INSERT UPDATE',
    migrations: 'SELECT',
  },
};

const sides = ['platform', 'partner'] as const;

test('the documented grants are those that the statements need, table by table', () => {
  let page = readFileSync(file, 'utf8');
  const before = page;
  for (const side of sides) {
    const mark = new RegExp(`(<!-- grants of ${side}: begin -->\n)[\\s\\S]*?(<!-- end -->)`);
    assert.match(page, mark);
    const block = `\n\`\`\`sql\n${grantsOf(side)}\n\`\`\`\n\n`;
    page = page.replace(mark, (_all, begin, end) => `${begin}${block}${end}`);
  }
  if (process.env['DUEBRIDGE_UPDATE_DOCS'] === '1') writeFileSync(file, page);
  else assert.equal(before, page, 'DUEBRIDGE_UPDATE_DOCS=1 prints the grants again');
});

for (const side of sides) {
  test(`the serving role of the ${side} has no more rights than it needs on permanent tables`, () => {
    const needs = needsOf(side);
    for (const [table, rights] of Object.entries(KEPT[side])) {
      assert.equal(RIGHTS.filter((right) => needs.get(table)?.has(right)).join(' '), rights, table);
    }
  });
}

/** A migrated database, and its address for a role with the page's grants. */
async function served(t: TestContext, side: Side) {
  const directory = new URL(`../packages/${side}/src/migrations/`, import.meta.url);
  const owner = await testDatabase(t, { migrations: { schema: `duebridge_${side}`, directory } });
  const role = `served_${side}_${randomBytes(4).toString('hex')}`;
  const page = readFileSync(file, 'utf8');
  const grants = new RegExp(
    `<!-- grants of ${side}: begin -->\\s+\`\`\`sql\\n([\\s\\S]*?)\`\`\``,
  ).exec(page)?.[1];
  assert.ok(grants);
  await owner.query(`CREATE ROLE ${role} LOGIN PASSWORD 'of-the-test'`);
  owner.closing(() => owner.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  // Twice: after an upgrade they are given again.
  for (let time = 0; time < 2; time += 1) {
    await owner.query(grants.replaceAll(`duebridge_${side}_service`, role));
  }
  const url = new URL(owner.url);
  url.username = role;
  url.password = 'of-the-test';
  return { owner, url: url.href };
}

test('with only the documented grants both servers carry a payment to its end, and neither can alter permanent rows', async (t) => {
  const both = new BothSides();
  after(() => both.stop());
  const books = { platform: await served(t, 'platform'), partner: await served(t, 'partner') };
  const key = 'the-key-that-the-biller-chose';
  const partner = await both.partner({
    auth: { method: 'key', header: 'x-api-key', keys: [key] },
    databaseUrl: books.partner.url,
    migrate: false,
  });
  books.partner.owner.closing(() => partner.server.stop());
  const { platform, admin, register } = await both.platform({
    databaseUrl: books.platform.url,
    migrate: false,
  });
  books.platform.owner.closing(() => platform.stop());
  await partner.importAccounts(
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date\n' +
      'gas,A-1,active,Ada,Lovelace,120.50,2026-12-01\n',
  );
  const client = await register(gasCompany(partner.server.url, key));
  const { body } = await createToken(client, { account_id: 'A-1' });
  const browser = await openSession(platform.url, body.token);
  assert.equal((await browser.bill()).status, 200);
  const { platform_payment_id } = (await browser.confirm(5_000)).body;
  assert.equal((await browser.ended(platform_payment_id)).status, 'succeeded');

  for (const { method, path } of Object.values(platformAdminRoutes)) {
    if (method !== 'GET' || path.includes('export')) continue;
    const filled = path.replace('/admin/v1', '').replace('{partner_id}', 'gas');
    const found = filled.replace('{platform_payment_id}', platform_payment_id);
    if (!found.includes('{')) await admin('GET', found);
  }
  const { batches } = await admin<BatchPage>('GET', '/batches');
  const batch = `/batches/${batches[0]!.platform_batch_id}`;
  await admin('POST', `${batch}/reconcile`, {});
  await admin('POST', '/people/show', { email: 'ada@example.com', reason: 'she asks' });
  await admin('POST', '/people/erase', { email: 'ada@example.com', reason: 'she asks' });

  for (const side of sides) {
    const { url } = books[side];
    const role = openDatabase({ url, applicationName: 'test', maxConnections: 1 });
    books[side].owner.closing(() => role.close());
    if (side === 'platform') await forget(role);
    const schema = `duebridge_${side}`;
    const attempts = Object.entries(KEPT[side]).flatMap(([table, rights]) => [
      ...(rights.includes('DELETE') ? [] : [`DELETE FROM ${schema}.${table}`]),
      ...(rights.includes('UPDATE') ? [] : [`SELECT 1 FROM ${schema}.${table} FOR UPDATE`]),
      `TRUNCATE ${schema}.${table}`,
      `ALTER TABLE ${schema}.${table} DISABLE TRIGGER ALL`,
      `DROP TABLE ${schema}.${table}`,
    ]);
    for (const statement of [...attempts, 'SET session_replication_role = replica']) {
      await assert.rejects(role.query(statement), { code: '42501' }, statement);
    }
  }
});
