/**
 * What a sharded PostgreSQL refuses stands in no statement of the platform, so that it can take over without a change of code.
 *
 * The rules are what Citus 13.2.2 refused of an earlier version: a volatile function in an UPDATE, now() inside CASE or COALESCE of
 * one, a function of time in RETURNING, a recursive query, a subquery on a distributed table for each row of a reference table or of
 * unnested parameters, a lock over several shards, a join of tables that are distributed by different columns, RETURNING of an unnamed row that comes from a
 * SELECT, and a unique key without the column by which its table is distributed.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { ConfigurationError } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { migrations } from './migrations.ts';
import { DISTRIBUTED, distributeTables } from './store/distribution.ts';

interface Found {
  readonly file: string;
  /** The statement with the constants of its file; what else is put into it at run time is left out. */
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
      /\b(?:sql\((?:\s*'\w+',)?|query(?:<[^(]*>)?\()\s*(?:\/\/[^\n]*\s*)*(?:`([^`]*)`|'([^'\n]*)')/g;
    const constants = new Map(
      [...source.matchAll(/^const (\w+) = `([^`]*)`;$/gm)].map(([, name, text]) => [name, text]),
    );
    return [...source.matchAll(calls)]
      .map((match) => match[1] ?? match[2] ?? '')
      .map((text) => text.replaceAll(/\$\{(\w*)[^}]*\}/g, (_, name) => constants.get(name) ?? ' '))
      .filter((text) => /\b(SELECT|INSERT|UPDATE|DELETE)\b/.test(text))
      .filter((text) => text.includes('duebridge_platform.'))
      .map((text) => ({ file, text: text.replaceAll(/\s+/g, ' ').trim() }));
  });
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

/** What a statement's RETURNING clauses list: each ends where its statement or the parentheses around it end. */
function returned(text: string): string[] {
  const inner = String.raw`[^()]|\((?:[^()]|\([^()]*\))*\)`;
  const clause = new RegExp(String.raw`\bRETURNING\b((?:[^()]|\((?:${inner})*\))*)`, 'g');
  return [...text.matchAll(clause)].map(([, list = '']) => list);
}

/** Files whose statements run while a customer pays, or because one paid. */
const SERVES_CUSTOMERS =
  /^(checkout|engine|funding|store\/(payments|steps|operators-acts|attempts))\b/;

/** The growing tables that a statement reads together: all of a plain SELECT, those of each FROM clause where something is written. */
function joins(text: string): [table: string, column: string][][] {
  const clauses = /\b(INSERT|UPDATE|DELETE)\b/.test(text)
    ? text.match(/\bFROM (?:(?!\b(?:WHERE|UNION|RETURNING|ORDER BY|LIMIT|FROM|SELECT)\b).)*/g)
    : [text];
  return (clauses ?? []).map((clause) =>
    [...clause.matchAll(/duebridge_platform\.(\w+)/g)].flatMap(([, table = '']) => {
      const column = DISTRIBUTED[table];
      return column === undefined ? [] : [[table, column]];
    }),
  );
}

const UNNAMED =
  /INSERT INTO duebridge_platform\.(\w+) \([^)]*\) SELECT(?:(?!\b(?:INSERT|UPDATE|DELETE)\b).)*?\bFROM (?!unnest)(?:(?!\b(?:INSERT|UPDATE|DELETE)\b).)*?\bRETURNING\b/;
const tables = Object.keys(DISTRIBUTED).join('|');
const by = 'duebridge_platform';

