/** The front page keeps its word: the program on it starts, and answers as a partner must. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'node:test';
import { ensureDatabase, openDatabase } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';

const root = join(import.meta.dirname, '..');
const KEY = 'a-key-for-the-front-page';

test('the program on the front page mounts the kit on an ordinary Fastify app [S2 S3 KY1]', async (t) => {
  const page = readFileSync(join(root, 'README.md'), 'utf8');
  const program = /^```ts\n([\s\S]*?)^```$/m.exec(page)?.[1];
  assert.ok(program, 'README.md shows a program');
  assert.ok(program.includes('port: 4100'));
  // Below node_modules, so that its imports resolve as in a project that has installed the packages.
  const cache = join(root, 'node_modules', '.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'readme-'));
  const postgres = await testServer();
  const name = `readme_${process.pid}`;
  const url = await ensureDatabase(postgres.url, name);
  writeFileSync(
    join(folder, 'server.mjs'),
    `${program.replace('port: 4100', 'port: 0')}\nconsole.log(app.server.address().port);\n`,
  );
  const child = spawn(process.execPath, [join(folder, 'server.mjs')], {
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      DATABASE_URL: url,
      PARTNER_KEY: KEY,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
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
  const port = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).once('line', resolve);
    child.once('exit', () => reject(new Error('the program ended')));
  });
  const address = `http://127.0.0.1:${port}/biller/b/account/a`;
  assert.equal((await fetch(address)).status, 401);
  const answer = await fetch(address, { headers: { 'x-api-key': KEY } });
  assert.equal(answer.status, 404);
  assert.equal(((await answer.json()) as { code: string }).code, 'ACCOUNT_NOT_FOUND');
});
