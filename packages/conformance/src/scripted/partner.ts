/**
 * The scripted partner: a complete partner in one process and in memory, correct unless configured otherwise.
 *
 * By default it conforms to the interface and every decision, so that the judge must pass it. A `behaviour`
 * makes it wrong in one way. It uses only node:http: it depends on the contract and on neither of the two servers that it
 * replaces. This file has its server and its connections; operations.ts answers, state.ts remembers.
 */
import http from 'node:http';
import https from 'node:https';
import type tls from 'node:tls';
import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { partnerRoutes, Refusal } from '@duebridge/contract';
import { MACHINE_CLOCK, type Clock } from '../clock.ts';
import { openAuthenticator } from './authenticator.ts';
import {
  together,
  type Answer,
  type Behaviour,
  type Call,
  type Reply,
  type ScriptedAuth,
  type Wire,
} from './behaviour.ts';
import {
  closeButHold,
  closeListener,
  listen,
  openStray,
  readBody,
  refusalAnswer,
  release,
  urlOf,
} from './listeners.ts';
import { respond, type Inside } from './operations.ts';
import { rawBytes, toCall, toSendable } from './requests.ts';
import { Book, type ScriptedAccount, type StoredPayment } from './state.ts';

export type { ScriptedPartner };
export * from './behaviour.ts';
export type { Book, ScriptedAccount, StoredPayment } from './state.ts';
export { SCENARIOS, type Scenario } from './scenarios.ts';
export { MACHINE_CLOCK, type Clock } from '../clock.ts';

/** Options of a scripted partner. */
export interface ScriptedPartnerOptions {
  /** Address to listen on; 127.0.0.1 unless given. */
  readonly host?: string;
  /** 0, the usual value, takes a free port. */
  readonly port?: number;
  /** Certificate and key, to speak https instead of plain http. */
  readonly tls?: tls.TlsOptions;
  readonly auth: ScriptedAuth;
  /** The accounts it knows. */
  readonly accounts: readonly ScriptedAccount[];
  /** How long a payment stays processing; 100 ms unless given. */
  readonly processing_ms?: number;
  /** One or more deviations from the correct behaviour. */
  readonly behaviour?: Behaviour | readonly Behaviour[];
  /** Its time source; the machine's clock unless given. */
  readonly clock?: Clock;
  /** Called after each call has been answered or taken over. */
  readonly seen?: (call: Call) => void;
}

/** Maximum number of exchanges kept for inspection: enough for hours of development, a few tens of megabytes. */
const MAX_EXCHANGES = 10_000;

/** Usual time from accepted to ended: long enough for a caller to see processing (RU1, ST1). */
const DEFAULT_PROCESSING_MS = 100;

/** Starts a partner; resolves once it listens. Rejects when the port is not available. */
export async function startScriptedPartner(
  options: ScriptedPartnerOptions,
): Promise<ScriptedPartner> {
  const { host = '127.0.0.1', port = 0 } = options;
  const stray = await openStray(host);
  const partner = new ScriptedPartner({ ...options, host }, stray);
  try {
    await partner.listen(port);
    return partner;
  } catch (error) {
    await stray.stop();
    throw error;
  }
}

/** A running scripted partner: keeps each exchange, and hands the connection to a fault that takes it over. */
class ScriptedPartner {
  /** Base URL to register, such as http://127.0.0.1:4100. */
  url = '';
  /** Every request since the start, oldest first. */
  readonly exchanges: Call[] = [];
  readonly #options: ScriptedPartnerOptions & { readonly host: string };
  readonly #stray: Awaited<ReturnType<typeof openStray>>;
  readonly #inside: Inside;
  readonly #server: http.Server;
  readonly #sockets = new Map<Socket, { readonly number: number; requests: number }>();
  readonly #byPayment = new Map<string | undefined, Call[]>();
  #port = 0;
  #connections = 0;
  #calls = 0;
  readonly #released = new AbortController();
  #stopped: Promise<void> | undefined;