/** Each rule, whether a statement breaks it, and where the rule is intricate a statement that does and one that does not. */
const RULES: readonly (readonly [
  rule: string,
  breaks: (text: string, file: string) => boolean,
  bad?: string,
  good?: string,
])[] = [
  [
    'no UPDATE calls a volatile function',
    (text) =>
      updates(text).some((part) =>
        /\b(clock_timestamp|random|gen_random_uuid|timeofday)\(/.test(part),
      ),
  ],
  [
    'no UPDATE has now() inside CASE or COALESCE',
    (text) =>
      updates(text).some(
        (part) =>
          /\bCASE\b(?:(?!\bEND\b).)*now\(\)/.test(part) || /\bcoalesce\([^)]*now\(\)/i.test(part),
      ),
  ],
  [
    'no RETURNING calls a function of time',
    (text) => returned(text).some((list) => /\b(now|clock_timestamp)\(/.test(list)),
    'DELETE FROM a RETURNING (b(now()) * 2)::int',
    'INSERT INTO t SELECT 1 FROM (DELETE FROM a RETURNING b) d WHERE now() > c',
  ],
  [
    'an INSERT into a registry from a SELECT has a name for the row that it returns',
    (text) => {
      const table = UNNAMED.exec(text)?.[1];
      return table !== undefined && !(table in DISTRIBUTED);
    },
  ],
  ['no query is recursive', (text) => /\bRECURSIVE\b/.test(text)],
  [
    'no lock spans several shards: locked rows are named by their key or belong to a registry',
    (text) => {
      const [, read = ''] = /^(.*)\bFOR (UPDATE|NO KEY UPDATE|SHARE|KEY SHARE)\b/.exec(text) ?? [];
      return Object.entries(DISTRIBUTED).some(
        ([table, column]) =>
          read.includes(`${by}.${table} `) && !new RegExp(`\\b${column} = \\$\\d`).test(read),
      );
    },
  ],
  [
    'no query reads a distributed table for each row of a registry',
    (text) => {
      const inner = new RegExp(
        `FROM duebridge_platform\\.(\\w+) (?:AS )?(\\w+).*\\bEXISTS ?\\( ?SELECT.*?FROM duebridge_platform\\.(${tables}) (?:AS )?(\\w+) .*?\\b\\2\\.`,
      ).exec(text);
      return inner !== null && !(inner[1] ?? '').match(new RegExp(`^(${tables})$`));
    },
  ],
  [
    'no query reads a distributed table for each row of its unnested parameters',
    (text) =>
      [...text.matchAll(/\bFROM unnest\([^)]*\) AS (\w+)/g)].some(([, name = '']) =>
        new RegExp(
          `\\(SELECT (?:(?!\\(SELECT).)*duebridge_platform\\.(${tables}) (?:AS )?\\w+ WHERE [^()]*\\b${name}\\.`,
        ).test(text),
      ),
    `SELECT u.* FROM unnest($1::text[]) AS u (id) WHERE NOT EXISTS (SELECT 1 FROM ${by}.funds f WHERE f.a = u.id)`,
  ],
  [
    'no statement that serves customers joins tables that are distributed by different columns',
    (text, file) =>
      SERVES_CUSTOMERS.test(file) &&
      joins(text).some((all) => new Set(all.map(([, column]) => column)).size > 1),
    `SELECT 1 FROM ${by}.flows f JOIN ${by}.payments p ON p.a = f.b WHERE c`,
    `SELECT 1 FROM ${by}.flows f JOIN ${by}.flow_payments p USING (flow_id)`,
  ],
  [
    'flows and their payments are joined by the flow',
    (text) =>
      joins(text).some((all) => all.filter(([, column]) => column === 'flow_id').length > 1) &&
      !/\bflow_id = \w+\.flow_id\b/.test(text),
  ],
  [
    'lines of a payment are found by OF_PAYMENT, with the time in its id, which is what the index has',
    (text) =>
      text.includes('FROM duebridge_platform.audit ') &&
      /(?<!\bp\.)\bplatform_payment_id = (ANY|\$)/.test(text),
  ],
];

for (const [rule, breaks, bad, good] of RULES) {
  test(rule, () => {
    if (bad !== undefined) assert.ok(breaks(bad, 'engine/a.ts'), bad);
    if (good !== undefined) assert.ok(!breaks(good, 'engine/a.ts'), good);
    const broken = statements().filter(({ file, text }) => breaks(text, file));
    assert.deepEqual(broken, []);
  });
}

test('a unique key contains the distribution column of its table', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'sharded' });
  const keys = await database.query<{ table: string; key: string; columns: string[] }>(
    `SELECT c.relname AS table, i.relname AS key,
            ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY(x.indkey)) AS columns
       FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
       JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'duebridge_platform' AND x.indisunique ORDER BY 2`,
  );
  const tables = new Set(keys.map((key) => key.table));
  // Lines of the audit have no key.
  for (const table of Object.keys(DISTRIBUTED))
    assert.ok(table === 'audit' || tables.has(table), `${table} is no table`);
  const lacking = keys.filter(({ table, columns }) => {
    const column = DISTRIBUTED[table];
    return column !== undefined && !columns.includes(column);
  });
  assert.deepEqual(
    lacking.map(({ key }) => key),
    [],
  );
});

test('migrate --distribute names every table once, registries first, and reports a database without Citus', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'distribute' });
  await assert.rejects(distributeTables(database), (error: Error) => {
    assert.ok(error instanceof ConfigurationError);
    assert.match(error.message, /CREATE EXTENSION citus/);
    return true;
  });
  // What stands in for Citus refuses what Citus refuses: a key without the column, and a reference to what is not on every node.
  await database.transaction(async (tx) => {
    await tx.query('SET LOCAL allow_system_table_mods = on');
    await tx.query(
      `CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid oid PRIMARY KEY, by text)`,
    );
    await tx.query(`
      CREATE FUNCTION pg_catalog.create_distributed_table(t regclass, c text) RETURNS void LANGUAGE plpgsql AS $$
      BEGIN
        IF EXISTS (SELECT FROM pg_index x WHERE x.indrelid = t AND x.indisunique
                    AND NOT (SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = t AND a.attname = c) = ANY (x.indkey)) THEN
          RAISE EXCEPTION 'a unique key of % lacks %', t, c;
        END IF;
        PERFORM pg_catalog.create_reference_table(t);
        UPDATE pg_catalog.pg_dist_partition SET by = c WHERE logicalrelid = t;
      END $$`);
    await tx.query(`
      CREATE FUNCTION pg_catalog.create_reference_table(t regclass) RETURNS void LANGUAGE plpgsql AS $$
      BEGIN
        IF EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = t AND f.confrelid <> t
                    AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_partition d WHERE d.logicalrelid = f.confrelid AND d.by IS NULL)) THEN
          RAISE EXCEPTION '% references what is not on every node', t;
        END IF;
        INSERT INTO pg_catalog.pg_dist_partition VALUES (t);
      END $$`);
  });
  const done = await distributeTables(database);
  const tables = await database.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_catalog.pg_class c
      WHERE c.relnamespace = 'duebridge_platform'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1`,
  );
  assert.deepEqual(
    new Set(done.map((line) => line.split(' ')[0])),
    new Set(
      tables
        .map(({ name }) => name)
        .filter((name) => name !== 'migrations' && name !== 'deployment'),
    ),
  );
  assert.deepEqual(
    new Set(done.filter((line) => line.includes(' by '))),
    new Set(Object.entries(DISTRIBUTED).map(([table, column]) => `${table} by ${column}`)),
  );
  assert.equal(done.length, new Set(done).size, 'a table twice');
  assert.deepEqual(await distributeTables(database), [], 'the second time there is nothing to do');
});
