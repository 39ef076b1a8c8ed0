/**
 * The judge's HTTP client. It sends one request, never throws because of the other side, and records what was sent and received
 * with every secret masked before storage.
 * The server under test may answer anything or nothing (F96-F102). Every wait has a deadline and every body a limit;
 * redirects are never followed; an unreadable answer is a reply without a status, not an exception.
 */
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { EnvHttpProxyAgent, request, type Dispatcher } from 'undici';
import { JsonProblem, OtherNumber, parseJson, type Json } from '@duebridge/contract';
import { deadline, type Clock } from '../clock.ts';
import { TargetProblem, type Secret } from './target.ts';

/**
 * Maximum wait for one whole answer, its connection included: five times what a slow server takes, to distinguish slow from dead. A hundred
 * TLS connections that are opened at once take more than three seconds on a busy machine, which may be the judge's own.
 */
export const REQUEST_TIMEOUT_MS = 15_000;

/** Maximum bytes read of one answer (decision 16). */
const MAX_ANSWER_BYTES = 262_144;

/** Maximum characters of one body kept for a report: enough to see the problem, few enough to mail. */
const MAX_KEPT_CHARACTERS = 4_000;

/** Maximum number of exchanges kept per run; a run needs a few hundred. */
const MAX_KEPT_EXCHANGES = 5_000;

/** Thrown when the server no longer answers; the runner stops the run. */
export class Silent extends Error {
  override readonly name = 'Silent';
}

/** One request and its result, safe to show: secrets are masked. */
export interface Exchange {
  readonly number: number;
  /** The check that sent it. */
  readonly check: string;
  readonly method: string;
  readonly url: string;
  readonly request_headers: Readonly<Record<string, string>>;
  readonly request_body: string;
  readonly sent_at: string;
  readonly duration_ms: number;
  /** Absent when no answer arrived. */
  readonly status?: number;
  readonly answer_headers: Readonly<Record<string, string>>;
  readonly answer_body: string;
  /** Why no answer came, for people. */
  readonly no_answer?: string;
  /** True when the answer contained a secret that the judge had sent. */
  readonly leaked: boolean;
  /** True for a call that the judge got, and answered as the check wanted. */
  readonly received?: true;
}

/** What was received, before masking. */
export interface Came {
  /** Undefined when no answer arrived, or it was not HTTP. */
  readonly status?: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** Why no answer came, for people. */
  readonly problem?: string;
  /** The code of the error that kept an answer away, such as ECONNREFUSED, or TIMEOUT. */
  readonly error?: string;
  /** True when the request has to be sent again. */
  readonly again?: boolean;
}

/** A reply as the checks see it. */
export interface Reply extends Came {
  readonly exchange: Exchange;
  /** The body read strictly; undefined when it is not JSON. */
  readonly json?: Json;
  /** What is wrong with the body as JSON; undefined when nothing is. */
  readonly json_problem?: string;
  /** When the request left and when its answer was read, in milliseconds since 1970. */
  readonly sent: number;
  readonly came: number;
}

/** The name under which pre-flight exchanges are recorded. */
export const PREFLIGHT = 'preflight';

/** Requests in a row that nobody answered, or a gateway did in the server's place, which may be an outage. */
const MOST_OUT = 6;

/** No answer, that of a gateway in the server's place, or that the server is too busy. */
export function isOut({ status, answer_headers, no_answer, received }: Exchange): boolean {
  if (received === true) return false;
  if (status === undefined) return no_answer !== ON_PURPOSE;
  if (status === 503 && answer_headers['retry-after'] !== undefined) return true;
  return [502, 503, 504].includes(status) && !/json/i.test(answer_headers['content-type'] ?? '');
}

/** One request. Header names and values are sent unchanged. */
export interface Outgoing {
  readonly method: string;
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly timeout_ms?: number;
  /** True to send it over its own connection, so that a balancer may choose another replica. */
  readonly fresh?: boolean;
  /** True for one of many requests meant to arrive together: its duration says nothing about the server. */
  readonly burst?: boolean;
  /** True for a call that was received instead of sent. */
  readonly received?: boolean;
  /** True to send the body in chunks, without Content-Length. */
  readonly chunked?: boolean;
  /** Closes the connection this long after the request was sent, and reads no answer. */
  readonly cut_ms?: number;
}

/** Fields in which an answer issues a secret. */
const GRANTED = /("(?:token|access_token|session|client_secret|api_key)"\s*:\s*)"[^"]{8,}"/g;

