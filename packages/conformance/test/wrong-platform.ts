/**
 * For the judge's own tests: the scripted platform behind a proxy that can change what passes, and
 * can open the flow; and a small platform that pays, right unless told otherwise.
 */
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { JsonProblem, parseJson, platformRoutes } from '@duebridge/contract';
import { request } from 'undici';
import type { Driven, Driver, MakeDriver } from '../src/check/driver.ts';
import { asObject } from '../src/check/http.ts';
import { startScriptedPlatform, UNKNOWN_ACCOUNT } from '../src/sandbox/platform.ts';
import type { Authentication } from '../src/check/target.ts';

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

/** What a wrong platform does at the proxy; each may change what it is given, in place. */
export interface ProxyBehaviour {
  /** Before the platform sees it; an answer given back is sent instead of the platform's. */
  readonly request?: (request: ProxyRequest) => ProxyAnswer | undefined;
  readonly answer?: (answer: ProxyAnswer, request: ProxyRequest) => void;
}

/** The header by which the platform behind the proxy is told to fail inside (T12). */
export const FAULT_HEADER = 'x-test-fault';

/** A platform behind a proxy. */
export interface PlatformProxy {
  readonly url: string;
  readonly client_id: string;
  readonly api_key: string;
  readonly unknown_account_id: string;
  readonly stop: () => Promise<void>;
}

