/**
 * What a sharded PostgreSQL refuses stands in no statement of the platform, so that it can take over without a change of code.
 *
 * The rules are what Citus 13.2.2 refused of an earlier version: a volatile function in an UPDATE, now() inside CASE or COALESCE of
 * one, a recursive query, a subquery on a distributed table for each row of a reference table, a lock over several shards, and a
 * unique key without the column by which its table is distributed. What still breaks one is listed beside its rule; the lists may
 * only become shorter.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { testDatabase } from '@duebridge/runtime/testing';
import { migrations } from './migrations.ts';

/** Tables that grow with payments or customers, and the column by which each would be distributed; the others are small registries. */
const DISTRIBUTED: Readonly<Record<string, string>> = {
  attempts: 'platform_payment_id',
  audit: 'audit_id',
  customers: 'customer_id',
  flow_payments: 'platform_payment_id',
  flows: 'flow_id',
  payments: 'platform_payment_id',
  sandbox_funds: 'platform_payment_id',
  sessions: 'session_hash',
  tokens: 'token_hash',
};

interface Found {
  readonly file: string;
  /** The statement, with what is put into it at run time left out. */
  readonly text: string;
}

/** Every statement of the platform, as it stands in the source. */
function statements(): Found[] {
  const files = globSync('**/*.ts', { cwd: import.meta.dirname }).filter(
    (file) => !file.endsWith('test.ts') && !file.endsWith('testing.ts'),
  );
  return files.toSorted().flatMap((file) => {
    const source = readFileSync(join(import.meta.dirname, file), 'utf8');
    const calls =
      /\b(?:sql\(\s*'\w+',|query(?:<[^(]*>)?\()\s*(?:\/\/[^\n]*\s*)*(?:`([^`]*)`|'([^'\n]*)')/g;
    return [...source.matchAll(calls)]
      .map((match) => (match[1] ?? match[2] ?? '').replaceAll(/\$\{[^}]*\}/g, ' '))
      .filter((text) => /\b(SELECT|INSERT|UPDATE|DELETE)\b/.test(text))
      .filter((text) => text.includes('duebridge_platform.'))
      .map((text) => ({ file, text: text.replaceAll(/\s+/g, ' ').trim() }));
  });
}

/** Which file breaks a rule how often: short enough to be read, and it changes with every statement that is added or fixed. */
function breaking(rule: (text: string) => boolean): Record<string, number> {
  const count: Record<string, number> = {};
  for (const { file, text } of statements()) {
    if (rule(text)) count[file] = (count[file] ?? 0) + 1;
  }
  return count;
}

/** The parts of a statement that begin with UPDATE and end before the next clause that is not its own. */
function updates(text: string): string[] {
  return [
    ...text.matchAll(/\bUPDATE\b(?! OF| SKIP| NOWAIT).*?(?=\) ?, ?\w+ AS|\bRETURNING\b|$)/g),
  ].map(([part]) => part);
}

test('the statements are found', () => {
  const found = statements();
  assert.ok(found.length > 100, `${found.length} statements`);
  for (const name of ['SET stage = u.to_stage', 'SET heartbeat_at = now()', 'SET worker_id = $1']) {
    assert.ok(
      found.some(({ text }) => text.includes(name)),
      name,
    );
  }
  assert.equal(
    updates('UPDATE a SET b = now() WHERE c RETURNING d').join(),
    'UPDATE a SET b = now() WHERE c ',
  );
});

test('no UPDATE calls a volatile function', () => {
  assert.deepEqual(
    breaking((text) =>
      updates(text).some((part) =>
        /\b(clock_timestamp|random|gen_random_uuid|timeofday)\(/.test(part),
      ),
    ),
    // Registries of people and of what they decide: reference tables, and none of them on the way of a payment.
    { 'admin/operators.ts': 3, 'reconciliation/differences.ts': 3 },
  );
});

test('no UPDATE has now() inside CASE or COALESCE', () => {
  assert.deepEqual(
    breaking((text) =>
      updates(text).some(
        (part) =>
          /\bCASE\b(?:(?!\bEND\b).)*now\(\)/.test(part) || /\bcoalesce\([^)]*now\(\)/i.test(part),
      ),
    ),
    {},
  );
});

test('no query is recursive', () => {
  assert.deepEqual(
    breaking((text) => /\bRECURSIVE\b/.test(text)),
    {},
  );
});

test('no lock goes over several shards: what is locked is named by its key, or is a registry', () => {
  assert.deepEqual(
    breaking((text) => {
      if (!/\bFOR (UPDATE|NO KEY UPDATE|SHARE|KEY SHARE)\b/.test(text)) return false;
      return Object.entries(DISTRIBUTED).some(
        ([table, column]) =>
          text.includes(`duebridge_platform.${table} `) &&
          !new RegExp(`\\b${column} = \\$\\d`).test(text),
      );
    }),
    // It locks the one row of mail_progress, a registry; the audit that it names is only read.
    { 'checkout/mail.ts': 1 },
  );
});

test('no query looks into a distributed table for each row of a registry', () => {
  const tables = Object.keys(DISTRIBUTED).join('|');
  assert.deepEqual(
    breaking((text) => {
      const inner = new RegExp(
        `FROM duebridge_platform\\.(\\w+) (?:AS )?(\\w+).*\\bEXISTS ?\\( ?SELECT.*?FROM duebridge_platform\\.(${tables}) (?:AS )?(\\w+) .*?\\b\\2\\.`,
      ).exec(text);
      return inner !== null && !(inner[1] ?? '').match(new RegExp(`^(${tables})$`));
    }),
    {},
  );
});

test('a unique key holds the column by which its table is distributed', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'sharded' });
  const keys = await database.query<{ table: string; key: string; columns: string[] }>(
    `SELECT c.relname AS table, i.relname AS key,
            ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY(x.indkey)) AS columns
       FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
       JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'duebridge_platform' AND x.indisunique ORDER BY 2`,
  );
  const tables = new Set(keys.map((key) => key.table));
  for (const table of Object.keys(DISTRIBUTED))
    assert.ok(tables.has(table), `${table} is no table`);
  const lacking = keys.filter(({ table, columns }) => {
    const column = DISTRIBUTED[table];
    return column !== undefined && !columns.includes(column);
  });
  assert.deepEqual(
    lacking.map(({ key }) => key),
    // One payment stands in for another (PL3), and a session has an id beside its secret: both are unique over all shards today.
    ['flow_payments_replaces_key', 'sessions_session_id_key'],
  );
});
