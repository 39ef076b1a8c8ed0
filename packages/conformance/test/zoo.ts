/**
 * A zoo of correct partners: valid behaviour that differs from ours. None may fail a check; a warning is
 * allowed if the peer breaks a should, and is listed with it.
 *
 *   node packages/conformance/test/zoo.ts [NAME …]      judges each, or those named, three times and writes docs/results/zoo.json
 *
 * That file keeps what the runs decided. What the checks send and expect is the same for every peer, and is in the kit.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { request } from 'undici';
import type { Pace } from '../src/check/pace.ts';
import { judgePartner, type CheckResult, type RunReport } from '../src/run.ts';
import {
  onRecords,
  startScriptedPartner,
  type Behaviour,
  type ScriptedAuth,
} from '../src/sandbox/partner.ts';
import { overlay, partnerTarget, type Draft } from '../src/check/target.ts';

const KEY: ScriptedAuth = { method: 'key', header: 'x-api-key', key: 'a-key-of-the-zoo' };

/** A gateway between the judge and the partner. */
interface Gateway {
  readonly prefix?: string;
  readonly latency_ms?: number;
  /** Changes an answer before it leaves. */
  readonly answer?: (answer: GatewayAnswer) => GatewayAnswer;
  /** Requests per second, beyond which it answers 429. */
  readonly rate?: number;
  /** True to send the body in pieces of one byte. */
  readonly drip?: boolean;
}

interface GatewayAnswer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Buffer;
}

export interface ZooPeer {
  readonly name: string;
  readonly behaviour?: () => Behaviour;
  readonly gateway?: Gateway;
  readonly auth?: ScriptedAuth;
  readonly target?: Draft;
  /** Checks that correctly warn. */
  readonly warns?: readonly string[];
}

const isString = (value: unknown): value is string => typeof value === 'string';

/** Rewrites every time in a record. */
const times = (write: (instant: string) => string): Behaviour =>
  onRecords((record) => ({
    ...record,
    initiated_at: write(String(record['initiated_at'])),
    posted_at: isString(record['posted_at']) ? write(record['posted_at']) : record['posted_at'],
  }));

const moved = (instant: string, ms: number): string =>
  new Date(Date.parse(instant) + ms).toISOString();

const reason = (failure_reason: string): Behaviour =>
  onRecords((record) => (record['status'] === 'failed' ? { ...record, failure_reason } : record));

/** Shows the amount due as it was at the last refresh. */
function refreshed(every_ms: number): Behaviour {
  const shown = new Map<string, { at: number; due: unknown }>();
  return {
    answer(call, answer, partner) {
      const body = answer.body as Record<string, unknown> | undefined;
      if (answer.status !== 200 || !/^get_(account|balance)$/.test(call.operation))
        return undefined;
      const balance = (body?.['balance'] ?? body) as Record<string, unknown> | undefined;
      const key = call.params['account_id'] ?? '';
      const known = shown.get(key);
      if (known === undefined || partner.now() - known.at >= every_ms) {
        shown.set(key, { at: partner.now(), due: balance?.['amount_due_in_cents'] });
      }
      const old = { ...balance, amount_due_in_cents: shown.get(key)?.due };
      return { ...answer, body: body?.['balance'] === undefined ? old : { ...body, balance: old } };
    },
  };
}

/** Answers Get Payment from a copy to which the end of a payment comes later. */
function lateByPayment(late_ms: number): Behaviour {
  const ended = new Map<unknown, number>();
  return onRecords((record, call, partner) => {
    if (record['status'] === 'processing') return record;
    const { platform_payment_id: id } = record;
    const since = ended.get(id) ?? partner.now();
    ended.set(id, since);
    if (call.operation !== 'get_payment' || partner.now() - since >= late_ms) return record;
    const { failure_reason: _unknown, ...rest } = record;
    return { ...rest, status: 'processing', posted_at: null };
  });
}

