/**
 * An HTTP gateway between platform and partner that records the traffic and does what gateways do: it loses, repeats, truncates and
 * replaces messages. What single odd bytes do to the platform is proved by the sandbox's scenarios (F06, F25, F37, F42 and on), one by one.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { request } from 'undici';
import type { Answer, History } from '../simulation/history.ts';
import { listen } from '../support/listening.ts';

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
  /** Closes in the middle of the answer. */
  'half_answer',
  /** 502 with HTML; the partner never saw the request. */
  'html_502',
  /** 504 with HTML; the partner has acted. */
  'html_504_after',
  /** 200 with HTML: a login page. */
  'html_200',
  /** 503 with Retry-After: 1. */
  'busy',
  /** A redirect to another place. */
  'redirect',
] as const;
export type Behaviour = (typeof BEHAVIOURS)[number];

/** Delay after which a repeated request is delivered again. */
const LATER_MS = 1_500;

type Headers = Readonly<Record<string, string>>;
interface Asked {
  readonly method: 'GET' | 'PUT';
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer;
}
interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly body: string;
}

/** Answers of the gateway itself. */
const OWN = {
  html_502: html(502),
  html_200: html(200),
  busy: html(503, { 'retry-after': '1' }),
  redirect: { status: 302, headers: { location: 'http://127.0.0.1:9/elsewhere' }, body: '' },
} as const;

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
  #turn = 0;

  constructor(history: History, upstreams: () => readonly string[]) {
    this.history = history;
    this.#upstreams = upstreams;
    this.#server = createServer((incoming, response) => {
      // A caller that hangs up meanwhile is none of ours.
      this.#exchange(incoming, response).catch(() => response.destroy());
    });
  }

  /** Listens on a free local port and returns the URL. */
  async listen(): Promise<string> {
    return `http://127.0.0.1:${await listen(this.#server)}`;
  }

  /** Drops every open connection. */
  drop(): void {
    this.#server.closeAllConnections();
  }

  async close(): Promise<void> {
    this.#server.close();
    this.drop();
    await once(this.#server, 'close');
  }

  async #exchange(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.isCut) {
      response.destroy();
      return;
    }
    const asked = await read(incoming);
    const about = /\/biller\/([^/]+)\/.*\/payment\/([^/?]+)/.exec(asked.path);
    if (about === null) {
      const reply = await this.#forward(asked);
      if (reply === undefined) response.destroy();
      else response.writeHead(reply.status, reply.headers).end(reply.body);
      return;
    }
    const [, partner = '', id = ''] = about;
    const { method, body } = asked;
    calls += 1;
    const call = calls;
    const { history } = this;
    const payload = body.toString('utf8');
    history.add({ kind: 'sent', call, by: 'platform', method, id, partner, payload });
    const act = async (): Promise<Reply | undefined> => {
      const reply = await this.#forward(asked);
      if (reply !== undefined) history.add({ kind: 'answered', call, id, answer: toldBy(reply) });
      return reply;
    };
    if (this.latencyMs > 0) await pause(this.latencyMs);
    const behaviour = this.behave();
    if (!this.isCut) this.did.set(behaviour, (this.did.get(behaviour) ?? 0) + 1);
    const reply = this.isCut ? undefined : await replyOf(behaviour, act);
    if (reply === 'silence') return;
    if (this.latencyMs > 0) await pause(this.latencyMs);
    if (reply === undefined || this.isCut) {
      history.add({ kind: 'arrived', call, id, answer: 'connection' });
      response.destroy();
      return;
    }
    history.add({ kind: 'arrived', call, id, answer: String(reply.status) });
    const length = Buffer.byteLength(reply.body);
    response.writeHead(reply.status, { ...reply.headers, 'content-length': length });
    if (behaviour === 'half_answer')
      response.write(reply.body.slice(0, Math.floor(length / 2)), () => response.destroy());
    else response.end(reply.body);
  }

  /** Sends it to one of the partner's servers, round robin; undefined when none answered. */
  async #forward({ method, path, headers, body }: Asked): Promise<Reply | undefined> {
    const upstreams = this.#upstreams();
    this.#turn += 1;
    const base = upstreams[this.#turn % upstreams.length];
    try {
      const answer = await request(`${base}${path}`, {
        method,
        headers,
        ...(body.length === 0 ? {} : { body }),
        signal: AbortSignal.timeout(30_000),
      });
      const text = await answer.body.text();
      return { status: answer.statusCode, headers: onwards(answer.headers), body: text };
    } catch {
      return undefined;
    }
  }
}

/** What the platform gets: undefined for a connection that is closed. */
async function replyOf(
  behaviour: Behaviour,
  act: () => Promise<Reply | undefined>,
): Promise<Reply | 'silence' | undefined> {
  switch (behaviour) {
    case 'lose_request':
      return undefined;
    case 'html_502':
    case 'html_200':
    case 'busy':
    case 'redirect':
      return OWN[behaviour];
    case 'lose_answer':
      await act();
      return undefined;
    case 'stall':
      await act();
      return 'silence';
    case 'html_504_after':
      await act();
      return html(504);
    case 'retry':
      await act();
      return act();
    case 'send_twice':
      void act();
      return act();
    case 'repeat_later':
      setTimeout(() => void act(), LATER_MS).unref();
      return act();
    case 'pass':
    case 'half_answer':
      return act();
  }
}

/** The platform always sends a Content-Length. */
async function read(incoming: IncomingMessage): Promise<Asked> {
  const body = Buffer.concat(await incoming.toArray());
  const method = incoming.method === 'PUT' ? 'PUT' : 'GET';
  return { method, path: incoming.url ?? '', headers: onwards(incoming.headers), body };
}

/** Headers that are not of one connection alone, and that the next one does not set anew. */
function onwards(headers: IncomingMessage['headers']): Headers {
  const own = /^(?:connection|keep-alive|transfer-encoding|content-length|host|expect|date)$/;
  return Object.fromEntries(
    Object.entries(headers).flatMap(([name, value]) =>
      own.test(name) || typeof value !== 'string' ? [] : [[name, value]],
    ),
  );
}

function html(status: number, headers: Headers = {}): Reply {
  const body = '<html><body><h1>Sorry</h1></body></html>';
  return { status, headers: { 'content-type': 'text/html', ...headers }, body };
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
