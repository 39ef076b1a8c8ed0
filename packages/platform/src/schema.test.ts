import test from 'node:test';
import { assertSchemaSnapshot, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from './migrations.ts';

test('schema.sql shows what the migrations make, so that nobody reads an old picture', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'schema' });
  await assertSchemaSnapshot(database, migrations.schema, new URL('./schema.sql', import.meta.url));
});
