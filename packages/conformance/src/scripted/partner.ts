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
  type Wire,
  type ScriptedAuth,
} from './behaviour.ts';
import type { Pem } from './certificate.ts';
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
import { bodyText, rawBytes, toCall, toSendable } from './requests.ts';
import { Book, type Posting, type ScriptedAccount, type StoredPayment } from './state.ts';

export * from './behaviour.ts';
export type { Book, Posting, ScriptedAccount, StoredPayment } from './state.ts';
export { SCENARIOS, type Scenario } from './scenarios.ts';
export { MACHINE_CLOCK, type Clock } from '../clock.ts';

/** A running scripted partner. */
export type ScriptedPartner = Awaited<ReturnType<typeof startScriptedPartner>>;

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
  /** Its time source; the machine's clock unless given. `advance` adds to it. */
  readonly clock?: Clock;
  /** Called after each call has been answered or taken over. */
  readonly seen?: (call: Call) => void;
}

/** Maximum number of exchanges kept for inspection: enough for hours of development, a few tens of megabytes. */
const MAX_EXCHANGES = 10_000;

/** Usual time from accepted to ended: long enough for a caller to see processing (RU1, ST1). */
const DEFAULT_PROCESSING_MS = 100;

/** Starts a partner; resolves once it listens. Rejects when the port is not available. */
export async function startScriptedPartner(options: ScriptedPartnerOptions) {
  const host = options.host ?? '127.0.0.1';
  const clock = options.clock ?? MACHINE_CLOCK;
  const given = [options.behaviour ?? []].flat();
  const behaviour = together(() => given);
  const stray = await openStray(host);
  const book = new Book({
    accounts: options.accounts,
    processing_ms: options.processing_ms ?? DEFAULT_PROCESSING_MS,
    clock,
    ended: behaviour.ended,
  });
  const authenticator = openAuthenticator(options.auth, book);
  const desk = new Desk({ book, behaviour, authenticator }, options);
  const { server } = desk;
  const port = await listen(server, options.port ?? 0, host).catch(async (error: unknown) => {
    await stray.stop();
    throw error;
  });
  const url = urlOf(options.tls === undefined ? 'http' : 'https', host, port);
  let stopped: Promise<void> | undefined;
  /** Refuses connections, and ends those that are open, until the returned function is called. */
  const refuseConnections = async (): Promise<() => Promise<void>> => {
    const closed = closeButHold(server, port, host, stray.port);
    desk.disconnect();
    const holder = await closed;
    return async () => {
      await release(holder);
      if (stopped === undefined && !server.listening) await listen(server, port, host);
    };
  };

  return {
    /** Base URL to register, such as http://127.0.0.1:4100. */
    url,
    /** The OAuth token endpoint (OA1); used in OAuth mode only. */
    token_url: `${url}${partnerRoutes.access_token.path}`,
    /** Every payment ever stored, oldest first. */
    payments: (): readonly Readonly<StoredPayment>[] => {
      book.settle();
      return book.payments();
    },
    /** The ledger: one line per posting, so a payment posted twice appears twice. */
    postings: (): readonly Posting[] => {
      book.settle();
      return book.postings();
    },
    /** Every request since the start, oldest first. */
    exchanges: (): readonly Call[] => desk.exchanges,
    /** Those about one payment. */
    exchangesOf: (platform_payment_id: string): readonly Call[] =>
      desk.byPayment.get(platform_payment_id) ?? [],
    /** Another host, to which some scenarios redirect. */
    stray_url: stray.url,
    /** Paths of the requests that reached that other host, oldest first: a correct caller sends none. */
    strayPaths: (): readonly string[] => stray.paths(),
    refuseConnections,
    /** TLS handshakes that the caller aborted. */
    refusedHandshakes: () => desk.refusedHandshakes,
    /** Uses this TLS certificate until the returned function is called; ends open connections. Needs the option `tls`. */
    replaceCertificate: (pem: Pem): (() => void) => desk.replaceCertificate(pem),
    /** Posts a payment by hand if it is still processing. */
    settle(platform_payment_id: string): void {
      const payment = book.find(platform_payment_id);
      if (payment !== undefined) book.end(payment, { status: 'succeeded', after_ms: 0 });
    },
    /** Moves the partner's clock forward and ends the payments that are then due. */
    advance: (ms: number) => book.advance(ms),
    /** The partner's clock: milliseconds since 1970. */
    now: () => book.now(),
    /** Ends all connections and closes the port. Calling it twice is harmless. */
    stop(): Promise<void> {
      stopped ??= (async () => {
        book.close();
        desk.letGo();
        const closed = closeListener(server);
        desk.disconnect();
        await Promise.all([closed, stray.stop()]);
      })();
      return stopped;
    },
  };
}

/** Serves the requests of one partner: keeps each exchange, and hands the connection to a fault that takes it over. */
class Desk {
  readonly server: http.Server;
  readonly exchanges: Call[] = [];
  readonly byPayment = new Map<string | undefined, Call[]>();
  refusedHandshakes = 0;
  readonly #inside: Inside;
  readonly #options: ScriptedPartnerOptions;
  readonly #sockets = new Map<Socket, { readonly number: number; requests: number }>();
  #connections = 0;
  #calls = 0;
  #release = new AbortController();

  constructor(inside: Inside, options: ScriptedPartnerOptions) {
    this.#inside = inside;
    this.#options = options;
    const handle: http.RequestListener = (request, response) => void this.#serve(request, response);
    this.server =
      options.tls === undefined
        ? http.createServer({ requestTimeout: 30_000 }, handle)
        : https.createServer({ ...options.tls, requestTimeout: 30_000 }, handle);
    this.server.on('connection', (socket: Socket) => {
      this.#connections += 1;
      this.#sockets.set(socket, { number: this.#connections, requests: 0 });
      socket.on('close', () => this.#sockets.delete(socket));
      // A peer that disconnects in the middle is expected here, not an error.
      socket.on('error', () => socket.destroy());
    });
    this.server.on('tlsClientError', () => {
      this.refusedHandshakes += 1;
    });
    this.server.on('clientError', (_error, socket) => {
      if (!socket.writable) return;
      socket.end(rawBytes(refusalAnswer(new Refusal('INVALID_REQUEST')), { Connection: 'close' }));
    });
  }

  /** Ends what is held open on purpose, when it stops. */
  letGo(): void {
    this.#release.abort();
    this.#release = new AbortController();
  }

  disconnect(): void {
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  replaceCertificate(pem: Pem): () => void {
    const { tls: own } = this.#options;
    const { server } = this;
    if (own === undefined || !(server instanceof https.Server)) {
      throw new RangeError('start the partner with the option tls');
    }
    const present = (context: tls.SecureContextOptions): void => {
      server.setSecureContext(context);
      this.disconnect();
    };
    present(pem);
    return () => present(own);
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.on('close', () => {
      // After a whole answer nothing is held, and an abort costs a stack trace for each request.
      if (!response.writableFinished) gone.abort();
    });
    const released = AbortSignal.any([gone.signal, this.#release.signal]);
    const body = await readBody(request);
    const connection = this.#sockets.get(request.socket) ?? { number: 0, requests: 0 };
    const { call, problem } = toCall(request, connection, {
      number: (this.#calls += 1),
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
      call.answer = { status, body: bodyText(bytes) };
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
    this.byPayment.set(id, [...(this.byPayment.get(id) ?? []), call]);
    if (this.exchanges.length > MAX_EXCHANGES) this.exchanges.shift();
  }
}

function asRefusal(error: unknown): Answer {
  if (!(error instanceof Refusal)) throw error;
  return refusalAnswer(error);
}
