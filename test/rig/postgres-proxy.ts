/**
 * A TCP proxy in front of PostgreSQL that parses the protocol just enough to recognise commits. It can be slow, cut off, or
 * silent, and it can drop a connection exactly between a COMMIT and its answer, when only the database knows the outcome.
 */
import { createServer, connect, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { listen } from '../support/listening.ts';

/** What the proxy does to new and open connections. */
export interface PostgresFaults {
  /** Refuses new connections and has dropped the open ones. */
  cut: boolean;
  /** Keeps connections open and forwards nothing. */
  silent: boolean;
  /** Milliseconds added to each direction. */
  latencyMs: number;
  /** Chance that a commit's answer is dropped, with its connection. */
  lostCommit: number;
}

/** No faults. */
export function healthyPostgres(): PostgresFaults {
  return { cut: false, silent: false, latencyMs: 0, lostCommit: 0 };
}

/** Interval of checking whether a silence is over. */
const SILENCE_MS = 20;

/** A proxy for one server; `upstream` may change (failover). */
export class PostgresProxy {
  readonly faults = healthyPostgres();
  /** Commits whose answer was dropped. */
  lostCommits = 0;
  upstream: { readonly host: string; readonly port: number };
  readonly #random: () => number;
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  constructor(upstream: { host: string; port: number }, random: () => number) {
    this.upstream = upstream;
    this.#random = random;
    this.#server = createServer((client) => this.#serve(client));
  }

  /** Listens on a free local port and returns it. */
  listen(): Promise<number> {
    return listen(this.#server);
  }

  /** Drops every open connection, as a network does. */
  drop(): void {
    for (const socket of this.#open) socket.destroy();
  }

  async close(): Promise<void> {
    this.drop();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(client: Socket): void {
    if (this.faults.cut) {
      client.destroy();
      return;
    }
    const server = connect(this.upstream);
    client.setNoDelay(true);
    server.setNoDelay(true);
    const end = (): void => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      this.#open.add(socket);
      socket.on('error', end);
      socket.on('close', () => {
        this.#open.delete(socket);
        end();
      });
    }
    const watch = new Session();
    this.#pass(client, server, (data) => {
      watch.asked(data);
      return false;
    });
    this.#pass(server, client, (data) => {
      if (!watch.answered(data)) return false;
      const isLost = this.#random() < this.faults.lostCommit;
      if (isLost) this.lostCommits += 1;
      return isLost;
    });
  }

  /** Forwards one direction in order, with latency and silence; `isCut` inspects each chunk and may end the connection. */
  #pass(from: Socket, to: Socket, isCut: (data: Buffer) => boolean): void {
    let before: Promise<void> = Promise.resolve();
    from.on('data', (data) => {
      const due = performance.now() + this.faults.latencyMs;
      // Data already on its way is delayed too, so the order is kept.
      const carry = async (): Promise<void> => {
        const left = due - performance.now();
        if (left > 0) await pause(left);
        while (this.faults.silent && !to.destroyed) await pause(SILENCE_MS);
        if (to.destroyed) return;
        if (isCut(data)) {
          from.destroy();
          to.destroy();
        } else to.write(data);
      };
      before = before.then(carry);
    });
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** One connection: whether the next answer belongs to a commit. */
class Session {
  #toServer: Buffer = Buffer.alloc(0);
  #toClient: Buffer = Buffer.alloc(0);
  #hasBegun = false;
  /** A transaction block is open, as the server last reported. */
  #isInBlock = false;
  /** Texts of the statements prepared by name. */
  readonly #prepared = new Map<string, string>();
  /** A pending request writes, or commits. */
  #commits = false;

  asked(data: Buffer): void {
    this.#toServer = Buffer.concat([this.#toServer, data]);
    if (!this.#hasBegun) {
      const length = this.#toServer.length < 4 ? Infinity : this.#toServer.readInt32BE(0);
      if (this.#toServer.length < length) return;
      this.#hasBegun = true;
      this.#toServer = this.#toServer.subarray(length);
    }
    this.#toServer = eachMessage(this.#toServer, (type, body) => {
      const texts = body.toString('latin1').split('\0');
      if (type === 'Q') this.#note(texts[0] ?? '');
      if (type === 'P') this.#prepared.set(texts[0] ?? '', texts[1] ?? '');
      if (type === 'B') this.#note(this.#prepared.get(texts[1] ?? '') ?? '');
    });
  }

  /** Whether the data ends the answer of a commit. */
  answered(data: Buffer): boolean {
    this.#toClient = Buffer.concat([this.#toClient, data]);
    let isCommitted = false;
    this.#toClient = eachMessage(this.#toClient, (type, body) => {
      if (type !== 'Z') return;
      this.#isInBlock = body.toString('latin1') !== 'I';
      isCommitted ||= this.#commits;
      this.#commits = false;
    });
    return isCommitted;
  }

  #note(text: string): void {
    this.#commits ||= this.#isInBlock
      ? /^\s*COMMIT/i.test(text)
      : /\b(?:INSERT|UPDATE|DELETE)\b/i.test(text);
  }
}

/** Calls back for each complete message and returns the rest. */
function eachMessage(data: Buffer, seen: (type: string, body: Buffer) => void): Buffer {
  let at = 0;
  while (data.length - at >= 5) {
    const length = data.readInt32BE(at + 1);
    if (data.length - at < length + 1) break;
    seen(String.fromCharCode(data[at] ?? 0), data.subarray(at + 5, at + 1 + length));
    at += length + 1;
  }
  return data.subarray(at);
}
