/**
 * How long an operator waits: calls every page and search of the admin API on 1,000,000 payments (or `--payments N`), ten times
 * each after one warm-up call. Prints the median and the maximum of each, the slowest last; exits with 1 when a median is over
 * 300 ms.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startPlatform } from '@duebridge/platform';
import { ensureDatabase, openDatabase, silentLog, startEmbeddedPostgres } from '@duebridge/runtime';
import { fillTables, pagesOf } from '../packages/platform/src/store/testing.ts';

const LIMIT_MS = 300;
const { values } = parseArgs({ options: { payments: { type: 'string', default: '1000000' } } });
const count = Number(values.payments);

const directory = await mkdtemp(join(tmpdir(), 'duebridge-bench-operate-'));
const server = await startEmbeddedPostgres({ dataDirectory: directory, log: silentLog });
const url = await ensureDatabase(server.url, 'operate');
const secret = (): string => randomBytes(32).toString('base64');
const platform = await startPlatform({
  port: 0,
  adminPort: 0,
  databaseUrl: url,
  dataDirectory: directory,
  sealKey: secret(),
  keyPepper: secret(),
  log: silentLog,
});
const database = openDatabase({ url, applicationName: 'bench', statementTimeoutMs: 0 });
try {
  console.log(`writing ${count} payments …`);
  await fillTables(database, count);
  const [payment] = await database.query<{ id: string; number: number; amount_in_cents: number }>(
    `SELECT platform_payment_id AS id, substr(session_id, 9)::int AS number, amount_in_cents FROM duebridge_platform.payments
      WHERE session_id = $1`,
    [`session-${Math.floor(count / 2) + 50}`],
  );
  if (payment === undefined) throw new Error('the payment to look for is not there');
  const found: { name: string; median: number; worst: number }[] = [];
  for (const [name, path] of pagesOf(payment)) {
    const times: number[] = [];
    for (let turn = 0; turn < 11; turn += 1) {
      const startedAt = performance.now();
      const response = await fetch(new URL(path, platform.adminUrl), {
        headers: { authorization: `Bearer ${platform.adminKey}` },
      });
      await response.text();
      if (!response.ok) throw new Error(`${name}: ${response.status}`);
      if (turn > 0) times.push(performance.now() - startedAt);
    }
    times.sort((a, b) => a - b);
    found.push({ name, median: times[5] ?? 0, worst: times[9] ?? 0 });
  }
  found.sort((a, b) => a.median - b.median);
  for (const { name, median, worst } of found) {
    console.log(`${median.toFixed(0).padStart(6)} ms  ${worst.toFixed(0).padStart(6)} ms  ${name}`);
  }
  if ((found.at(-1)?.median ?? 0) > LIMIT_MS) process.exitCode = 1;
} finally {
  await database.close();
  await platform.stop();
  await server.stop();
  await rm(directory, { recursive: true, force: true });
}
