/**
 * A TCP proxy that can be slow, cut off, or silent. In front of PostgreSQL it can also drop a connection exactly between a commit and its
 * answer, when only the database knows the outcome.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { listen } from '../support/listening.ts';

interface Address {
  readonly host: string;
  readonly port: number;
}

const HEALTHY = {
  /** Refuses new connections; `drop` ends the open ones. */
  cut: false,
  /** Keeps connections open and forwards nothing. */
  silent: false,
  /** Milliseconds added to each direction. */
  latencyMs: 0,
  /** Chance that a commit's answer is dropped, with its connection. */
  lostCommit: 0,
};

/** Interval of checking whether a silence is over. */
const SILENCE_MS = 20;

/** What PostgreSQL answers when a statement that writes, or a COMMIT, has ended outside of a transaction block. */
const COMMITTED = /C[^]{4}(?:COMMIT|INSERT|UPDATE|DELETE)[^\0]*\0[^]*Z\0\0\0\x05I$/;

/** A proxy for one server, or for several by turns; `upstream` may change (failover). */
export class PostgresProxy {
  readonly faults = { ...HEALTHY };
  /** Commits whose answer was dropped. */
  lostCommits = 0;
  upstream: Address | (() => Address);
  readonly #random: () => number;
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  constructor(upstream: Address | (() => Address), random: () => number = Math.random) {
    this.upstream = upstream;
    this.#random = random;
    this.#server = createServer({ noDelay: true }, (client) => this.#serve(client));
  }

  /** Listens on a free local port and returns it. */
  listen(): Promise<number> {
    return listen(this.#server);
  }

  /** Drops every open connection, as a network does. */
  drop(): void {
    for (const socket of this.#open) socket.destroy();
  }

  heal(): void {
    Object.assign(this.faults, HEALTHY);
  }

  async close(): Promise<void> {
    this.drop();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #serve(client: Socket): void {
    if (this.faults.cut) return void client.destroy();
    const to = typeof this.upstream === 'function' ? this.upstream() : this.upstream;
    const server = connect({ ...to, noDelay: true });
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
    this.#pass(client, server, () => false);
    this.#pass(server, client, (data) => {
      const isLost =
        this.faults.lostCommit > 0 &&
        COMMITTED.test(data.toString('latin1')) &&
        this.#random() < this.faults.lostCommit;
      if (isLost) this.lostCommits += 1;
      return isLost;
    });
  }

  /** Forwards one direction in order, with latency and silence; `isCut` inspects each chunk and may end the connection. */
  #pass(from: Socket, to: Socket, isCut: (data: Buffer) => boolean): void {
    let before = Promise.resolve();
    from.on('data', (data) => {
      const due = performance.now() + this.faults.latencyMs;
      // Data already on its way is delayed too, so the order is kept.
      const carry = async (): Promise<void> => {
        const left = due - performance.now();
        if (left > 0) await pause(left);
        while (this.faults.silent && !to.destroyed) await pause(SILENCE_MS);
        if (isCut(data)) from.destroy();
        else if (!to.destroyed) to.write(data);
      };
      before = before.then(carry);
    });
  }
}
