/**
 * One HTTP call to a partner, with the limits needed against a hostile or broken peer (F03-F06, F19-F26, F40-F48).
 *
 * enters: a method, a URL, headers and perhaps a body. leaves: a reply that was read completely and parsed strictly, or the reason
 *         why there is none.
 * holds:  no redirect is followed, one deadline covers everything from the name lookup to the last byte, answers are cut at
 *         256 KiB, certificates are always verified, and private addresses are not connected to unless admitted. It never throws.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { JsonProblem, parseJson, type Json, type PartnerConnection } from '@duebridge/contract';
import { openNameLookup } from '@duebridge/runtime';
import { Pool, ProxyAgent, type Dispatcher } from 'undici';
import { guardedLookup, isPublicAddress, literalAddress } from './address-guard.ts';

/** Longest answer read (decision 16); a payment record needs less than one kilobyte. */
const MAX_REPLY_BYTES = 256 * 1024;
/** Longest header block read: what common servers send at most; undici refuses more. */
const MAX_HEADER_BYTES = 16 * 1024;
/** A peer that does not complete TCP and TLS in this time counts as unreachable. */
const CONNECT_TIMEOUT_MS = 3_000;
/** A proxy that does not open a tunnel in this time counts as unreachable. */
const PROXY_TIMEOUT_MS = 10_000;
/** rejectUnauthorized stands here so that no environment variable can switch verification off (F47). */
const TLS = {
  timeout: CONNECT_TIMEOUT_MS,
  rejectUnauthorized: true,
  minVersion: 'TLSv1.2',
} as const;
/** An idle connection is closed after this, below the 5 s that Node servers keep one, so that few are closed under a request (F06). */
const KEEP_ALIVE_MS = 4_000;

/** The answer, whatever its status. */
export interface Reply {
  readonly kind: 'reply';
  readonly status: number;
  /** The body, when it was JSON by content type and by strict parsing. */
  readonly json: Json | undefined;
  /** Why there is no `json`: the first thing that was wrong with the body. */
  readonly problem: 'content_type' | 'encoding' | 'json' | undefined;
  /** The body as text, as evidence: its first 4,000 bytes, of an answer that is no 200 with JSON; else empty. Never logged. */
  readonly raw?: string;
  /** The one Retry-After header as it came; undefined when there is none or more than one. */
  readonly retryAfter: string | undefined;
  /** True when the answer says that it applied `Prefer: wait` (decision 24). */
  readonly waited: boolean;
}

/** No usable answer. For a PUT it says nothing about whether the payment was made (decision 21). */
export interface NoReply {
  readonly kind: 'no_reply';
  readonly reason:
    | 'timeout'
    | 'stopped' // by our own stop
    | 'connection' // refused, reset, no route, closed in the middle
    | 'name' // did not resolve
    | 'address' // resolves to an address that may not be called
    | 'certificate' // TLS failed: expired, another host's, unknown authority, too old
    | 'protocol' // not HTTP as the standard has it
    | 'too_large';
}

/** What a call gave. */
export type Exchange = Reply | NoReply;

/** One call. */
export interface Call {
  readonly method: 'GET' | 'PUT' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Everything together may take this long, in milliseconds (F40: timeouts between bytes never fire for a slow drip). */
  readonly deadlineMs: number;
  /** Ends the call early: the worker stops or lost its lease. */
  readonly signal?: AbortSignal | undefined;
}

/** Keep-alive connections to one origin. */
export type Peer = ReturnType<typeof openPeer>;

/**
 * Opens a pool of at most `connections` to the origin of a URL; nothing is connected before the first call. Through a proxy the name of
 * the origin is resolved by the proxy; the proxy's own address is guarded like every other.
 */
