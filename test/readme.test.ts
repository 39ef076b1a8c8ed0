/** The front page keeps its word: the program on it starts, and answers as a partner must. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import { freePort, testDatabase } from '@duebridge/runtime/testing';
import { Consumer } from './consumers/consumer.ts';
import { readPage } from './support/page.ts';

test('the program on the front page mounts the kit on an ordinary Fastify app [S2 S3 KY1]', async (t) => {
  const program = readPage('README.md')
    .flatMap(({ blocks }) => blocks)
    .find(({ language }) => language === 'ts');
  assert.ok(program, 'README.md shows a program');
  // Below node_modules, so that its imports resolve as in a project that has installed the packages.
  const cache = join(import.meta.dirname, '../node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'readme-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'no-migrations'));
  const directory = pathToFileURL(join(folder, 'no-migrations/'));
  const database = await testDatabase(t, { migrations: { schema: 'nothing', directory } });
  const consumer = new Consumer(folder, { packed: new Map() });
  await consumer.write('server.mjs', program.text);
  const [port, key] = [await freePort(), 'a-key-for-the-front-page'];
  const env = { DATABASE_URL: database.url, PORT: String(port), DUEBRIDGE_PARTNER_KEY: key };
  const cleanup = { after: (hook: () => Promise<void>) => database.closing(hook) };
  await consumer.serve(cleanup, 'exec node server.mjs', port, env);
  const address = `http://127.0.0.1:${port}/biller/water/account/A-1`;
  assert.equal((await fetch(address)).status, 401);
  const answer = await fetch(address, { headers: { 'x-api-key': key } });
  assert.equal(answer.status, 200);
  const { balance } = (await answer.json()) as { balance: { amount_due_in_cents: number } };
  assert.equal(balance.amount_due_in_cents, 12_050);
});