/** The transport shared by all contexts: one per run. */
export class Wire {
  readonly exchanges: Exchange[] = [];
  readonly #kept: Dispatcher;
  /** Makes a connection for each request. */
  readonly #fresh: Dispatcher;
  readonly #secrets: (Secret & { readonly spellings: readonly string[] })[] = [];
  readonly #clock: Clock;
  readonly #stop: AbortSignal;
  #count = 0;
  /** How many exchanges in a row came to nothing because the server was away. */
  #out = 0;
  /** The last request of the pre-flight that was answered: whether it is again tells an outage from a server that fails on others. */
  #probe: Outgoing | undefined;
  #isProbing = false;
  #isOutage = false;

  /** `ca_file`: PEM of an additional trusted authority. `stop` aborts everything in progress. */
  constructor(ca_file: string | undefined, clock: Clock, stop: AbortSignal) {
    this.#clock = clock;
    this.#stop = stop;
    const ca = ca_file === undefined ? undefined : readFileSync(ca_file, 'utf8');
    this.#kept = openAgent(ca);
    this.#fresh = openAgent(ca);
  }

  /** Replaces `secret` by its name from now on. Values too short to be secret are ignored. */
  hide(secret: Secret): void {
    if (secret.value.length >= 4 && !this.#secrets.some((known) => known.value === secret.value)) {
      const { value } = secret;
      const spellings = new Set([value, encodeURIComponent(value), formEncoded(value)]);
      this.#secrets.push({ ...secret, spellings: [...spellings] });
      // Longest first, so that replacing a secret inside another one cannot leave a part of the longer one behind.
      this.#secrets.sort((one, other) => other.value.length - one.value.length);
    }
  }

  /** The text safe to show: every known secret replaced by its name in angle marks, and no character that a terminal obeys. */
  mask(text: string): string {
    let masked = text;
    for (const { spellings, name } of this.#secrets) {
      for (const spelling of spellings) masked = masked.replaceAll(spelling, `‹${name}›`);
    }
    return visible(masked.replaceAll(GRANTED, '$1"‹GRANTED›"'));
  }