export const ZOO: readonly ZooPeer[] = [
  { name: 'under a prefix', gateway: { prefix: '/api/v3' } },
  {
    name: 'with fields of its own',
    behaviour: () =>
      onRecords((r) => ({ ...r, memo: 'x', links: { self: '/x' }, currency: 'USD' })),
  },
  {
    name: 'with fields in another order',
    behaviour: () => onRecords((r) => Object.fromEntries(Object.entries(r).toReversed())),
  },
  {
    name: 'with times at an offset',
    behaviour: () => times((t) => moved(t, 19_800_000).replace('Z', '+05:30')),
  },
  { name: 'with times in microseconds', behaviour: () => times((t) => t.replace('Z', '123Z')) },
  { name: 'with times in whole seconds', behaviour: () => times((t) => t.replace(/\.\d+Z/, 'Z')) },
  {
    name: 'that rounds posted_at alone to a second',
    behaviour: () =>
      onRecords((r) => ({
        ...r,
        posted_at: isString(r['posted_at']) ? r['posted_at'].replace(/\.\d+Z/, 'Z') : null,
      })),
  },
  {
    name: 'whose clock is three minutes behind',
    behaviour: () => times((t) => moved(t, -180_000)),
  },
  {
    name: 'whose ledger has a clock two minutes ahead',
    behaviour: () =>
      onRecords((r) => ({
        ...r,
        posted_at: isString(r['posted_at']) ? moved(r['posted_at'], 120_000) : null,
      })),
  },
  {
    name: 'that answers in gzip',
    gateway: {
      answer: (a) => ({
        ...a,
        headers: { ...a.headers, 'content-encoding': 'gzip' },
        body: gzipSync(a.body),
      }),
    },
  },
  {
    name: 'that answers in brotli',
    gateway: {
      answer: (a) => ({
        ...a,
        headers: { ...a.headers, 'content-encoding': 'br' },
        body: brotliCompressSync(a.body),
      }),
    },
  },
  { name: 'that answers in pieces', gateway: { drip: true } },
  { name: 'that takes fifty milliseconds', gateway: { latency_ms: 50 } },
  {
    name: 'with header names in capitals',
    gateway: {
      answer: (a) => ({
        ...a,
        headers: Object.fromEntries(
          Object.entries(a.headers).map(([name, value]) => [name.toUpperCase(), value]),
        ),
      }),
    },
  },
  {
    name: 'behind a gateway whose errors are web pages',
    gateway: {
      answer: (a) =>
        a.status < 400
          ? a
          : {
              status: a.status,
              headers: { 'content-type': 'text/html' },
              body: Buffer.from('<h1>Error</h1>'),
            },
    },
    warns: ['P11', 'P15', 'P59'],
  },
  { name: 'that takes a hundred requests a second', gateway: { rate: 100 } },
  {
    name: 'that posts while it answers',
    behaviour: () => ({
      born(payment, _call, partner) {
        if (payment.ending.status === 'succeeded') {
          payment.status = 'succeeded';
          payment.posted_at = payment.initiated_at;
          partner.post(payment);
        }
      },
    }),
    warns: ['P21'],
  },
  {
    name: 'that posts at night',
    behaviour: () => ({
      born: (payment) => {
        payment.ending = { ...payment.ending, after_ms: undefined };
      },
    }),
    target: { terminal_window_seconds: 86_400 },
  },
  { name: 'that shows balances as of last night', behaviour: () => refreshed(1e9) },
  { name: 'that refreshes balances every two seconds', behaviour: () => refreshed(2_000) },
  {
    name: 'that shows no balance',
    target: { paths: { get_balance: null }, accounts: { payable: 'bare', inactive: 'inactive' } },
  },
  { name: 'without Get Payment', target: { paths: { get_payment: null } } },
  {
    name: 'whose Get Payment shows an end a second late',
    behaviour: () => lateByPayment(1_000),
  },
  { name: 'that gives reasons in Japanese', behaviour: () => reason('口座が停止されています') },
  { name: 'that gives reasons of one word', behaviour: () => reason('Geschlossen') },
  {
    name: 'that accepts only UUIDs as ids',
    behaviour: () => ({
      receive: (call) =>
        call.method === 'PUT' &&
        !/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(call.params['platform_payment_id'] ?? '')
          ? { status: 400, body: { code: 'INVALID_REQUEST', message: 'The id is no UUID' } }
          : undefined,
    }),
  },
  {
    name: 'that refuses payments to inactive accounts',
    behaviour: () => ({
      receive: (call) =>
        call.method === 'PUT' &&
        call.params['account_id'] === 'inactive' &&
        call.headers['x-api-key'] === 'a-key-of-the-zoo'
          ? { status: 422, body: { code: 'ACCOUNT_INACTIVE', message: 'The account is closed' } }
          : undefined,
    }),
    warns: ['P41'],
  },
  {
    name: 'with an OAuth secret that has a space',
    auth: { method: 'oauth', client_id: 'judge', client_secret: 'two words of a secret' },
  },
  {
    name: 'with access tokens of two seconds',
    auth: {
      method: 'oauth',
      client_id: 'judge',
      client_secret: 'a-secret-of-the-zoo',
      expires_in: 2,
    },
  },
];

