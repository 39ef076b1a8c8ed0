import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { assertSchemaSnapshot, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from './migrations.ts';

test('schema.sql matches the migrations, so nobody reads an outdated schema', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'schema' });
  await assertSchemaSnapshot(database, migrations.schema, new URL('./schema.sql', import.meta.url));
});

test('the update that marks payments which may have been sent reads those in flight alone, while it locks all', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'schema' });
  const file = new URL('076-payments-that-may-have-been-sent.sql', migrations.directory);
  const update = /^UPDATE [^;]*/m.exec(await readFile(file, 'utf8'))?.[0];
  assert.ok(update);
  const plan = await database.transaction(async (tx) => {
    // Its tables are empty here.
    await tx.query('SET LOCAL enable_seqscan = off');
    return tx.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${update}`);
  });
  const scans = plan.map((row) => row['QUERY PLAN']).filter((line) => / on payments_\d/.test(line));
  const read = scans.filter((line) => line.includes('Scan'));
  assert.ok(read.length > 0);
  // Of later months the same index has the name that PostgreSQL gives it.
  for (const line of read) assert.match(line, /Scan using \w+_slot(_idx)? /);
});
