/** The front page keeps its word: the program on it starts, and answers as a partner must. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { ensureDatabase, openDatabase } from '@duebridge/runtime';
import { freePort, testServer } from '@duebridge/runtime/testing';

const root = join(import.meta.dirname, '..');
const KEY = 'a-key-for-the-front-page';

test('the program on the front page mounts the kit on an ordinary Fastify app [S2 S3 KY1]', async (t) => {
  const page = readFileSync(join(root, 'README.md'), 'utf8');
  const program = /^```ts\n([\s\S]*?)^```$/m.exec(page)?.[1];
  assert.ok(program, 'README.md shows a program');
  // Below node_modules, so that its imports resolve as in a project that has installed the packages.
  const cache = join(root, 'node_modules', '.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'readme-'));
  const postgres = await testServer();
  const name = `readme_${process.pid}`;
  const url = await ensureDatabase(postgres.url, name);
  writeFileSync(join(folder, 'server.mjs'), program);
  const port = await freePort();
  const child = spawn(process.execPath, [join(folder, 'server.mjs')], {
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      DATABASE_URL: url,
      PORT: String(port),
      PARTNER_KEY: KEY,
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  t.after(async () => {
    child.kill('SIGKILL');
    await exited;
    const admin = openDatabase({
      url: postgres.url,
      applicationName: 'readme',
      maxConnections: 1,
    });
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.close();
    await postgres.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const address = `http://127.0.0.1:${port}/biller/water/account/A-1`;
  const read = (headers: Record<string, string> = {}): Promise<Response> =>
    fetch(address, { headers });
  // Until it listens.
  while (!(await read().catch(() => undefined))) {
    assert.equal(child.exitCode, null, 'the program ended');
    await delay(20);
  }
  assert.equal((await read()).status, 401);
  const answer = await read({ 'x-api-key': KEY });
  assert.equal(answer.status, 200);
  const { balance } = (await answer.json()) as { balance: { amount_due_in_cents: number } };
  assert.equal(balance.amount_due_in_cents, 12_050);
});
