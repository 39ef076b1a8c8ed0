/**
 * The scripted platform: issues tokens like the platform does, and drives payments against a partner under development from a
 * small page. Everything is in memory and nothing is real.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import http from 'node:http';
import { isUtf8 } from 'node:buffer';
import {
  compileCheck,
  formatCents,
  JsonProblem,
  MAX_AMOUNT_IN_CENTS,
  parseJson,
  platformRoutes,
  Refusal,
  TokenRequest,
  type Json,
} from '@duebridge/contract';
import { MACHINE_CLOCK, type Clock } from '../clock.ts';
import type { Answer } from './behaviour.ts';
import { drivePayment, type DriveExchange, type DriveResult, type DriveTarget } from './drive.ts';
import { html, htmlAnswer, isForeign } from './html.ts';
import { listen, readBody, urlOf } from './listeners.ts';

/** Options of a scripted platform. */
export interface ScriptedPlatformOptions {
  readonly host?: string;
  /** 0, the usual value, takes a free port. */
  readonly port?: number;
  /** The client that may request tokens; generated unless given. An aggregator must send biller_id (TR4). */
  readonly client?: {
    readonly client_id: string;
    readonly api_key: string;
    readonly kind?: 'biller' | 'aggregator';
  };
  /** Its time source; the machine's clock unless given. */
  readonly clock?: Clock;
}

/** A token that was issued. */
export interface ScriptedToken {
  /** The first characters, enough to recognise it. */
  readonly token_start: string;
  readonly account_id: string | undefined;
  /** ISO 8601. */
  readonly expires_at: string;
}

/** A running scripted platform. */
export interface ScriptedPlatform {
  readonly url: string;
  readonly client_id: string;
  readonly api_key: string;
  tokens(): readonly ScriptedToken[];
  /** True while the token opens the flow: it was issued here and has not expired (decision 8). */
  isGood(token: string): boolean;
  /** Moves its clock forward. */
  advance(ms: number): void;
  reset(): void;
  /** Drives one payment against a partner and keeps the exchanges for the page. */
  drive(target: DriveTarget, order: Parameters<typeof drivePayment>[1]): Promise<DriveResult>;
  stop(): Promise<void>;
}

/** An account_id that this platform cannot find, so that a partner can see the error (ER1). */
export const UNKNOWN_ACCOUNT = 'unknown';

/** True for an account or a biller that does not exist: that one, and every made-up id of this form. */
const isUnknown = (id: string): boolean => id === UNKNOWN_ACCOUNT || id.startsWith('no-such-');

/** Lifetime of a token (decision 8). */
const TOKEN_LIFE_MS = 30 * 60 * 1000;

/** Tokens per second, and in one burst (decision 16). */
const RATE_PER_SECOND = 25;
const BURST = 50;

/** Maximum number of tokens and of page runs remembered; the oldest are dropped. */
const MAX_TOKENS = 10_000;
const MAX_RUNS = 20;

/** How long the page's payments are polled. */
const DRIVE_WITHIN_MS = 10 * 60 * 1000;

/** One drive as the page shows it. */
interface Run {
  readonly title: string;
  readonly exchanges: DriveExchange[];
  result: DriveResult | undefined;
}

const tokenRequest = compileCheck(TokenRequest);