/** Starts the scripted platform behind a proxy. */
export async function openPlatformProxy(
  kind: 'biller' | 'aggregator',
  behaviour: ProxyBehaviour = {},
): Promise<PlatformProxy> {
  const client = { client_id: 'client-of-the-judge', api_key: 'an-api-key-of-the-judge', kind };
  const platform = await startScriptedPlatform({ client });
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
    response.writeHead(answer.status, answer.headers).end(answer.body);
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
    const { host: _host, 'content-length': _length, connection: _kept, ...headers } = asked.headers;
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

  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve());
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    client_id: client.client_id,
    api_key: client.api_key,
    unknown_account_id: UNKNOWN_ACCOUNT,
    async stop() {
      server.closeAllConnections();
      server.close();
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

/** One way in which a platform pays wrongly. */
export type CallerFault =
  | 'no_batch'
  | 'new_id_on_retry'
  | 'new_bytes_on_retry'
  | 'polls_on'
  | 'forgets_the_end'
  | 'knows_two_words'
  | 'ignores_retry_after'
  | 'floods'
  | 'token_for_each_call'
  | 'key_in_address'
  | 'error_is_failure'
  | 'gives_up'
  | 'believes_status_alone'
  | 'mismatch_is_failure'
  | 'dollars'
  | 'amount_as_text'
  | 'adds_a_fee'
  | 'bearer_key'
  | 'text_body'
  | 'json_form'
  | 'no_scope'
  | 'not_found_is_failure'
  | 'conflict_is_accepted'
  | 'page_is_failure'
  | 'waits_forever'
  | 'poll_error_is_failure'
  | 'poll_error_stops'
  | 'unknown_word_is_success'
  | 'words_without_case'
  | 'follows_redirects'
  | 'redirect_is_failure'
  | 'retries_at_once'
  | 'gives_up_after_three'
  | 'polls_three_times'
  | 'ignores_retry_after_on_put';

/** Wait between two tries or two polls. */
const STEP_MS = 120;

/** Longest wait for one answer: far above what this machine needs, below the patience of the tests. */
const CALL_TIMEOUT_MS = 1_500;

/** The words that end a payment (PF4). */
const ENDS = ['succeeded', 'failed', 'canceled'];

/** Tries and polls of one payment; what goes on longer is left. */
const MAX_STEPS = 300;

/** Makes a small platform that pays: right without a fault. It stops by itself when `stop` aborts. */
export function smallPlatform(
  authentication: Authentication,
  fault: CallerFault | undefined,
  stop: AbortSignal,
): MakeDriver {
  return (url) => new SmallPlatform(url, authentication, fault, stop);
}

class SmallPlatform implements Driver {
  readonly #url: string;
  readonly #authentication: Authentication;
  readonly #fault: CallerFault | undefined;
  readonly #stop: AbortSignal;
  #token: Promise<string> | undefined;

  constructor(
    url: string,
    authentication: Authentication,
    fault: CallerFault | undefined,
    stop: AbortSignal,
  ) {
    this.#url = url;
    this.#authentication = authentication;
    this.#fault = fault;
    this.#stop = stop;
  }

  readonly at_once = 50;

  pay = async (amount_in_cents: number): Promise<Driven> => {
    const payment = { id: randomUUID(), amount_in_cents, status: 'processing' };
    void this.#drive(payment).catch(() => undefined);
    return { platform_payment_id: payment.id, status: async () => payment.status };
  };

  async #drive(payment: { id: string; amount_in_cents: number; status: string }): Promise<void> {
    const { id, amount_in_cents } = payment;
    const fault = this.#fault;
    const amount: Partial<Record<CallerFault, unknown>> = {
      dollars: amount_in_cents / 100,
      amount_as_text: String(amount_in_cents),
      adds_a_fee: amount_in_cents + 50,
    };
    const bytes = (attempt: number): string =>
      JSON.stringify({
        amount_in_cents: fault !== undefined && fault in amount ? amount[fault] : amount_in_cents,
        ...(fault === 'no_batch' ? {} : { platform_batch_id: 'batch-of-today' }),
        ...(fault === 'new_bytes_on_retry' ? { attempt } : {}),
      });
    for (let attempt = 0; attempt < MAX_STEPS; attempt += 1) {
      const other = fault === 'new_id_on_retry' && attempt > 0;
      const reply = await this.#call('PUT', other ? randomUUID() : id, bytes(attempt));
      if (reply?.record !== undefined) break;
      const { status } = reply ?? {};
      if (fault === 'conflict_is_accepted' && status === 409) break;
      const failed =
        fault === 'error_is_failure' ||
        (fault === 'not_found_is_failure' && status === 404) ||
        (fault === 'page_is_failure' && status === 200) ||
        (fault === 'redirect_is_failure' && Math.floor((status ?? 0) / 100) === 3);
      if (failed) {
        payment.status = 'failed';
        return;
      }
      if (fault === 'gives_up') return;
      if (fault === 'gives_up_after_three' && attempt === 2) return;
      const asked = fault === 'ignores_retry_after_on_put' ? undefined : reply?.retry_after_ms;
      await this.#wait(asked ?? (fault === 'retries_at_once' ? 1 : STEP_MS * 2));
    }
    for (let poll = 0; poll < MAX_STEPS; poll += 1) {
      if (fault === 'polls_three_times' && poll === 3) return;
      await this.#wait(fault === 'floods' ? 15 : STEP_MS);
      const reply = await this.#call('GET', id);
      if (reply?.retry_after_ms !== undefined && fault !== 'ignores_retry_after') {
        await this.#wait(reply.retry_after_ms);
      }
      const record = reply?.record;
      if (record === undefined && fault === 'poll_error_is_failure') {
        payment.status = 'failed';
        return;
      }
      if (record === undefined && fault === 'poll_error_stops') return;
      const told = record?.['status'];
      const status = typeof told === 'string' ? this.#understood(told) : undefined;
      if (record === undefined || status === undefined) continue;
      const same =
        record['platform_payment_id'] === id && record['amount_in_cents'] === amount_in_cents;
      if (!same && fault === 'mismatch_is_failure') payment.status = 'failed';
      if ((same && fault !== 'forgets_the_end') || fault === 'believes_status_alone')
        payment.status = status;
      if (fault !== 'polls_on') return;
    }
  }

  /** The end that a status word says; undefined when it says none. */
  #understood(word: string): string | undefined {
    if (word === 'canceled' && this.#fault === 'knows_two_words') return undefined;
    if (ENDS.includes(word)) return word;
    if (this.#fault === 'words_without_case' && ENDS.includes(word.toLowerCase())) {
      return word.toLowerCase();
    }
    return this.#fault === 'unknown_word_is_success' && word !== 'processing'
      ? 'succeeded'
      : undefined;
  }

  async #call(
    method: 'PUT' | 'GET',
    id: string,
    body?: string,
    again = false,
  ): Promise<
    | { status: number; record: ReturnType<typeof asObject>; retry_after_ms: number | undefined }
    | undefined
  > {
    const query =
      this.#fault === 'key_in_address' && this.#authentication.method === 'key'
        ? `?api_key=${this.#authentication.key}`
        : '';
    const held = this.#token;
    const headers = await this.#proof();
    try {
      const answer = await request(`${this.#url}/biller/judge/account/A-1/payment/${id}${query}`, {
        method,
        headers: {
          ...headers,
          'content-type': this.#fault === 'text_body' ? 'text/plain' : 'application/json',
        },
        ...(body === undefined ? {} : { body }),
        signal:
          this.#fault === 'waits_forever'
            ? this.#stop
            : AbortSignal.any([this.#stop, AbortSignal.timeout(CALL_TIMEOUT_MS)]),
      });
      const to = answer.headers['location'];
      if (this.#fault === 'follows_redirects' && typeof to === 'string') {
        await request(to, { method, headers, signal: this.#stop });
      }
      const text = await answer.body.text();
      if (answer.statusCode === 401 && !again && this.#authentication.method === 'oauth') {
        // Only who still holds the refused token throws it away; the others wait for the new one.
        if (this.#token === held || this.#fault === 'token_for_each_call') this.#token = undefined;
        return await this.#call(method, id, body, true);
      }
      const seconds = Number(answer.headers['retry-after'] ?? Number.NaN);
      return {
        status: answer.statusCode,
        record: answer.statusCode === 200 ? asObject(parseJson(text)) : undefined,
        retry_after_ms: Number.isFinite(seconds) ? seconds * 1_000 : undefined,
      };
    } catch (error) {
      if (this.#stop.aborted && !(error instanceof JsonProblem)) throw error;
      return undefined;
    }
  }

  async #proof(): Promise<Record<string, string>> {
    const authentication = this.#authentication;
    if (authentication.method === 'key') {
      const scheme = this.#fault === 'bearer_key' ? 'Bearer ' : '';
      return { [authentication.header]: scheme + authentication.key };
    }
    this.#token ??= this.#fetchToken(authentication);
    return { authorization: `Bearer ${await this.#token}` };
  }

  async #fetchToken(authentication: Extract<Authentication, { method: 'oauth' }>): Promise<string> {
    const form = {
      grant_type: 'client_credentials',
      client_id: authentication.client_id,
      client_secret: authentication.client_secret,
      ...(this.#fault === 'no_scope' ? {} : { scope: authentication.scope }),
    };
    const json = this.#fault === 'json_form';
    const answer = await request(`${this.#url}/oauth/token`, {
      method: 'POST',
      headers: { 'content-type': json ? 'application/json' : 'application/x-www-form-urlencoded' },
      body: json ? JSON.stringify(form) : new URLSearchParams(form).toString(),
      signal: this.#stop,
    });
    const token = asObject(parseJson(await answer.body.text()))?.['access_token'];
    return typeof token === 'string' ? token : '';
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, ms);
      this.#stop.addEventListener('abort', () => {
        clearTimeout(timer);
        reject(new Error('stopped'));
      });
    });
  }
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

async function textOf(incoming: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