  constructor(
    options: ScriptedPartnerOptions & { readonly host: string },
    stray: Awaited<ReturnType<typeof openStray>>,
  ) {
    this.#options = options;
    this.#stray = stray;
    const given = [options.behaviour ?? []].flat();
    const behaviour = together(() => given);
    const book = new Book({
      accounts: options.accounts,
      processing_ms: options.processing_ms ?? DEFAULT_PROCESSING_MS,
      clock: options.clock ?? MACHINE_CLOCK,
      ended: behaviour.ended,
    });
    this.#inside = { book, behaviour, authenticator: openAuthenticator(options.auth, book) };
    const handle: http.RequestListener = (request, response) => void this.#serve(request, response);
    this.#server =
      options.tls === undefined
        ? http.createServer({ requestTimeout: 30_000 }, handle)
        : https.createServer({ ...options.tls, requestTimeout: 30_000 }, handle);
    this.#server.on('connection', (socket: Socket) => {
      this.#connections += 1;
      this.#sockets.set(socket, { number: this.#connections, requests: 0 });
      socket.on('close', () => this.#sockets.delete(socket));
      // A peer that disconnects in the middle is expected here, not an error.
      socket.on('error', () => socket.destroy());
    });
    this.#server.on('clientError', (_error, socket) => {
      if (!socket.writable) return;
      socket.end(rawBytes(refusalAnswer(new Refusal('INVALID_REQUEST')), { Connection: 'close' }));
    });
  }

  async listen(port: number): Promise<void> {
    const { host, tls } = this.#options;
    this.#port = await listen(this.#server, port, host);
    this.url = urlOf(tls === undefined ? 'http' : 'https', host, this.#port);
  }

  /** The OAuth token endpoint (OA1); used in OAuth mode only. */
  get token_url(): string {
    return this.url + partnerRoutes.access_token.path;
  }

  /** Another host, to which some scenarios redirect. */
  get stray_url(): string {
    return this.#stray.url;
  }

  /** Paths of the requests that reached that other host, oldest first: a correct caller sends none. */
  strayPaths(): readonly string[] {
    return this.#stray.paths;
  }

  /** Every payment ever stored, oldest first. */
  payments(): readonly Readonly<StoredPayment>[] {
    this.#inside.book.settle();
    return this.#inside.book.payments();
  }

  /** The exchanges about one payment. */
  exchangesOf(platform_payment_id: string): readonly Call[] {
    return this.#byPayment.get(platform_payment_id) ?? [];
  }

  /** Posts a payment by hand if it is still processing. */
  settle(platform_payment_id: string): void {
    const { book } = this.#inside;
    const payment = book.find(platform_payment_id);
    if (payment !== undefined) book.end(payment, { status: 'succeeded', after_ms: 0 });
  }

  /** The partner's clock: milliseconds since 1970. */
  now(): number {
    return this.#inside.book.now();
  }

  /** Refuses connections, and ends those that are open, until the returned function is called. */
  async refuseConnections(): Promise<() => Promise<void>> {
    const { host } = this.#options;
    const closed = closeButHold(this.#server, this.#port, host, this.#stray.port);
    this.#disconnect();
    const holder = await closed;
    return async () => {
      await release(holder);
      const isOpen = this.#stopped !== undefined || this.#server.listening;
      if (!isOpen) await listen(this.#server, this.#port, host);
    };
  }

  /** Ends all connections and closes the port. Calling it twice is harmless. */
  stop(): Promise<void> {
    this.#stopped ??= (async () => {
      this.#released.abort();
      const closed = closeListener(this.#server);
      this.#disconnect();
      await Promise.all([closed, this.#stray.stop()]);
    })();
    return this.#stopped;
  }

  #disconnect(): void {
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => {
      // After a whole answer nothing is held, and an abort costs a stack trace for each request.
      if (!response.writableFinished) gone.abort();
    });
    const released = AbortSignal.any([gone.signal, this.#released.signal]);
    const body = await readBody(request);
    const connection = this.#sockets.get(request.socket) ?? { number: 0, requests: 0 };
    const { call, problem } = toCall(request, {
      number: (this.#calls += 1),
      connection: connection.number,
      earlier: connection.requests,
      text: body?.toString('utf8') ?? '',
      released,
      at_ms: this.#inside.book.now(),
    });
    connection.requests += 1;
    this.#keep(call);
    const { book, behaviour } = this.#inside;
    const requestId = request.headers['x-request-id'];
    const fixed = {
      'X-Request-Id': typeof requestId === 'string' ? requestId : randomUUID(),
      'Cache-Control': 'no-store',
      Date: new Date(book.now()).toUTCString(),
    };
    const send = (answer: Answer): void => {
      if (response.headersSent || response.destroyed) return;
      const { status, headers, body: bytes } = toSendable(answer);
      call.answer = { status, body: bytes.toString() };
      response.writeHead(status, { ...fixed, ...headers });
      response.end(bytes);
    };
    let reply: Reply = await respond(this.#inside, call, body, problem).catch(asRefusal);
    const answer =
      typeof reply === 'function' ? refusalAnswer(new Refusal('SERVICE_UNAVAILABLE')) : reply;
    if (typeof reply !== 'function') reply = (await behaviour.answer(call, reply, book)) ?? reply;
    if (typeof reply !== 'function') send(reply);
    this.#options.seen?.(call);
    if (typeof reply !== 'function') return;
    const { socket } = request;
    const bytes: Wire['bytes'] = (given) => rawBytes(given, fixed);
    await reply({ socket, response, answer, released, send, bytes });
    if (response.writableEnded || socket.destroyed) return;
    const close = () => socket.destroy();
    if (released.aborted) close();
    else released.addEventListener('abort', close, { once: true });
  }

  #keep(call: Call): void {
    this.exchanges.push(call);
    const { platform_payment_id: id } = call.params;
    this.#byPayment.set(id, [...(this.#byPayment.get(id) ?? []), call]);
    if (this.exchanges.length > MAX_EXCHANGES) this.exchanges.shift();
  }
}

function asRefusal(error: unknown): Answer {
  if (!(error instanceof Refusal)) throw error;
  return refusalAnswer(error);
}