/** Starts a platform; resolves once it listens. Rejects when the port is not available. */
export async function startScriptedPlatform(
  options: ScriptedPlatformOptions = {},
): Promise<ScriptedPlatform> {
  const host = options.host ?? '127.0.0.1';
  const client = {
    client_id: `client_${randomUUID()}`,
    api_key: `sandbox_${randomBytes(24).toString('base64url')}`,
    kind: 'biller' as const,
    ...options.client,
  };
  const clock = options.clock ?? MACHINE_CLOCK;
  let offsetMs = 0;
  const now = () => clock.now() + offsetMs;
  let tokens = new Map<string, ScriptedToken & { readonly expires_ms: number }>();
  let runs: Run[] = [];
  let allowance = BURST;
  let refilledAt = clock.elapsed();
  const stopping = new AbortController();

  const server = http.createServer({ requestTimeout: 30_000 }, (request, response) => {
    void serve(request, response);
  });

  async function serve(request: http.IncomingMessage, response: http.ServerResponse) {
    const body = await readBody(request);
    let answer: Answer;
    try {
      answer = await respond(request, body);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      answer = { status: error.status, headers: error.headers, body: { ...error.toBody() } };
    }
    const text =
      typeof answer.body === 'string' ? answer.body : JSON.stringify(answer.body ?? null);
    response.writeHead(answer.status, {
      'Content-Type': 'application/json; charset=utf-8',
      'Cache-Control': 'no-store',
      'X-Request-Id': randomUUID(),
      ...(answer.headers as Record<string, string>),
    });
    response.end(text);
  }

  async function respond(request: http.IncomingMessage, body: Buffer | undefined): Promise<Answer> {
    const path = (request.url ?? '').split('?')[0];
    if (path === platformRoutes.create_token.path) {
      if (request.method !== 'POST') {
        throw new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: 'POST' } });
      }
      return createToken(request.headers, body);
    }
    if (path === '/sandbox' && request.method === 'GET') return page();
    if (path === '/sandbox/tokens' && request.method === 'GET') {
      return { status: 200, body: { tokens: platform.tokens() } };
    }
    if (request.method === 'POST' && path?.startsWith('/sandbox/') === true) {
      if (isForeign(request.headers)) throw new Refusal('ORIGIN_NOT_ALLOWED');
      return act(path, body?.toString('utf8') ?? '', request.headers);
    }
    throw new Refusal('NOT_FOUND');
  }

  function createToken(headers: http.IncomingHttpHeaders, body: Buffer | undefined): Answer {
    const { 'x-client-id': client_id, 'x-api-key': api_key } = headers;
    if (client_id === undefined || api_key === undefined) throw new Refusal('UNAUTHORIZED');
    if (client_id !== client.client_id) throw new Refusal('NOT_FOUND');
    if (api_key !== client.api_key) throw new Refusal('UNAUTHORIZED');
    takeAllowance();
    const type = (headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase();
    if (type !== 'application/json') throw new Refusal('UNSUPPORTED_MEDIA_TYPE');
    if (body === undefined) throw new Refusal('PAYLOAD_TOO_LARGE');
    const json = readJson(body);
    const details = [...tokenRequest.problems(json, 'body')];
    if (details.length > 0 || !tokenRequest.holds(json)) {
      throw new Refusal('INVALID_REQUEST', { details });
    }
    const { external_identifiers } = json;
    if (
      client.kind === 'aggregator' &&
      external_identifiers !== undefined &&
      external_identifiers.biller_id === undefined
    ) {
      throw new Refusal('INVALID_REQUEST', {
        details: [{ path: 'body.external_identifiers.biller_id', problem: 'is required' }],
      });
    }
    const { account_id = '', biller_id = '' } = external_identifiers ?? {};
    if (isUnknown(account_id) || isUnknown(biller_id)) throw new Refusal('NOT_FOUND');
    const token = `dbt_${randomBytes(32).toString('base64url')}`;
    const expires_ms = now() + TOKEN_LIFE_MS;
    const expires_at = new Date(expires_ms).toISOString();
    tokens.set(token, {
      token_start: token.slice(0, 10),
      account_id: external_identifiers?.account_id,
      expires_at,
      expires_ms,
    });
    for (const oldest of tokens.keys()) {
      if (tokens.size <= MAX_TOKENS) break;
      tokens.delete(oldest);
    }
    return { status: 200, headers: { 'Token-Expires-At': expires_at }, body: { token } };
  }

  function takeAllowance(): void {
    const at = clock.elapsed();
    allowance = Math.min(BURST, allowance + ((at - refilledAt) / 1000) * RATE_PER_SECOND);
    refilledAt = at;
    if (allowance < 1) throw new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': '1' } });
    allowance -= 1;
  }

  function act(path: string, body: string, headers: http.IncomingHttpHeaders): Answer {
    const fromPage =
      !body.startsWith('{') &&
      (headers['content-type'] ?? '').startsWith('application/x-www-form-urlencoded');
    const fields = fromPage ? Object.fromEntries(new URLSearchParams(body)) : readObject(body);
    switch (path) {
      case '/sandbox/reset':
        platform.reset();
        break;
      case '/sandbox/clock': {
        const ms = Number(fields['advance_ms']);
        if (!Number.isSafeInteger(ms) || ms < 1) {
          throw new Refusal('INVALID_REQUEST', {
            details: [
              {
                path: 'body.advance_ms',
                problem: 'must be an integer of at least 1 (milliseconds)',
              },
            ],
          });
        }
        platform.advance(ms);
        break;
      }
      case '/sandbox/drive': {
        const { target, order } = readDrive(fields);
        void platform.drive(target, order);
        break;
      }
      default:
        throw new Refusal('NOT_FOUND');
    }
    return fromPage
      ? { status: 303, headers: { Location: '/sandbox' }, body: '' }
      : { status: 200, body: { done: true } };
  }

  function page(): Answer {
    const nonce = randomBytes(16).toString('base64');
    const running = runs.some((run) => run.result === undefined);
    const field = (name: string, label: string, value = '', type = 'text') =>
      html`<label
        >${label}
        <input name="${name}" type="${type}" value="${value}" size="40" autocomplete="off"
      /></label>`;
    const answer = htmlAnswer(
      'Sandbox platform',
      nonce,
      html` <h1>Sandbox platform</h1>
        <p>
          Tokens: POST ${platform.url}${platformRoutes.create_token.path} with X-Client-Id
          ${client.client_id} and X-Api-Key ${client.api_key}. The account_id "${UNKNOWN_ACCOUNT}"
          is not found. ${tokens.size} tokens issued.
        </p>
        <h2>Drive a payment against your partner server</h2>
        <form method="post" action="/sandbox/drive">
          ${field('base_url', 'Base URL', 'http://127.0.0.1:4100')}
          ${field('header', 'Key header', 'x-api-key')} ${field('key', 'Key', '', 'password')}
          <p>or OAuth:</p>
          ${field('token_url', 'Token URL')} ${field('client_id', 'client_id')}
          ${field('client_secret', 'client_secret', '', 'password')}
          ${field('biller_id', 'biller_id')} ${field('account_id', 'account_id')}
          ${field('amount_in_cents', 'amount_in_cents', '1250')}
          <button>Pay</button>
        </form>
        ${runs.toReversed().map(
          (run) =>
            html`<h2>${run.title}</h2>
              <p>
                ${run.result === undefined ? 'In progress …' : (run.result.status ?? run.result.problem ?? '')}
              </p>
              <table>
                <thead>
                  <tr>
                    <th>request</th>
                    <th>body</th>
                    <th>response</th>
                    <th>ms</th>
                    <th>meaning</th>
                  </tr>
                </thead>
                <tbody>
                  ${run.exchanges.map(
                    (exchange) =>
                      html`<tr>
                        <td>${exchange.method} ${exchange.url}</td>
                        <td>${exchange.body ?? ''}</td>
                        <td>${exchange.status ?? 'none'} ${exchange.reply}</td>
                        <td class="number">${exchange.milliseconds}</td>
                        <td>${exchange.says}</td>
                      </tr>`,
                  )}
                </tbody>
              </table>`,
        )}`,
    );
    // The page has no script, so it reloads while something is in progress.
    return running ? { ...answer, headers: { ...answer.headers, Refresh: '1' } } : answer;
  }

  const port = await listen(server, options.port ?? 0, host);
  let stopped: Promise<void> | undefined;
  const platform: ScriptedPlatform = {
    url: urlOf('http', host, port),
    client_id: client.client_id,
    api_key: client.api_key,
    tokens: () =>
      [...tokens.values()].map(({ token_start, account_id, expires_at }) => ({
        token_start,
        account_id,
        expires_at,
      })),
    isGood: (token) => (tokens.get(token)?.expires_ms ?? 0) > now(),
    advance: (ms) => {
      offsetMs += ms;
    },
    reset() {
      tokens = new Map();
      runs = [];
      offsetMs = 0;
    },
    async drive(target, order) {
      const run: Run = {
        title: `${formatCents(order.amount_in_cents)} to ${order.biller_id} / ${order.account_id}`,
        exchanges: [],
        result: undefined,
      };
      runs = [...runs, run].slice(-MAX_RUNS);
      run.result = await drivePayment(target, order, {
        shown: (exchange) => run.exchanges.push(exchange),
        withinMs: DRIVE_WITHIN_MS,
        clock,
        signal: stopping.signal,
      });
      return run.result;
    },
    stop() {
      stopped ??= new Promise((resolve) => {
        stopping.abort();
        server.close(() => resolve());
        server.closeAllConnections();
      });
      return stopped;
    },
  };
  return platform;
}

