/**
 * An HTTP gateway between platform and partner that records the traffic and does what gateways do: it loses, repeats, truncates,
 * duplicates and replaces messages. It writes its answers as raw bytes, because an HTTP library would refuse to.
 */
import { createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { request } from 'undici';
import type { Answer, History } from '../simulation/history.ts';
import { listen } from './listening.ts';

/** What a gateway may do with one exchange. */
export const BEHAVIOURS = [
  /** Forwards it. */
  'pass',
  /** Closes the connection before the partner saw the request. */
  'lose_request',
  /** Closes the connection after the partner acted. */
  'lose_answer',
  /** Never answers, although the partner acted. */
  'stall',
  /** Sends the request twice, one after the other, and answers with the second answer. */
  'retry',
  /** Sends the request twice at the same moment. */
  'send_twice',
  /** Forwards it, and delivers it once more long after the exchange is over. */
  'repeat_later',
  /** Writes the bytes of the answer twice. */
  'double_answer',
  /** Closes in the middle of an answer with a Content-Length. */
  'half_answer',
  /** Closes in the middle of an answer without a Content-Length, which then looks complete. */
  'cut_answer',
  /** Two hundred 102s, then the answer. */
  'inform',
  /** An unsolicited 103 with links, then the answer. */
  'early_hints',
  /** An unsolicited 100, then the answer. */
  'continue',
  /** 502 with HTML; the partner never saw the request. */
  'html_502',
  /** 504 with HTML; the partner has acted. */
  'html_504_after',
  /** 200 with HTML: a login page. */
  'html_200',
  /** 503 with Retry-After: 1. */
  'busy',
  /** The answer in chunks of one byte. */
  'drip',
  /** The answer, then the connection is closed without notice. */
  'close_behind',
  /** The answer of the previous exchange, as on a connection that got out of step. */
  'stale_answer',
  /** A redirect to another place. */
  'redirect',
] as const;
export type Behaviour = (typeof BEHAVIOURS)[number];

/** Delay after which a repeated request is delivered again. */
const LATER_MS = 1_500;

interface Incoming {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}
interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

let calls = 0;

/** A gateway. `behave` decides what happens to each exchange about a payment; everything else is forwarded. */
export class Gateway {
  behave: () => Behaviour = () => 'pass';
  /** Milliseconds added to each direction. */
  latencyMs = 0;
  /** Refuses everything. */
  isCut = false;
  history: History;
  /** Number of exchanges, by what was done to them. */
  readonly did = new Map<Behaviour, number>();
  readonly #upstreams: () => readonly string[];
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #turn = 0;
  #before: Reply | undefined;

  constructor(history: History, upstreams: () => readonly string[]) {
    this.history = history;
    this.#upstreams = upstreams;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  /** Listens on a free local port and returns the URL. */
  async listen(): Promise<string> {
    return `http://127.0.0.1:${await listen(this.#server)}`;
  }

  /** Drops every open connection. */
  drop(): void {
    for (const socket of this.#open) socket.destroy();
  }

  async close(): Promise<void> {
    this.drop();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(socket: Socket): void {
    if (this.isCut) {
      socket.destroy();
      return;
    }
    this.#open.add(socket);
    socket.on('close', () => this.#open.delete(socket));
    socket.on('error', () => socket.destroy());
    let data = Buffer.alloc(0);
    let turn: Promise<void> = Promise.resolve();
    socket.on('data', (piece) => {
      data = Buffer.concat([data, piece]);
      for (let read = readRequest(data); read !== undefined; read = readRequest(data)) {
        data = data.subarray(read.length);
        const { incoming } = read;
        turn = turn.then(() => this.#exchange(socket, incoming));
      }
    });
  }

  async #exchange(socket: Socket, incoming: Incoming): Promise<void> {
    const about = /\/biller\/([^/]+)\/.*\/payment\/([^/?]+)/.exec(incoming.path);
    if (about === null) {
      const reply = await this.#forward(incoming);
      if (reply === undefined) socket.destroy();
      else write(socket, reply);
      return;
    }
    const [, partner = '', id = ''] = about;
    calls += 1;
    const call = calls;
    const { history } = this;
    history.add({
      kind: 'sent',
      call,
      by: 'platform',
      method: incoming.method === 'PUT' ? 'PUT' : 'GET',
      id,
      partner,
      payload: incoming.body.toString('utf8'),
    });
    const arrived = (answer: string): void => history.add({ kind: 'arrived', call, id, answer });
    const act = async (): Promise<Reply | undefined> => {
      const reply = await this.#forward(incoming);
      if (reply !== undefined) history.add({ kind: 'answered', call, id, answer: toldBy(reply) });
      return reply;
    };
    if (this.latencyMs > 0) await pause(this.latencyMs);
    if (this.isCut) {
      arrived('connection');
      socket.destroy();
      return;
    }
    const behaviour = this.behave();
    this.did.set(behaviour, (this.did.get(behaviour) ?? 0) + 1);
    const raw = await this.#answer(behaviour, act, socket);
    if (this.latencyMs > 0) await pause(this.latencyMs);
    if (raw === undefined || this.isCut) {
      arrived('connection');
      socket.destroy();
    } else if (raw !== 'silence') arrived(raw);
  }

  /** Applies the behaviour; returns what the platform sees, `undefined` for a connection to be closed. */
  async #answer(
    behaviour: Behaviour,
    act: () => Promise<Reply | undefined>,
    socket: Socket,
  ): Promise<string | undefined> {
    const own = (reply: Reply): string => {
      write(socket, reply);
      return String(reply.status);
    };
    switch (behaviour) {
      case 'lose_request':
        return undefined;
      case 'html_502':
        return own(html(502));
      case 'html_200':
        return own(html(200));
      case 'busy':
        return own({ ...html(503), headers: { 'content-type': 'text/html', 'retry-after': '1' } });
      case 'redirect':
        return own({
          status: 302,
          headers: { location: 'http://127.0.0.1:9/elsewhere' },
          body: '',
        });
      case 'lose_answer':
        await act();
        return undefined;
      case 'stall':
        await act();
        return 'silence';
      case 'html_504_after':
        await act();
        return own(html(504));
      case 'retry':
        await act();
        break;
      case 'send_twice':
        void act();
        break;
      case 'repeat_later':
        setTimeout(() => void act(), LATER_MS).unref();
        break;
      case 'pass':
      case 'double_answer':
      case 'half_answer':
      case 'cut_answer':
      case 'inform':
      case 'early_hints':
      case 'continue':
      case 'drip':
      case 'close_behind':
      case 'stale_answer':
        break;
    }
    const before = this.#before;
    const reply = await act();
    if (reply === undefined) return undefined;
    this.#before = reply;
    const bytes = bytesOf(reply);
    const half = bytes.length - Math.ceil(reply.body.length / 2);
    switch (behaviour) {
      case 'double_answer':
        socket.write(Buffer.concat([bytes, bytes]));
        break;
      case 'half_answer':
        socket.end(bytes.subarray(0, half));
        break;
      case 'cut_answer':
        socket.end(
          bytesOf(reply, { connection: 'close' }).subarray(0, -Math.ceil(reply.body.length / 2)),
        );
        break;
      case 'inform':
        socket.write('HTTP/1.1 102 Processing\r\n\r\n'.repeat(200));
        socket.write(bytes);
        break;
      case 'early_hints':
        socket.write('HTTP/1.1 103 Early Hints\r\nLink: </x.css>; rel=preload\r\n\r\n');
        socket.write(bytes);
        break;
      case 'continue':
        socket.write('HTTP/1.1 100 Continue\r\n\r\n');
        socket.write(bytes);
        break;
      case 'drip':
        socket.write(bytesOf(reply, { 'transfer-encoding': 'chunked' }, chunksOf(reply.body)));
        break;
      case 'close_behind':
        socket.end(bytes);
        break;
      case 'stale_answer':
        write(socket, before ?? reply);
        break;
      default:
        socket.write(bytes);
    }
    return String(reply.status);
  }

  /** Sends it to one of the partner's servers, round robin; undefined when none answered. */
  async #forward({ method, path, headers, body }: Incoming): Promise<Reply | undefined> {
    const upstreams = this.#upstreams();
    this.#turn += 1;
    const base = upstreams[this.#turn % upstreams.length];
    try {
      const answer = await request(`${base}${path}`, {
        method: method as 'GET' | 'PUT',
        headers,
        ...(body.length === 0 ? {} : { body }),
        signal: AbortSignal.timeout(30_000),
      });
      const text = await answer.body.text();
      const kept = ['content-type', 'retry-after', 'preference-applied', 'x-request-id'];
      return {
        status: answer.statusCode,
        headers: Object.fromEntries(
          kept.flatMap((name) => {
            const value = answer.headers[name];
            return typeof value === 'string' ? [[name, value]] : [];
          }),
        ),
        body: text,
      };
    } catch {
      return undefined;
    }
  }
}

/** Hop-by-hop headers, and those that the next hop sets anew. */
const OWN = new Set([
  'connection',
  'keep-alive',
  'transfer-encoding',
  'content-length',
  'host',
  'expect',
]);

/** Parses one request from the start of the data; undefined until it is complete. The platform always sends a Content-Length. */
function readRequest(data: Buffer): { incoming: Incoming; length: number } | undefined {
  const end = data.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const [first = '', ...lines] = data.subarray(0, end).toString('latin1').split('\r\n');
  const [method = '', path = ''] = first.split(' ');
  const headers: Record<string, string> = {};
  let bodyLength = 0;
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (name === 'content-length') bodyLength = Number(value);
    if (!OWN.has(name)) headers[name] = value;
  }
  const length = end + 4 + bodyLength;
  if (data.length < length) return undefined;
  return { incoming: { method, path, headers, body: data.subarray(end + 4, length) }, length };
}

function write(socket: Socket, reply: Reply): void {
  socket.write(bytesOf(reply));
}

/** The answer as bytes; `instead` replaces the Content-Length header. */
function bytesOf(
  reply: Reply,
  instead?: Readonly<Record<string, string>>,
  body = reply.body,
): Buffer {
  const headers = {
    ...reply.headers,
    ...(instead ?? { 'content-length': String(Buffer.byteLength(body)) }),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`HTTP/1.1 ${reply.status} X\r\n${lines.join('')}\r\n${body}`);
}

function chunksOf(body: string): string {
  return `${[...Buffer.from(body)].map((byte) => `1\r\n${String.fromCharCode(byte)}\r\n`).join('')}0\r\n\r\n`;
}

function html(status: number): Reply {
  return {
    status,
    headers: { 'content-type': 'text/html' },
    body: '<html><body><h1>Sorry</h1></body></html>',
  };
}

function toldBy({ status, body }: Reply): Answer {
  if (status !== 200) return { http: status };
  const record = JSON.parse(body) as Readonly<Record<string, unknown>>;
  const { status: word, payment_id, initiated_at, amount_in_cents } = record;
  return {
    http: 200,
    ...(typeof word === 'string' ? { status: word } : {}),
    ...(typeof payment_id === 'string' ? { payment_id } : {}),
    ...(typeof initiated_at === 'string' ? { initiated_at } : {}),
    ...(typeof amount_in_cents === 'number' ? { amount_in_cents } : {}),
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
