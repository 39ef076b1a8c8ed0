/** A right platform in memory, behind a proxy that can change requests and answers: every wrong platform is one. */
import { randomBytes, randomUUID } from 'node:crypto';
import http from 'node:http';
import { text } from 'node:stream/consumers';
import {
  compileCheck,
  invalidField,
  JsonProblem,
  parseJson,
  platformRoutes,
  Refusal,
  TokenRequest,
} from '@duebridge/contract';
import type { Draft } from '../../src/check/target.ts';
import { MACHINE_CLOCK, pause, type Clock } from '../../src/clock.ts';
import { closeAll, listen } from '../../src/scripted/listeners.ts';

/** An account_id that the platform cannot find (ER1). */
const UNKNOWN_ACCOUNT = 'unknown';

/** The key of the client with which the tests request tokens. */
export const API_KEY = 'an-api-key-of-the-judge';

/** A request on its way through the proxy. */
export interface ProxyRequest {
  method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  body: string;
}

/** An answer on its way back. */
export interface ProxyAnswer {
  status: number;
  readonly headers: Record<string, string>;
  body: string;
}

/** What a wrong platform does at the proxy; each hook may change its argument in place. */
export interface ProxyBehaviour {
  /** Before the platform sees it; a returned response is sent instead of the platform's. */
  readonly request?: (request: ProxyRequest) => ProxyAnswer | undefined | void;
  readonly answer?: (answer: ProxyAnswer, request: ProxyRequest) => void;
}

/** The header that makes the platform behind the proxy raise an internal error (T20). */
const FAULT_HEADER = 'x-test-fault';

/** A platform behind a proxy. */
export type PlatformProxy = Awaited<ReturnType<typeof openPlatformProxy>>;

/** Largest body (decision 16), and tokens per second and in one burst. */
const MAX_BODY_BYTES = 64 * 1024;
const RATE_PER_SECOND = 25;
const BURST = 50;

const tokenRequest = compileCheck(TokenRequest);

/** A right platform in memory: it issues tokens as the interface and the decisions say. */
function scriptedPlatform(client_id: string, kind: 'biller' | 'aggregator', clock: Clock) {
  let allowance = BURST;
  let refilledAt = clock.elapsed();
  const takeAllowance = (): void => {
    const at = clock.elapsed();
    allowance = Math.min(BURST, allowance + ((at - refilledAt) / 1000) * RATE_PER_SECOND);
    refilledAt = at;
    if (allowance < 1) throw new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': '1' } });
    allowance -= 1;
  };
  const identify = (headers: ProxyRequest['headers']): void => {
    const { 'x-client-id': client, 'x-api-key': key } = headers;
    if (client === undefined || key === undefined) throw new Refusal('UNAUTHORIZED');
    if (client !== client_id) throw new Refusal('NOT_FOUND');
    if (key !== API_KEY) throw new Refusal('UNAUTHORIZED');
  };
  const read = (body: string): TokenRequest => {
    if (Buffer.byteLength(body) > MAX_BODY_BYTES) throw new Refusal('PAYLOAD_TOO_LARGE');
    try {
      const json = parseJson(body);
      if (tokenRequest.holds(json)) return json;
      throw new Refusal('INVALID_REQUEST', { details: tokenRequest.problems(json, 'body') });
    } catch (error) {
      if (error instanceof JsonProblem) throw invalidField('body', error.message);
      throw error;
    }
  };
  const issue = ({ method, path, headers, body }: ProxyRequest): ProxyAnswer => {
    if (path.split('?')[0] !== platformRoutes.create_token.path) throw new Refusal('NOT_FOUND');
    if (method !== 'POST') throw new Refusal('METHOD_NOT_ALLOWED', { headers: { Allow: 'POST' } });
    identify(headers);
    takeAllowance();
    const type = (headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase();
    if (type !== 'application/json') throw new Refusal('UNSUPPORTED_MEDIA_TYPE');
    const { external_identifiers: ids } = read(body);
    if (kind === 'aggregator' && ids !== undefined && ids.biller_id === undefined) {
      throw invalidField('body.external_identifiers.biller_id', 'is required');
    }
    const asked = [ids?.account_id, ids?.biller_id];
    if (asked.some((id) => id === UNKNOWN_ACCOUNT || id?.startsWith('no-such-') === true)) {
      throw new Refusal('NOT_FOUND');
    }
    const token = `dbt_${randomBytes(32).toString('base64url')}`;
    const expires_at = new Date(clock.now() + 30 * 60_000).toISOString();
    return json(200, { token }, { 'token-expires-at': expires_at });
  };
  return (asked: ProxyRequest): ProxyAnswer => {
    if (asked.headers[FAULT_HEADER] !== undefined) {
      return json(500, { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' });
    }
    try {
      return issue(asked);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const headers = Object.entries(error.headers).map(([name, one]) => [name.toLowerCase(), one]);
      return json(error.status, { ...error.toBody() }, Object.fromEntries(headers));
    }
  };
}

/** Starts the scripted platform behind a proxy that delays every response by this time. */
export async function openPlatformProxy(
  kind: 'biller' | 'aggregator',
  behaviour: ProxyBehaviour = {},
  { delay_ms = 0, clock = MACHINE_CLOCK }: { delay_ms?: number; clock?: Clock } = {},
) {
  const client_id = 'client-of-the-judge';
  const platform = scriptedPlatform(client_id, kind, clock);
  const server = http.createServer((incoming, response) => {
    void pass(incoming, response);
  });

  async function pass(incoming: http.IncomingMessage, response: http.ServerResponse) {
    const headers = Object.entries(incoming.headers).map(([name, one]) => [name, String(one)]);
    const asked: ProxyRequest = {
      method: incoming.method ?? '',
      path: incoming.url ?? '',
      headers: Object.fromEntries(headers),
      body: await text(incoming),
    };
    const answer = behaviour.request?.(asked) ?? platform(asked);
    behaviour.answer?.(answer, asked);
    if (delay_ms > 0) await pause(clock, delay_ms);
    response.writeHead(answer.status, answer.headers).end(answer.body);
  }

  const port = await listen(server);
  return {
    url: `http://127.0.0.1:${port}`,
    client_id,
    api_key: API_KEY,
    stop: () => closeAll(server),
  };
}

/** An answer with a JSON body. */
export const json = (
  status: number,
  body: Record<string, unknown>,
  headers: Readonly<Record<string, string>> = {},
): ProxyAnswer => ({
  status,
  headers: { 'content-type': 'application/json', 'x-request-id': randomUUID(), ...headers },
  body: JSON.stringify(body),
});

/** The target file of a scripted platform: its token endpoint, with small samples, so that hundreds can be judged. */
export function platformDraft(platform: PlatformProxy, kind: 'biller' | 'aggregator'): Draft {
  return {
    base_url: platform.url,
    client_id: platform.client_id,
    api_key: API_KEY,
    kind,
    biller_id: 'judge',
    account_id: 'A-1',
    unknown_account_id: UNKNOWN_ACCOUNT,
    internal_fault_headers: { [FAULT_HEADER]: '1' },
    token_sample: 20,
    burst: 80,
  };
}
