/**
 * F8: tokens per second over HTTP: authentication, strict parsing, validation, sealing, and a 200 only after the commit; compared
 * with the same server that stores nothing (its statements for tokens are answered at once). And the time of an answer at half
 * of that load. Servers run in processes of their own; rounds alternate.
 *
 *     node bench/token.ts [--rounds 3] [--seconds 5] [--connections 128]
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { openDatabase } from '@duebridge/runtime';
import pg from 'pg';
import { Pool } from 'undici';
import { tokenRequest } from '../packages/platform/src/checkout/testing.ts';
import { BothSides, gasCompany } from '../test/support/both-sides.ts';
import type { Client } from '../test/support/customer.ts';
import { end, withDatabase } from './database.ts';
import { benchOptions } from './options.ts';
import { quantile, ratios, report, spread } from './report.ts';

const flags = benchOptions({ rounds: '3', seconds: '5', connections: '128' });
const { seconds, connections } = flags;

/** Asks for tokens over all connections, at most `perSecond` of them evenly. Returns the rate and the sorted times in ms. */
async function ask(served: Client, seconds: number, perSecond = Infinity) {
  const pool = new Pool(served.platformUrl, { connections });
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
        if (wait > 1) await delay(wait);
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
  const rates = { stored: [] as number[], bare: [] as number[] };
  const p99s: number[] = [];
  for (let round = 1; round <= flags.rounds; round += 1) {
    for (const kind of ['bare', 'stored'] as const) {
      await withDatabase(async (url) => {
        const child = fork(new URL(import.meta.url), ['serve', kind, url]);
        const [served] = (await once(child, 'message')) as [Client];
        await ask(served, 1);
        const { rate } = await ask(served, seconds);
        rates[kind].push(rate);
        if (kind === 'stored') {
          const { times } = await ask(served, seconds, rate / 2);
          p99s.push(quantile(times, 0.99));
        }
        const gone = once(child, 'exit');
        child.send('stop');
        await gone;
        const books = openDatabase({ url, applicationName: 'bench', maxConnections: 1 });
        const stored = await books.query('SELECT FROM duebridge_platform.tokens LIMIT 1');
        assert.equal(stored.length > 0, kind === 'stored', 'the wrong server stored tokens');
        await books.close();
        console.log(`round ${round}: ${kind} ${Math.round(rate)}/s`);
      });
    }
  }
  const what = 'tokens / the same without storage';
  report({ figure: 'F8', what, ...ratios(rates.stored, rates.bare), target: 'at least 0.7' });
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

async function serve(kind: string | undefined, databaseUrl: string | undefined): Promise<void> {
  if (kind === 'bare') storeNothing();
  const sides = new BothSides();
  const clientRate = { perSecond: 1e6, burst: 1e6 };
  const { platform, register } = await sides.platform({ databaseUrl, clientRate });
  const biller = gasCompany('http://127.0.0.1:9', 'benchmark-key-0123456789');
  const client = await register(biller);
  process.send?.(client);
  await once(process, 'message');
  await platform.stop();
  await sides.stop();
  process.exit(0);
}

const [, , role, kind, url] = process.argv;
if (role === 'serve') {
  // It ends with the benchmark, however that ends.
  process.once('disconnect', () => process.exit());
  await serve(kind, url);
} else {
  await main();
  await end();
}