export function openPeer(
  origin: string,
  options: {
    readonly connections: number;
    readonly allowPrivateAddresses: boolean;
    readonly connection?: PartnerConnection;
  },
) {
  const { connections, allowPrivateAddresses, connection = {} } = options;
  const { certificate: cert, private_key: key, authority: ca, proxy_url: uri } = connection;
  const tls = {
    ...TLS,
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(ca === undefined ? {} : { ca }),
  };
  const limits = {
    connections,
    pipelining: 1,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    maxResponseSize: MAX_REPLY_BYTES,
    // Only our deadline applies: undici's own timers would end a waiting read or miss a slow drip.
    headersTimeout: 0,
    bodyTimeout: 0,
  };
  // One for each peer: a partner whose DNS is silent delays no other.
  const found = openNameLookup();
  const lookup = allowPrivateAddresses ? found : guardedLookup(found);
  // An address is never looked up, so the lookup's guard does not see it.
  const literal = literalAddress(new URL(uri ?? origin).hostname);
  const isRefused = !allowPrivateAddresses && literal !== undefined && !isPublicAddress(literal);
  const pool =
    uri === undefined
      ? new Pool(origin, { ...limits, connect: { ...tls, lookup } })
      : new ProxyAgent({
          ...limits,
          uri,
          proxyTunnel: true,
          proxyTls: { ...TLS, lookup },
          requestTls: { ...tls, servername: new URL(origin).hostname },
          clientFactory: (proxy, given) =>
            new Pool(proxy, { ...(given as Pool.Options), headersTimeout: PROXY_TIMEOUT_MS }),
        });
  let isClosed = false;
  return {
    async exchange(call: Call): Promise<Exchange> {
      if (isRefused) return noReply('address');
      if (isClosed || call.signal?.aborted === true) return noReply('stopped');
      const { method, path, body = null } = call;
      return new Promise((resolve) => {
        const handler = new CallHandler(call, resolve);
        try {
          pool.dispatch({ origin, method, path, headers: headersOf(call), body }, handler);
        } catch (error) {
          handler.onResponseError(undefined, error);
        }
      });
    },
    /** Lets running calls end and closes the connections; later calls return `stopped`. */
    close(): Promise<void> {
      isClosed = true;
      return pool.close().catch(() => pool.destroy());
    },
  };
}

/**
 * Collects the answer to one call. undici calls these methods directly: its promise interface wraps each answer in a stream and an
 * abort signal, which cost as much CPU time as sending the request.
 */
class CallHandler implements Dispatcher.DispatchHandler {
  readonly #resolve: (exchange: Exchange) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #timer: NodeJS.Timeout;
  #controller: Dispatcher.DispatchController | undefined;
  #isDone = false;
  #status = 0;
  #headers: IncomingHttpHeaders = {};
  #chunks: Uint8Array[] = [];
  #length = 0;

  constructor(call: Call, resolve: (exchange: Exchange) => void) {
    this.#resolve = resolve;
    this.#signal = call.signal;
    this.#timer = setTimeout(CallHandler.#timeOut, call.deadlineMs, this);
    if (call.signal !== undefined) callsUnder(call.signal).add(this);
  }

