import test from 'node:test';
import { assertSchemaSnapshot, testDatabase } from '@duebridge/runtime/testing';
import { migrations } from './migrations.ts';

test('schema.sql matches the migrations, so nobody reads an outdated schema', async (t) => {
  const database = await testDatabase(t, { migrations, name: 'schema' });
  await assertSchemaSnapshot(database, migrations.schema, new URL('./schema.sql', import.meta.url));
});
