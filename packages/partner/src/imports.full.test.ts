/** Imports of files that no memory should hold: a real process, and how much of it was resident at most. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { text } from 'node:stream/consumers';
import test, { type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { kitDatabase } from '../test/kit.ts';

const entryPoint = fileURLToPath(new URL('../../../bin/duebridge.ts', import.meta.url));
const ROWS = Number(process.env['ROWS'] ?? 1_000_000);
const MOST_MIB = 200;

/** Writes its highest resident memory in KiB as the last line of standard error. */
const measuring =
  'data:text/javascript,process.on("exit",()=>process.stderr.write(`${process.resourceUsage().maxRSS}\\n`))';

async function fileOf(t: TestContext, head: string, row: (n: number) => string): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'imports-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const file = path.join(folder, 'rows.csv');
  function* chunks(): Generator<string> {
    yield `${head}\n`;
    for (let from = 0; from < ROWS; from += 1_000) {
      yield Array.from({ length: Math.min(1_000, ROWS - from) }, (_, n) => row(from + n)).join('');
    }
  }
  await pipeline(Readable.from(chunks()), createWriteStream(file));
  return file;
}

async function run(
  t: TestContext,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<unknown> {
  const began = performance.now();
  const child = spawn(process.execPath, ['--import', measuring, entryPoint, 'partner', ...args], {
    env: { PATH: process.env['PATH'], ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  assert.equal(code, 0, err);
  const mib = Number(err.trimEnd().split('\n').at(-1)) / 1_024;
  const seconds = (performance.now() - began) / 1_000;
  t.diagnostic(`${ROWS} rows: ${mib.toFixed(0)} MiB at most, ${seconds.toFixed(1)} s`);
  assert.ok(mib <= MOST_MIB, `${mib.toFixed(0)} MiB were resident`);
  return JSON.parse(out);
}

test('a million payments of a former server are imported in 200 MiB', async (t) => {
  const database = await kitDatabase(t, 'imports');
  const file = await fileOf(
    t,
    'platform_payment_id,payment_id,platform_batch_id,biller_id,account_id,status,amount_in_cents,initiated_at,posted_at,failure_reason',
    (n) =>
      `0190a5c0-0000-7000-8000-${String(n).padStart(12, '0')},R-${n},batch-${n % 400},acme,A-${n % 90_000},succeeded,${1 + (n % 50_000)},2026-03-01T09:30:00.000Z,2026-03-01T09:30:01.000Z,\n`,
  );
  const args = ['import-payments', file, '--json'];
  const env = { DATABASE_URL: database.url };
  const all = { imported: ROWS, known: 0, skipped: 0, differing: [] };
  assert.deepEqual(await run(t, args, env), all);
});

test('a million accounts are imported in 200 MiB', async (t) => {
  const database = await kitDatabase(t, 'imports');
  const file = await fileOf(
    t,
    'biller_id,account_id,status,first_name,last_name,amount_due,due_date',
    (n) => `acme,A-${n},active,Ada,"Lovelace, No. ${n}",${n % 900}.50,2026-12-01\n`,
  );
  const args = ['accounts', 'import', file, '--json'];
  const result = await run(t, args, { DATABASE_URL: database.url });
  assert.deepEqual(result, { created: ROWS, updated: 0, unchanged: 0 });
});