  /** Sends one request for the check named. Throws Silent when the server has stopped answering. */
  async send(check: string, out: Outgoing): Promise<Reply> {
    const { away } = this;
    if (away !== undefined) throw new Silent(away);
    const reply = await this.#attempt(check, out);
    if (isOut(reply.exchange)) {
      this.#out += 1;
      if (this.#out >= MOST_OUT) await this.#lookForOutage();
    } else if (reply.status !== undefined) {
      // A connection that the judge itself cut says nothing of the server.
      this.#forgive();
      if (check === PREFLIGHT) this.#probe = out;
    }
    return reply;
  }

  async #attempt(check: string, out: Outgoing): Promise<Reply> {
    this.#stop.throwIfAborted();
    for (let fresh = out.fresh === true; ; fresh = true) {
      const [sent, started] = [this.#clock.now(), this.#clock.elapsed()];
      const came = await this.#exchange(out, fresh);
      const reply = this.keep(check, out, came, sent, this.#clock.elapsed() - started);
      if (came.again !== true) return reply;
    }
  }

  /** After so many requests without an answer: asks again what the server has answered before. */
  async #lookForOutage(): Promise<void> {
    if (this.#probe === undefined || this.#isProbing || this.#isOutage) return;
    this.#isProbing = true;
    const { exchange } = await this.#attempt(PREFLIGHT, this.#probe);
    this.#isProbing = false;
    if (!isOut(exchange)) this.#forgive();
    // Another request may have been answered meanwhile.
    else if (this.#out >= MOST_OUT) this.#isOutage = true;
  }

  /** Records an exchange, including one made by other means than `send`. */
  keep(check: string, out: Outgoing, came: Came, sent: number, duration: number): Reply {
    this.#count += 1;
    const exchange: Exchange = {
      number: this.#count,
      check,
      method: out.method,
      url: this.mask(out.url),
      request_headers: this.#maskAll(out.headers ?? {}),
      request_body: clip(this.mask(out.body ?? '')),
      sent_at: new Date(sent).toISOString(),
      duration_ms: Math.round(duration),
      ...(came.status === undefined ? {} : { status: came.status }),
      answer_headers: this.#maskAll(came.headers),
      answer_body: clip(this.mask(came.text)),
      ...(came.problem === undefined ? {} : { no_answer: this.mask(came.problem) }),
      leaked: this.#secrets.some(
        ({ value, name }) => name !== 'ACCESS_TOKEN' && came.text.includes(value),
      ),
      ...(out.received === true ? { received: true } : {}),
    };
    if (this.exchanges.length < MAX_KEPT_EXCHANGES) this.exchanges.push(exchange);
    const read = came.status === undefined ? { json_problem: 'no answer' } : readJson(came.text);
    return { ...came, ...read, exchange, sent, came: sent + duration };
  }

  /** That the server stopped answering, whatever was asked, in a sentence: then what it did not answer says nothing about its rules. */
  get away(): string | undefined {
    return this.#isOutage
      ? `The server did not answer ${this.#out} requests in a row: see its log, and run again.`
      : undefined;
  }

  /** Forgets the unanswered requests, because the server answers. */
  #forgive(): void {
    this.#out = 0;
    this.#isOutage = false;
  }

  async close(): Promise<void> {
    await Promise.all([this.#kept.destroy(), this.#fresh.destroy()]);
  }

  async #exchange(out: Outgoing, fresh: boolean): Promise<Came> {
    const { timeout_ms = REQUEST_TIMEOUT_MS, body, cut_ms, method } = out;
    let hasAnswered = false;
    const late = deadline(this.#clock, timeout_ms);
    const cut = new AbortController();
    const ends = [late.signal, cut.signal, this.#stop];
    const isStream = out.chunked === true || cut_ms !== undefined;
    try {
      const answer = await request(out.url, {
        method,
        headers: {
          accept: 'application/json',
          // As the platform asks (decision 16).
          'accept-encoding': 'identity',
          'user-agent': 'duebridge-conform',
          ...(cut_ms !== undefined && { 'content-length': String(Buffer.byteLength(body ?? '')) }),
          ...out.headers,
        },
        ...(fresh && { reset: true }),
        ...(body !== undefined && {
          body: isStream
            ? sendThen(body, () => {
                if (cut_ms !== undefined) this.#clock.after(cut_ms, () => cut.abort());
              })
            : body,
        }),
        dispatcher: fresh ? this.#fresh : this.#kept,
        signal: AbortSignal.any(ends),
      });
      hasAnswered = true;
      if (cut_ms !== undefined) {
        answer.body.on('error', () => undefined).destroy();
        return nothing(ON_PURPOSE);
      }
      const headers = flatten(answer.headers);
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of answer.body) {
        const piece = chunk as Buffer;
        bytes += piece.length;
        if (bytes > MAX_ANSWER_BYTES) {
          answer.body.destroy();
          const most = `${MAX_ANSWER_BYTES / 1024} KiB`;
          return { ...nothing(`the response is larger than ${most}`), headers };
        }
        chunks.push(piece);
      }
      const encoding = headers['content-encoding'] ?? 'identity';
      if (encoding.toLowerCase() === 'identity') {
        return { status: answer.statusCode, headers, text: Buffer.concat(chunks).toString() };
      }
      return { ...nothing(`the body is in ${encoding}, which was not asked for`), headers };
    } catch (error) {
      if (this.#stop.aborted) throw this.#stop.reason;
      if (cut.signal.aborted) return nothing(ON_PURPOSE);
      if (late.signal.aborted) {
        const problem = `no complete response within ${timeout_ms / 1000} s`;
        return { ...nothing(problem), error: 'TIMEOUT' };
      }
      const code = errorCode(error);
      // A server may close a kept connection while a request is on its way, and a client sends such a request again (RFC 9110, 9.2.2).
      if (!fresh && !hasAnswered && CLOSED.includes(code)) {
        return { ...nothing(`no answer (${code}): sent again on a new connection`), again: true };
      }
      return { ...nothing(`no answer (${code})`), error: code };
    } finally {
      late.cancel();
    }
  }

  #maskAll(headers: Readonly<Record<string, string>>): Record<string, string> {
    return Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, clip(this.mask(value))]),
    );
  }
}

/**
 * The connections to servers, through HTTPS_PROXY and NO_PROXY as curl reads them (decision 95). Only https goes through a proxy, by
 * CONNECT, so that what is judged is the server; a server on this machine is always reached directly.
 */
function openAgent(ca: string | undefined): Dispatcher {
  const connect = { timeout: REQUEST_TIMEOUT_MS, ...(ca !== undefined && { ca }) };
  const exempt = process.env['no_proxy'] || process.env['NO_PROXY'] || '';
  try {
    return new EnvHttpProxyAgent({
      // Shorter than most servers' own idle timeout, so that few requests meet a connection that is being closed.
      keepAliveTimeout: 1_000,
      keepAliveMaxTimeout: 1_000,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect,
      requestTls: connect,
      proxyTls: { timeout: REQUEST_TIMEOUT_MS },
      httpProxy: '',
      noProxy: `localhost,127.0.0.1,::1,${exempt}`,
    });
  } catch {
    throw new TargetProblem('HTTPS_PROXY is not the URL of a proxy: fix it, or unset it.');
  }
}

/** Sends a body as a stream, and says when it was sent. */
function sendThen(body: string, sent: () => void): Readable {
  return Readable.from(
    (function* () {
      yield Buffer.from(body);
      sent();
    })(),
  );
}