  static #timeOut(this: void, handler: CallHandler): void {
    handler.end('timeout');
  }

  /** Ends the call at once, even while it waits for a connection; it is then not sent. */
  end(reason: 'timeout' | 'stopped'): void {
    this.#finish(noReply(reason));
    this.#controller?.abort(new Error(reason));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isDone) controller.abort(new Error('ended before it was sent'));
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    // 1xx answers come before the final one.
    if (status < 200) return;
    this.#status = status;
    this.#headers = headers;
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Uint8Array): void {
    this.#length += chunk.length;
    // undici counts too, but do not depend on what a later version counts.
    if (this.#length > MAX_REPLY_BYTES) throw new TooLarge();
    this.#chunks.push(chunk);
  }

  onResponseEnd(): void {
    if (this.#isDone) return;
    const [only] = this.#chunks;
    const bytes =
      this.#chunks.length === 1 && only !== undefined
        ? only
        : Buffer.concat(this.#chunks, this.#length);
    this.#finish(read(this.#status, this.#headers, bytes));
  }

  onResponseError(_: unknown, error: unknown): void {
    this.#finish(noReply(reasonOf(error)));
  }

  #finish(exchange: Exchange): void {
    if (this.#isDone) return;
    this.#isDone = true;
    clearTimeout(this.#timer);
    if (this.#signal !== undefined) callsUnder(this.#signal).delete(this);
    this.#resolve(exchange);
  }
}

/** Calls under way by the signal that ends them: one listener for all, because adding one to a signal takes longer the more it has. */
const underSignal = new WeakMap<AbortSignal, Set<CallHandler>>();

function callsUnder(signal: AbortSignal): Set<CallHandler> {
  const known = underSignal.get(signal);
  if (known !== undefined) return known;
  const calls = new Set<CallHandler>();
  underSignal.set(signal, calls);
  const stop = (): void => {
    for (const call of calls) call.end('stopped');
  };
  signal.addEventListener('abort', stop, { once: true });
  return calls;
}

/** Identity: a small body must not become a large one here (F40). No-store: a cache must not answer for the partner (F37). */
const STANDING_HEADERS = Object.entries({
  accept: 'application/json',
  'accept-encoding': 'identity',
  'cache-control': 'no-store',
  'user-agent': 'duebridge',
}).flat();

/** All headers of a call as undici takes them fastest: names and values in turn. */
function headersOf({ headers }: Call): string[] {
  const all = [...STANDING_HEADERS];
  for (const name of Object.keys(headers)) all.push(name, headers[name] ?? '');
  return all;
}

const PLAIN_JSON = /^application\/json\s*(;\s*charset="?utf-8"?\s*)?$/i;

/** The answer from its parts. Pure. */
function read(status: number, headers: IncomingHttpHeaders, bytes: Uint8Array): Reply {
  const applied = single(headers['preference-applied']);
  const replyOf = (problem: Reply['problem'], json?: Json): Reply => ({
    kind: 'reply',
    status,
    json,
    problem,
    raw:
      problem === 'encoding' || (problem === undefined && status === 200)
        ? ''
        : looseUtf8.decode(bytes.subarray(0, MAX_RAW_BYTES)),
    retryAfter: single(headers['retry-after']),
    waited: applied !== undefined && /(^|[\s,;])wait([\s,;=]|$)/i.test(applied),
  });
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && (single(encoding) ?? '').toLowerCase() !== 'identity')
    return replyOf('encoding');
  const type = single(headers['content-type']) ?? '';
  if (type !== 'application/json' && !PLAIN_JSON.test(type)) return replyOf('content_type');
  try {
    return replyOf(undefined, parseJson(strictUtf8.decode(bytes), { unstorable: 'replace' }));
  } catch (error) {
    if (!(error instanceof JsonProblem || error instanceof TypeError)) throw error;
    return replyOf('json');
  }
}

/** Keeps a byte order mark, which the parser then refuses (F24); throws TypeError on bytes that are not UTF-8. */
const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
/** For evidence: whatever is no UTF-8 becomes a replacement character. */
const looseUtf8 = new TextDecoder('utf-8');
/** Bytes of a body that evidence is taken from. */
const MAX_RAW_BYTES = 4_000;

class TooLarge extends Error {
  readonly code = 'UND_ERR_RES_EXCEEDED_MAX_SIZE';
}

function single(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? header : undefined;
}

function noReply(reason: NoReply['reason']): NoReply {
  return { kind: 'no_reply', reason };
}

/** Classifies the errors of undici, Node and OpenSSL; any other error is a failed connection. */
function reasonOf(error: unknown): NoReply['reason'] {
  const code = codeOf(error);
  switch (code) {
    case 'UND_ERR_RES_EXCEEDED_MAX_SIZE':
      return 'too_large';
    case 'UND_ERR_HEADERS_OVERFLOW':
    case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH':
      return 'protocol';
    case 'UND_ERR_CONNECT_TIMEOUT':
    case 'ETIMEDOUT':
      return 'timeout';
    case 'UND_ERR_CLOSED':
    case 'UND_ERR_DESTROYED':
      return 'stopped';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
    case 'EAI_FAIL':
      return 'name';
    case 'ADDRESS_REFUSED':
      return 'address';
    case 'EPROTO':
      return 'certificate';
    default:
      if (code.startsWith('HPE_')) return 'protocol';
      return TLS_TROUBLE.test(code) ? 'certificate' : 'connection';
  }
}

/** Node names verification failures after OpenSSL's constants, the rest ERR_TLS_ and ERR_SSL_. */
const TLS_TROUBLE =
  /^(ERR_TLS_|ERR_SSL_|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO_|CRL_|INVALID_CA|HOSTNAME_)/;

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return '';
  if ('code' in error && typeof error.code === 'string' && error.code !== 'UND_ERR_SOCKET')
    return error.code;
  // Several addresses were tried and all failed, or undici wrapped the socket's own error.
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  return error.cause === undefined ? '' : codeOf(error.cause);
}
