import test from 'node:test';
import { assertSchemaPicture, testDatabase } from '@duebridge/runtime/testing';

test('schema.sql shows what the migrations make, so that nobody reads an old picture', async (t) => {
  const database = await testDatabase(t, {
    migrations: new URL('./migrations/', import.meta.url),
    name: 'schema',
  });
  await assertSchemaPicture(database, new URL('./schema.sql', import.meta.url));
});
