/** Payments and their audit in partitions by month: which are made, where a row goes, and what keeps it there. */
import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import type { Database } from '@duebridge/runtime';
import { testDatabase } from '@duebridge/runtime/testing';
import { migrations } from '../migrations.ts';
import { firstIdAt } from '../payment-id.ts';
import { makeMonths } from './months.ts';

const open = (t: TestContext) => testDatabase(t, { migrations, name: 'months' });

async function partitionsOf(database: Database, parent: string): Promise<string[]> {
  const rows = await database.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1::regclass ORDER BY 1`,
    [`duebridge_platform.${parent}`],
  );
  return rows.map(({ name }) => name);
}

/** A month from this one on, as partitions are named, and a moment in it. */
async function monthIn(database: Database, months: number): Promise<{ name: string; at: string }> {
  const [row] = await database.query<{ name: string; at: string }>(
    `SELECT to_char(month, '_YYYY_MM') AS name, to_json((month + interval '1 day') AT TIME ZONE 'UTC') #>> '{}' AS at
       FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => $1) AS month) AS of`,
    [months],
  );
  assert.ok(row);
  return row;
}

test('the partitions of the next three months are there, and a missing one is made once', async (t) => {
  const database = await open(t);
  const late = await makeMonths(database);
  // The database is a copy of one that was migrated earlier: where the month ended since, the last one of each table is missing.
  assert.ok(late.length <= 2, `the migration has made them: ${late.join()}`);
  const last = await monthIn(database, 3);
  for (const parent of ['payments', 'audit']) {
    const names = await partitionsOf(database, parent);
    for (const ahead of [1, 2, 3]) {
      const { name } = await monthIn(database, ahead);
      assert.ok(names.includes(parent + name), name);
    }
    await database.query(`DROP TABLE duebridge_platform.${parent}${last.name}`);
    const both = await Promise.all([makeMonths(database), makeMonths(database)]);
    assert.deepEqual(both.flat(), [parent + last.name], 'of two replicas one makes it');
    assert.deepEqual(await partitionsOf(database, parent), names);
  }
});

test('a row finds its month, and one that came before its partition moves into it', async (t) => {
  const database = await open(t);
  await makeMonths(database);
  const { name, at } = await monthIn(database, 3);
  const write = async (at: string): Promise<string | undefined> => {
    const [found] = await database.query<{ of: string }>(
      `INSERT INTO duebridge_platform.audit (at, actor, event) VALUES ($1, 'ada', 'seen') RETURNING tableoid::regclass::text AS of`,
      [at],
    );
    return found?.of;
  };
  assert.equal(await write(at), `duebridge_platform.audit${name}`);
  const far = await monthIn(database, 7);
  assert.equal(await write(far.at), 'duebridge_platform.audit_other');
  const between = await monthIn(database, 5);
  // A copy to another database, which hears of deletes, stops nothing.
  await database.query('CREATE PUBLICATION everything FOR ALL TABLES');
  // Where only one of the two tables has a month, the other gets it as well: an archive takes both.
  const made = ['payments', 'audit'].map((parent) => parent + far.name);
  assert.deepEqual(await makeMonths(database), made);
  const rows = await database.query<{ of: string }>(
    'SELECT tableoid::regclass::text AS of FROM duebridge_platform.audit WHERE at = $1',
    [far.at],
  );
  assert.deepEqual(rows, [{ of: `duebridge_platform.audit${far.name}` }]);
  assert.equal(await write(between.at), 'duebridge_platform.audit_other', 'a month in between');
  assert.equal((await makeMonths(database)).length, 2);
  const [first] = await database.query<{ id: string }>(
    'SELECT duebridge_platform.first_id($1) AS id',
    [at],
  );
  assert.equal(first?.id, firstIdAt(Date.parse(at)), 'the database and the code know one first id');
});

test('a statement that names a partition may not remove from it either', async (t) => {
  const database = await open(t);
  for (const parent of ['payments', 'audit']) {
    for (const name of await partitionsOf(database, parent)) {
      for (const act of ['DELETE FROM', 'TRUNCATE']) {
        const statement = `${act} duebridge_platform.${name}`;
        await assert.rejects(database.query(statement), /kept as they are/, statement);
      }
    }
  }
});