/** Opens a gateway in front of a partner; returns its URL. */
async function openGateway(
  url: string,
  gateway: Gateway,
): Promise<{ url: string; stop: () => void }> {
  let [window, count] = [0, 0];
  const server = http.createServer((incoming, response) => {
    void (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
      const now = Math.floor(Date.now() / 1_000);
      count = now === window ? count + 1 : 1;
      window = now;
      if (gateway.rate !== undefined && count > gateway.rate) {
        response.writeHead(429, { 'retry-after': '1', 'content-type': 'application/json' });
        response.end('{"code":"TOO_MANY_REQUESTS","message":"Too many requests"}');
        return;
      }
      const {
        host: _host,
        connection: _kept,
        'content-length': _length,
        ...headers
      } = incoming.headers;
      const inner = await request(url + (incoming.url ?? '').slice((gateway.prefix ?? '').length), {
        method: incoming.method ?? 'GET',
        headers: headers as Record<string, string>,
        ...(chunks.length === 0 ? {} : { body: Buffer.concat(chunks) }),
      });
      const {
        connection: _c,
        'keep-alive': _k,
        'content-length': _l,
        'transfer-encoding': _t,
        ...given
      } = inner.headers;
      const came: GatewayAnswer = {
        status: inner.statusCode,
        headers: given as Record<string, string>,
        body: Buffer.from(await inner.body.arrayBuffer()),
      };
      const { status, headers: out, body } = gateway.answer?.(came) ?? came;
      await new Promise((resolve) => {
        setTimeout(resolve, gateway.latency_ms ?? 0);
      });
      response.writeHead(status, out);
      if (gateway.drip === true) for (const byte of body) response.write(Buffer.from([byte]));
      response.end(gateway.drip === true ? undefined : body);
    })().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${gateway.prefix ?? ''}`,
    stop() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** The file with the results of the last three runs of each peer. */
export const RESULTS = new URL('../../../docs/results/zoo.json', import.meta.url);

export interface ZooResult {
  readonly peer: string;
  readonly kit_version: string;
  readonly runs: readonly Pick<RunReport, 'started_at' | 'duration_ms' | 'verdict' | 'counts'>[];
  /** Of the last run: the ids of the checks that passed, and what the others said. */
  readonly passed: readonly string[];
  readonly others: readonly Pick<CheckResult, 'id' | 'verdict' | 'findings' | 'skipped'>[];
}

/** Judges one peer of the zoo. */
export async function judgeZooPeer(peer: ZooPeer, pace: Partial<Pace>): Promise<RunReport> {
  const auth = peer.auth ?? KEY;
  const partner = await startScriptedPartner({
    auth,
    processing_ms: 40,
    ...(peer.behaviour === undefined ? {} : { behaviour: peer.behaviour() }),
  });
  const gateway =
    peer.gateway === undefined ? undefined : await openGateway(partner.url, peer.gateway);
  try {
    const draft: Draft = {
      base_url: gateway?.url ?? partner.url,
      authentication:
        auth.method === 'key'
          ? auth
          : {
              method: 'oauth',
              client_id: auth.client_id,
              client_secret: auth.client_secret,
              token_url: partner.token_url,
            },
      biller_id: 'sandbox-utility',
      accounts: {
        payable: 'active',
        other: 'active-2',
        unknown: 'nobody',
        inactive: 'inactive',
      },
      terminal_window_seconds: 20,
      spending_cap_in_cents: 20_000_000_000,
    };
    return await judgePartner(partnerTarget(overlay(draft, peer.target ?? {}), {}), {
      pace: { ...pace, request_timeout_ms: 15_000 },
      restart: async () => undefined,
    });
  } finally {
    gateway?.stop();
    await partner.stop();
  }
}

/** The checks of a report with this verdict. */
export function idsOf(report: RunReport, wanted: 'FAIL' | 'WARN'): string[] {
  return report.results.filter(({ verdict }) => verdict === wanted).map(({ id }) => id);
}

/** What a run decided, after the earlier runs of the same peer. */
function addRun(
  peer: string,
  { runs }: Pick<ZooResult, 'runs'>,
  { started_at, duration_ms, verdict, counts, results, kit_version }: RunReport,
): ZooResult {
  return {
    peer,
    kit_version,
    runs: [...runs, { started_at, duration_ms, verdict, counts }],
    passed: results.filter((one) => one.verdict === 'PASS').map(({ id }) => id),
    others: results
      .filter((one) => one.verdict !== 'PASS')
      .map(({ id, verdict: of, findings, skipped }) => ({
        id,
        verdict: of,
        findings,
        ...(skipped === undefined ? {} : { skipped }),
      })),
  };
}

if (import.meta.main) {
  const earlier = JSON.parse(readFileSync(RESULTS, 'utf8')) as readonly ZooResult[];
  const results = new Map(earlier.map((one) => [one.peer, one]));
  const named = process.argv.slice(2);
  const chosen = ZOO.filter(({ name }) => named.length === 0 || named.includes(name));
  if (chosen.length < named.length) throw new Error('no peer of the zoo has one of these names');
  for (const { name } of chosen) results.delete(name);
  for (let run = 1; run <= 3; run += 1) {
    const queue = [...chosen];
    const worker = async (): Promise<void> => {
      for (let peer = queue.shift(); peer !== undefined; peer = queue.shift()) {
        const report = await judgeZooPeer(peer, {});
        results.set(peer.name, addRun(peer.name, results.get(peer.name) ?? { runs: [] }, report));
        const found = [...idsOf(report, 'FAIL'), ...idsOf(report, 'WARN')].join(' ');
        console.log(`${String(run)}: a partner ${peer.name}: ${report.verdict} ${found}`);
      }
    };
    await Promise.all(Array.from({ length: 4 }, worker));
  }
  const lines = ZOO.map(({ name }) => JSON.stringify(results.get(name)));
  writeFileSync(RESULTS, `[\n${lines.join(',\n')}\n]\n`);
}
