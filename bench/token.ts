/**
 * F8: tokens per second over HTTP: authentication, strict parsing, validation, sealing, and a 200 only after the commit; compared
 * with the same server that stores nothing (its statements for tokens are answered at once). And the time of an answer at half
 * of that load. Servers run in processes of their own; rounds alternate.
 *
 *     node bench/token.ts [--rounds 3] [--seconds 5] [--connections 128]
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureDatabase, silentLog } from '@duebridge/runtime';
import { testServer } from '@duebridge/runtime/testing';
import pg from 'pg';
import { Pool } from 'undici';
import { tokenRequest } from '../packages/platform/src/checkout/testing.ts';
import { startPlatform } from '../packages/platform/src/server.ts';
import { benchOptions } from './options.ts';
import { quantile, ratios, report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, { rounds: '3', seconds: '5', connections: '128' });

interface Served {
  readonly url: string;
  readonly client_id: string;
  readonly api_key: string;
}

/** Asks for tokens over `connections`, at most `perSecond` of them evenly. Returns the rate and the sorted times in ms. */
async function ask(served: Served, seconds: number, connections: number, perSecond = Infinity) {
  const pool = new Pool(served.url, { connections });
  const body = JSON.stringify(tokenRequest());
  const headers = {
    'content-type': 'application/json',
    'x-client-id': served.client_id,
    'x-api-key': served.api_key,
  };
  const times: number[] = [];
  const began = performance.now();
  const until = began + seconds * 1_000;
  let next = began;
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (;;) {
        const due = perSecond === Infinity ? performance.now() : next;
        next += 1_000 / perSecond;
        if (due >= until || performance.now() >= until) return;
        const wait = due - performance.now();
        if (wait > 1) await new Promise((resolve) => setTimeout(resolve, wait));
        const from = Math.max(due, began);
        const answer = await pool.request({ path: '/v1/sbi/token', method: 'POST', headers, body });
        const text = await answer.body.text();
        assert.equal(answer.statusCode, 200, text);
        times.push(performance.now() - from);
      }
    }),
  );
  const rate = times.length / ((performance.now() - began) / 1_000);
  await pool.close();
  return { rate, times: times.toSorted((a, b) => a - b) };
}

async function main(): Promise<void> {
  const seconds = Number(flags.seconds);
  const connections = Number(flags.connections);
  const server = await testServer();
  const rates = { stored: [] as number[], bare: [] as number[] };
  const p99s: number[] = [];
  for (let round = 1; round <= Number(flags.rounds); round += 1) {
    for (const kind of ['bare', 'stored'] as const) {
      const name = `bench_${randomBytes(5).toString('hex')}`;
      const url = await ensureDatabase(server.url, name);
      const child = fork(new URL(import.meta.url), ['serve'], {
        env: { ...process.env, TOKEN_KIND: kind, TOKEN_DATABASE: url },
      });
      const [served] = (await once(child, 'message')) as [Served];
      await ask(served, 1, connections);
      const { rate } = await ask(served, seconds, connections);
      rates[kind].push(rate);
      if (kind === 'stored') {
        const { times } = await ask(served, seconds, connections, rate / 2);
        p99s.push(quantile(times, 0.99));
      }
      const gone = once(child, 'exit');
      child.send('stop');
      await gone;
      const stored = new pg.Client(url);
      await stored.connect();
      const counted = await stored.query<{ n: string }>(
        'SELECT count(*) AS n FROM duebridge_platform.tokens',
      );
      assert.equal(
        Number(counted.rows[0]?.n) > 0,
        kind === 'stored',
        'the wrong server stored tokens',
      );
      await stored.end();
      const admin = new pg.Client(server.url);
      await admin.connect();
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await admin.end();
    }
    console.log(
      `round ${round}: stored ${Math.round(rates.stored.at(-1) ?? 0)}/s, not stored ${Math.round(rates.bare.at(-1) ?? 0)}/s, p99 at half load ${(p99s.at(-1) ?? 0).toFixed(1)} ms`,
    );
  }
  await server.stop();
  report({
    figure: 'F8',
    what: 'tokens / the same without storage',
    ...ratios(rates.stored, rates.bare),
    target: 'at least 0.7',
  });
  report({ figure: 'F8', what: 'p99 of an answer at half load', ...spread(p99s), unit: 'ms' });
}

/** Answers the statement that stores tokens at once, without the database. */
function storeNothing(): void {
  const expires_at = new Date(Date.now() + 1_800_000).toISOString();
  const { prototype } = pg.Client;
  const query = Reflect.get(prototype, 'query') as (...args: unknown[]) => unknown;
  const answer = function answer(this: pg.Client, ...args: unknown[]): unknown {
    const [asked] = args as [{ text?: string; values?: unknown[][] } | string];
    if (
      typeof asked === 'object' &&
      asked.text?.includes('INSERT INTO duebridge_platform.tokens') === true
    ) {
      return Promise.resolve({ rows: (asked.values?.[0] ?? []).map(() => ({ expires_at })) });
    }
    return query.apply(this, args);
  };
  Reflect.set(prototype, 'query', answer);
}

async function serve(): Promise<void> {
  if (process.env['TOKEN_KIND'] === 'bare') storeNothing();
  const directory = await mkdtemp(join(tmpdir(), 'duebridge-bench-token-'));
  const secret = () => randomBytes(32).toString('base64');
  const platform = await startPlatform({
    port: 0,
    adminPort: 0,
    databaseUrl: process.env['TOKEN_DATABASE'],
    dataDirectory: directory,
    sealKey: secret(),
    keyPepper: secret(),
    allowPrivateAddresses: true,
    clientRate: { perSecond: 1e6, burst: 1e6 },
    ipRate: undefined,
    log: silentLog,
  });
  const admin = async (path: string, body: object): Promise<Record<string, string>> => {
    const response = await fetch(new URL(path, platform.adminUrl), {
      method: 'POST',
      headers: { authorization: `Bearer ${platform.adminKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    assert.ok(response.ok, await response.clone().text());
    return (await response.json()) as Record<string, string>;
  };
  await admin('/admin/v1/partners', {
    partner_id: 'water',
    name: 'Water',
    kind: 'biller',
    biller_id: 'water',
    base_url: 'http://127.0.0.1:9',
    origins: [],
    account_check: 'off',
    auth: { method: 'key', header: 'x-api-key', key: 'benchmark-key-0123456789' },
  });
  const { client_id, api_key } = await admin('/admin/v1/partners/water/keys', {});
  process.send?.({ url: platform.url, client_id, api_key });
  await once(process, 'message');
  await platform.stop();
  await rm(directory, { recursive: true, force: true });
  process.exit(0);
}

if (process.argv[2] === 'serve') await serve();
else await main();
