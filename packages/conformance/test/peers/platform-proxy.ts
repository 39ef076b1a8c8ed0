/** The scripted platform behind a proxy that can change requests and answers, and can open the flow: every wrong platform is one. */
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { gzipSync } from 'node:zlib';
import { platformRoutes } from '@duebridge/contract';
import { request } from 'undici';
import type { Draft } from '../../src/check/target.ts';
import { MACHINE_CLOCK, pause, type Clock } from '../../src/clock.ts';
import { startScriptedPlatform, UNKNOWN_ACCOUNT } from '../../src/sandbox/platform.ts';
import { closeAll, listen, textOf } from '../listen.ts';

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

/** The header that makes the platform behind the proxy raise an internal error (T12). */
const FAULT_HEADER = 'x-test-fault';

/** A platform behind a proxy. */
export interface PlatformProxy {
  readonly url: string;
  readonly client_id: string;
  readonly api_key: string;
  readonly unknown_account_id: string;
  readonly stop: () => Promise<void>;
}

/** Starts the scripted platform behind a proxy that delays every response by this time. */
export async function openPlatformProxy(
  kind: 'biller' | 'aggregator',
  behaviour: ProxyBehaviour = {},
  { delay_ms = 0, clock = MACHINE_CLOCK }: { delay_ms?: number; clock?: Clock } = {},
): Promise<PlatformProxy> {
  const client = { client_id: 'client-of-the-judge', api_key: API_KEY, kind };
  const platform = await startScriptedPlatform({ client, clock });
  const server = http.createServer((incoming, response) => {
    void pass(incoming, response);
  });

  async function pass(incoming: http.IncomingMessage, response: http.ServerResponse) {
    const asked: ProxyRequest = {
      method: incoming.method ?? '',
      path: incoming.url ?? '',
      headers: headersOf(incoming.headers),
      body: await textOf(incoming),
    };
    const answer = behaviour.request?.(asked) ?? (await inside(asked));
    behaviour.answer?.(answer, asked);
    if (delay_ms > 0) await pause(clock, delay_ms);
    const isZipped = answer.headers['content-encoding'] === 'gzip';
    response
      .writeHead(answer.status, answer.headers)
      .end(isZipped ? gzipSync(answer.body) : answer.body);
  }

  async function inside(asked: ProxyRequest): Promise<ProxyAnswer> {
    if (asked.headers[FAULT_HEADER] !== undefined) {
      return json(500, { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' });
    }
    if (asked.path === platformRoutes.create_flow_session.path) {
      const token = (asked.headers['authorization'] ?? '').replace('Bearer ', '');
      return platform.isGood(token)
        ? json(200, { session: `session-${randomUUID()}`, session_id: randomUUID() })
        : json(401, { code: 'TOKEN_INVALID', message: 'The token is not valid' });
    }
    const {
      host: _host,
      'content-length': _length,
      'transfer-encoding': _chunks,
      connection: _kept,
      ...headers
    } = asked.headers;
    const answer = await request(platform.url + asked.path, {
      method: asked.method,
      headers,
      ...(asked.body === '' ? {} : { body: asked.body }),
    });
    const {
      'transfer-encoding': _chunked,
      connection: _also,
      ...given
    } = headersOf(answer.headers);
    return { status: answer.statusCode, headers: given, body: await answer.body.text() };
  }

  const port = await listen(server);
  return {
    url: `http://127.0.0.1:${port}`,
    client_id: client.client_id,
    api_key: client.api_key,
    unknown_account_id: UNKNOWN_ACCOUNT,
    async stop() {
      await closeAll(server);
      await platform.stop();
    },
  };
}

/** An answer with a JSON body. */
export function json(status: number, body: Record<string, unknown>): ProxyAnswer {
  return {
    status,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
}

function headersOf(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, Array.isArray(value) ? value.join(', ') : value]],
    ),
  );
}

/** The target file of a scripted platform: its token endpoint and flow, with small samples, so that hundreds can be judged. */
export function platformDraft(
  platform: {
    readonly url: string;
    readonly client_id: string;
    readonly api_key: string;
    readonly unknown_account_id: string;
  },
  kind: 'biller' | 'aggregator',
): Draft {
  const { url, client_id, api_key, unknown_account_id } = platform;
  return {
    base_url: url,
    client_id,
    api_key,
    kind,
    biller_id: 'judge',
    account_id: 'A-1',
    unknown_account_id,
    flow: true,
    internal_fault_headers: { [FAULT_HEADER]: '1' },
    token_sample: 20,
    burst: 80,
  };
}