/** The drive requested by the page's form or by a program. */
function readDrive(fields: Readonly<Record<string, unknown>>) {
  const text = (name: string) => {
    const value = fields[name];
    return typeof value === 'string' || typeof value === 'number' ? String(value).trim() : '';
  };
  const details: { path: string; problem: string }[] = [];
  if (!/^https?:\/\//.test(text('base_url')) || !URL.canParse(text('base_url'))) {
    details.push({ path: 'body.base_url', problem: 'must be an http or https URL' });
  }
  for (const name of ['biller_id', 'account_id']) {
    if (text(name) === '') details.push({ path: `body.${name}`, problem: 'is required' });
  }
  const amount_in_cents = Number(text('amount_in_cents'));
  if (!(
    Number.isSafeInteger(amount_in_cents) &&
    amount_in_cents >= 1 &&
    amount_in_cents <= MAX_AMOUNT_IN_CENTS
  )) {
    details.push({ path: 'body.amount_in_cents', problem: 'must be an integer of at least 1' });
  }
  const oauth = text('token_url') !== '';
  if (oauth && !URL.canParse(text('token_url'))) {
    details.push({ path: 'body.token_url', problem: 'must be a URL' });
  }
  if (!oauth && (text('header') === '' || text('key') === '')) {
    details.push({
      path: 'body.key',
      problem: 'a key and its header, or a token_url, are required',
    });
  }
  if (details.length > 0) throw new Refusal('INVALID_REQUEST', { details });
  const target: DriveTarget = {
    base_url: text('base_url'),
    auth: oauth
      ? {
          method: 'oauth',
          token_url: text('token_url'),
          client_id: text('client_id'),
          client_secret: text('client_secret'),
        }
      : { method: 'key', header: text('header'), key: text('key') },
  };
  return {
    target,
    order: { biller_id: text('biller_id'), account_id: text('account_id'), amount_in_cents },
  };
}

function readJson(body: Buffer): Json {
  try {
    if (!isUtf8(body)) throw new JsonProblem('the text is not UTF-8');
    return parseJson(body.toString('utf8'));
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw new Refusal('INVALID_REQUEST', { details: [{ path: 'body', problem: error.problem }] });
  }
}

function readObject(body: string): Record<string, unknown> {
  const json = readJson(Buffer.from(body === '' ? '{}' : body));
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) {
    return json as Record<string, unknown>;
  }
  throw new Refusal('INVALID_REQUEST', { details: [{ path: 'body', problem: 'must be object' }] });
}
