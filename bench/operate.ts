/**
 * How long an operator waits: calls every page and search of the admin API on 1,000,000 payments (or `--payments N`), ten times
 * each after one warm-up call. Prints the median and the maximum of each, the slowest last; exits with 1 when a median is over
 * 300 ms.
 */
import { createSecretKey, randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startPlatform } from '@duebridge/platform';
import { ensureDatabase, openDatabase, silentLog, startEmbeddedPostgres } from '@duebridge/runtime';
import { emailDigest } from '../packages/platform/src/checkout/secrets.ts';
import { openSealer } from '../packages/platform/src/partners/seal.ts';
import { fillTables, pagesOf } from '../packages/platform/src/store/testing.ts';
import { benchOptions } from './options.ts';

const LIMIT_MS = 300;
const values = benchOptions(import.meta.main, { payments: '1000000' });
const count = Number(values.payments);

const directory = await mkdtemp(join(tmpdir(), 'duebridge-bench-operate-'));
// When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere and left there.
await chmod(directory, 0o711);
const server = await startEmbeddedPostgres({ dataDirectory: directory, log: silentLog });
const url = await ensureDatabase(server.url, 'operate');
const secret = (): string => randomBytes(32).toString('base64');
const [sealKey, keyPepper] = [secret(), secret()];
const email = 'ada@example.com';
const person = {
  first_name: 'Ada',
  last_name: 'Lovelace',
  phone_number: '+15125550100',
  address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
};
const platform = await startPlatform({
  port: 0,
  adminPort: 0,
  databaseUrl: url,
  dataDirectory: directory,
  sealKey,
  keyPepper,
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
  // Five customers are one person whose address we know.
  const people = await database.query<{ customer_id: string }>(
    'SELECT customer_id FROM duebridge_platform.customers ORDER BY customer_id DESC LIMIT 5',
  );
  const sealer = openSealer(sealKey);
  for (const { customer_id } of people) {
    const sealed = sealer.seal(JSON.stringify({ ...person, email }), `customers/${customer_id}`);
    await database.query(
      'UPDATE duebridge_platform.customers SET email_digest = $2, sealed = $3 WHERE customer_id = $1',
      [customer_id, emailDigest(createSecretKey(Buffer.from(keyPepper, 'base64')), email), sealed],
    );
  }
  const found: { name: string; median: number; worst: number }[] = [];
  for (const [name, path, body] of pagesOf({ ...payment, email })) {
    const times: number[] = [];
    for (let turn = 0; turn < 11; turn += 1) {
      const startedAt = performance.now();
      const response = await fetch(new URL(path, platform.adminUrl), {
        headers: {
          authorization: `Bearer ${platform.adminKey}`,
          ...(body && { 'content-type': 'application/json' }),
        },
        ...(body && { method: 'POST', body: JSON.stringify(body) }),
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
