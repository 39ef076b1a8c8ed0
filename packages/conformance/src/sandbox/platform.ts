/**
 * The scripted platform: issues tokens like the platform does, for a partner's server under development. Everything is in memory and
 * nothing is real.
 */
import { isUtf8 } from 'node:buffer';
import { randomBytes, randomUUID } from 'node:crypto';
import http from 'node:http';
import {
  compileCheck,
  JsonProblem,
  parseJson,
  platformRoutes,
  Refusal,
  TokenRequest,
  type Json,
} from '@duebridge/contract';
import { MACHINE_CLOCK, type Clock } from '../clock.ts';
import type { Answer } from './behaviour.ts';
import { listen, mediaTypeOf, readBody, refusalAnswer, urlOf } from './listeners.ts';

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

/** A running scripted platform. */
export interface ScriptedPlatform {
  readonly url: string;
  readonly client_id: string;
  readonly api_key: string;
  /** True while the token opens the flow: it was issued here and has not expired (decision 8). */
  isGood(token: string): boolean;
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

/** Maximum number of tokens remembered; the oldest are dropped. */
const MAX_TOKENS = 10_000;

const tokenRequest = compileCheck(TokenRequest);

/** Starts a platform; resolves once it listens. Rejects when the port is not available. */
export async function startScriptedPlatform(
  options: ScriptedPlatformOptions = {},
): Promise<ScriptedPlatform> {
  const host = options.host ?? '127.0.0.1';
  const clock = options.clock ?? MACHINE_CLOCK;
  const client = {
    client_id: `client_${randomUUID()}`,
    api_key: `sandbox_${randomBytes(24).toString('base64url')}`,
    kind: 'biller' as const,
    ...options.client,
  };
  /** The instant at which each token expires. */
  const tokens = new Map<string, number>();
  let allowance = BURST;
  let refilledAt = clock.elapsed();

  const server = http.createServer({ requestTimeout: 30_000 }, (request, response) => {
    void serve(request, response);
  });

  async function serve(request: http.IncomingMessage, response: http.ServerResponse) {
    const body = await readBody(request);
    let answer: Answer;
    try {
      answer = respond(request, body);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      answer = refusalAnswer(error);
    }
    response.writeHead(answer.status, {
      'Content-Type': 'application/json; charset=utf-8',
      'Cache-Control': 'no-store',
      'X-Request-Id': randomUUID(),
      ...(answer.headers as Record<string, string>),
    });
    response.end(JSON.stringify(answer.body));
  }

  function respond(
    { url, method, headers }: http.IncomingMessage,
    body: Buffer | undefined,
  ): Answer {
    if ((url ?? '').split('?')[0] !== platformRoutes.create_token.path) {
      throw new Refusal('NOT_FOUND');
    }
    if (method !== 'POST') throw new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: 'POST' } });
    const { 'x-client-id': client_id, 'x-api-key': api_key } = headers;
    if (client_id === undefined || api_key === undefined) throw new Refusal('UNAUTHORIZED');
    if (client_id !== client.client_id) throw new Refusal('NOT_FOUND');
    if (api_key !== client.api_key) throw new Refusal('UNAUTHORIZED');
    takeAllowance();
    if (mediaTypeOf(headers) !== 'application/json') throw new Refusal('UNSUPPORTED_MEDIA_TYPE');
    if (body === undefined) throw new Refusal('PAYLOAD_TOO_LARGE');
    const { external_identifiers: ids } = readRequest(body);
    if (client.kind === 'aggregator' && ids !== undefined && ids.biller_id === undefined) {
      throw invalid('body.external_identifiers.biller_id', 'is required');
    }
    if (isUnknown(ids?.account_id ?? '') || isUnknown(ids?.biller_id ?? '')) {
      throw new Refusal('NOT_FOUND');
    }
    const token = `dbt_${randomBytes(32).toString('base64url')}`;
    const expires_ms = clock.now() + TOKEN_LIFE_MS;
    tokens.set(token, expires_ms);
    for (const oldest of tokens.keys()) {
      if (tokens.size <= MAX_TOKENS) break;
      tokens.delete(oldest);
    }
    const expires_at = new Date(expires_ms).toISOString();
    return { status: 200, headers: { 'Token-Expires-At': expires_at }, body: { token } };
  }

  function takeAllowance(): void {
    const at = clock.elapsed();
    allowance = Math.min(BURST, allowance + ((at - refilledAt) / 1000) * RATE_PER_SECOND);
    refilledAt = at;
    if (allowance < 1) throw new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': '1' } });
    allowance -= 1;
  }

  const port = await listen(server, options.port ?? 0, host);
  return {
    url: urlOf('http', host, port),
    client_id: client.client_id,
    api_key: client.api_key,
    isGood: (token) => (tokens.get(token) ?? 0) > clock.now(),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function readRequest(body: Buffer): TokenRequest {
  let json: Json;
  try {
    if (!isUtf8(body)) throw new JsonProblem('the text is not UTF-8');
    json = parseJson(body.toString('utf8'));
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw invalid('body', error.problem);
  }
  if (tokenRequest.holds(json)) return json;
  throw new Refusal('INVALID_REQUEST', { details: tokenRequest.problems(json, 'body') });
}

const invalid = (path: string, problem: string) =>
  new Refusal('INVALID_REQUEST', { details: [{ path, problem }] });