/** Writes control characters, and those that reorder text, as escapes: a server may answer with any of them. */
export function visible(text: string): string {
  return text.replaceAll(
    /(?![\t\n\r])[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** A value as form-encoded, where a space is a plus. */
function formEncoded(value: string): string {
  return new URLSearchParams({ '': value }).toString().slice(1);
}

/** Why there is no answer to a request whose connection the judge itself closed. */
const ON_PURPOSE = 'the judge closed the connection on purpose before the response';

/** No answer, with the reason. */
export function nothing(problem: string): Came {
  return { headers: {}, text: '', problem };
}

/** A reply in brief, such as `200 {"status":…}` or `no answer: …`. */
export function tell(reply: Reply): string {
  if (reply.status === undefined) return `no answer: ${reply.exchange.no_answer ?? 'unknown'}`;
  const body = reply.exchange.answer_body.replaceAll(/\s+/g, ' ').trim();
  return `${reply.status} ${body.length > 160 ? `${body.slice(0, 160)}…` : body}`.trim();
}

/** True when the answer's status is 2xx. */
export function isSuccess(reply: Reply): boolean {
  return reply.status !== undefined && reply.status >= 200 && reply.status < 300;
}

/** True when the answer's status is 4xx. */
export function isRefusal(reply: Reply): boolean {
  return reply.status !== undefined && reply.status >= 400 && reply.status < 500;
}

/** True when the answer asks to wait, and says how long: a limit is reached, or the server is too busy. */
export function asksToWait({ status, headers }: Reply): boolean {
  return (status === 429 || status === 503) && headers['retry-after'] !== undefined;
}

/** True when the answer says that it is JSON and is. */
export function isJson(reply: Reply): boolean {
  const type = (reply.headers['content-type'] ?? '').toLowerCase();
  return reply.json !== undefined && /^application\/(?:[\w.+-]+\+)?json\b/.test(type);
}

/** The body as an object; undefined when it is anything else. */
export function asObject(json: Json | undefined): Readonly<Record<string, Json>> | undefined {
  return typeof json === 'object' &&
    json !== null &&
    !Array.isArray(json) &&
    !(json instanceof OtherNumber)
    ? (json as Readonly<Record<string, Json>>)
    : undefined;
}

/** A body as an object; undefined when it is not an object. */
export const parsed = (text: string) => asObject(readJson(text).json);

/** A JSON value as sent on the wire, shortened for a sentence. */
export function show(value: Json | undefined): string {
  if (value === undefined) return 'nothing';
  if (value instanceof OtherNumber) return value.source.slice(0, 60);
  const text = JSON.stringify(value);
  return text.length > 100 ? `${text.slice(0, 100)}…` : text;
}

function readJson(text: string): Pick<Reply, 'json' | 'json_problem'> {
  try {
    return { json: parseJson(text) };
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    return { json_problem: error.message };
  }
}

function flatten(headers: Readonly<Record<string, string | string[] | undefined>>) {
  const all = Object.entries(headers).map(([name, value]) => [name, [value].flat().join(', ')]);
  return Object.fromEntries(all) as Record<string, string>;
}

function clip(text: string): string {
  return text.length > MAX_KEPT_CHARACTERS
    ? `${text.slice(0, MAX_KEPT_CHARACTERS)}… (${text.length} characters)`
    : text;
}

/** The code of a transport error, such as ECONNREFUSED; PROXY_407 when a proxy opened no tunnel, which undici says in words alone. */
function errorCode(error: unknown): string {
  if (!(error instanceof Error)) return 'UNKNOWN';
  const [, status] = /^Proxy response \((\d+)\)/.exec(error.message) ?? [];
  if (status !== undefined) return `PROXY_${status}`;
  if ('code' in error && typeof error.code === 'string') return error.code;
  return errorCode(error instanceof AggregateError ? error.errors[0] : error.cause);
}

/** The connection ended before an answer began. */
const CLOSED: readonly string[] = ['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'];

/** A curl command that repeats an exchange. Secrets appear as shell variables, so that it can be pasted, mailed and kept. */
export function curl({ method, url, request_headers, request_body }: Exchange): string {
  // curl sets these itself.
  const headers = Object.entries(request_headers).filter(
    ([name]) => !/^(?:host|content-length)$/i.test(name),
  );
  return [
    `curl -i -X ${method}`,
    ...headers.map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(request_body === '' ? [] : [`--data-binary ${quote(request_body)}`]),
    quote(url),
  ].join(' ');
}

/** Quotes for a POSIX shell; `‹NAME›` becomes the variable of that name. */
function quote(text: string): string {
  const quoted = `'${text.replaceAll("'", `'\\''`)}'`;
  return quoted.replaceAll(/‹([A-Z_]+)›/g, `'"$$$1"'`).replaceAll(/^''|''$/g, '') || "''";
}
