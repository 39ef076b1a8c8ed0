/**
 * Following a payment: server-sent events (decision 31).
 *
 * enters: a payment of the caller's flow.  leaves: one `payment` event at once, one for each change that the customer can see, and the
 *         end of the stream after the terminal one.
 * holds:  the stream ends with its session, with the client and with the server; each flow has a small limit of streams, and a new
 *         one closes the oldest. Streams are also limited per address and in total; beyond that a page is refused and polls
 *         instead, so no customer can exhaust the listener for others. Comments are sent during silence, so that no proxy takes the
 *         connection for dead. A dropped stream loses nothing: the page reads the payment again.
 */
import { isTerminal, Refusal } from '@duebridge/contract';
import type { Clock } from '@duebridge/runtime';
import type { FastifyReply } from 'fastify';
import type { Engine } from '../engine/engine.ts';
import { toFlowPayment } from './confirm.ts';
import type { PaymentRow, WatchedPayment } from '../store/payments.ts';

/** Interval between comment lines: under the 15 s after which the page and some proxies drop a silent connection. */
const HEARTBEAT_MS = 10_000;
/**
 * Limits on concurrent streams. Per flow, over all its sessions and tokens: a page needs one, or two just after it lost its
 * network; six tabs are many. Per address: an office or a mobile network behind one address has many customers, but few of them
 * wait for a payment at the same moment. In total: well under the 10,000 connections of the listener, so that the rest is left for
 * requests.
 */
export const STREAM_LIMITS = { perFlow: 12, perAddress: 500, inAll: 4_000 } as const;
/** Retry-After of a refused stream; the page polls meanwhile. */
const RETRY_AFTER_SECONDS = '30';
/** Bytes buffered for a client that does not read, about a hundred events. Beyond this its stream is closed. */
const MAX_WAITING_BYTES = 64 * 1024;

/** The open streams of a server. */
export interface PaymentEvents {
  /**
   * Answers `reply` with the stream; resolves when it has ended. `read` gives the payment as it is
   * now, or throws, and the error is answered as for any request; `signal` ends the stream;
   * `expiresAt` is the end of the session in wall milliseconds. `flow` names whose streams are counted together, `address` the
   * client's. Throws Refusal TOO_MANY_REQUESTS when the address or the server has reached its limit.
   */
  follow(options: {
    reply: FastifyReply;
    signal: AbortSignal;
    flow: string;
    address: string;
    expiresAt: number;
    platform_payment_id: string;
    read: () => Promise<PaymentRow>;
  }): Promise<void>;
  /** Streams open now. */
  readonly size: number;
}

/** Creates the streams of a server on top of the engine's notifications. */
export function openPaymentEvents(options: {
  engine: Pick<Engine, 'watch'>;
  clock: Clock;
  /** For tests; default STREAM_LIMITS. */
  limits?: { readonly perFlow: number; readonly perAddress: number; readonly inAll: number };
}): PaymentEvents {
  const { engine, clock, limits = STREAM_LIMITS } = options;
  const streams = new Map<string, Set<AbortController>>();
  const perAddress = new Map<string, number>();
  let size = 0;
  const refuse = (): never => {
    throw new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': RETRY_AFTER_SECONDS } });
  };

  return {
    async follow({ reply, signal, flow, address, expiresAt, platform_payment_id, read }) {
      const fromAddress = perAddress.get(address) ?? 0;
      if (size >= limits.inAll || fromAddress >= limits.perAddress) refuse();
      const end = new AbortController();
      const stop = (): void => end.abort();
      if (signal.aborted) stop();
      signal.addEventListener('abort', stop, { once: true });
      const mine = streams.get(flow) ?? new Set();
      const [oldest] = mine;
      if (oldest !== undefined && mine.size >= limits.perFlow) {
        mine.delete(oldest);
        oldest.abort();
      }
      streams.set(flow, mine.add(end));
      perAddress.set(address, fromAddress + 1);
      size += 1;

      const { raw } = reply;
      const write = (text: string): void => {
        if (end.signal.aborted) return;
        raw.write(text);
        if (raw.writableLength > MAX_WAITING_BYTES) stop();
      };
      let last = '';
      const show = (row: WatchedPayment): void => {
        const data = JSON.stringify(toFlowPayment(row));
        if (data !== last) write(`event: payment\ndata: ${data}\n\n`);
        last = data;
        if (isTerminal(row.status)) stop();
      };
      // Subscribe before reading, so that no change is missed in between.
      let opened = false;
      let noticed: WatchedPayment | undefined;
      const unwatch = engine.watch(platform_payment_id, (row) => {
        if (opened) show(row);
        else noticed = row;
      });
      try {
        const row = await read();
        open(reply);
        opened = true;
        show(noticed ?? row);
        while (!end.signal.aborted) {
          const left = expiresAt - clock.now();
          if (left <= 0) break;
          await clock.sleep(Math.min(HEARTBEAT_MS, left), end.signal);
          write(': still here\n\n');
        }
      } finally {
        unwatch();
        signal.removeEventListener('abort', stop);
        mine.delete(end);
        if (mine.size === 0 && streams.get(flow) === mine) streams.delete(flow);
        const left = (perAddress.get(address) ?? 1) - 1;
        if (left === 0) perAddress.delete(address);
        else perAddress.set(address, left);
        size -= 1;
        if (opened) raw.end();
      }
    },
    get size() {
      return size;
    },
  };
}

/** Takes the answer over from Fastify and sends its head, with the headers that every answer has. */
function open(reply: FastifyReply): void {
  reply.hijack();
  const headers = Object.entries(reply.getHeaders()).filter(([, value]) => value !== undefined);
  reply.raw.writeHead(200, {
    ...Object.fromEntries(headers),
    'content-type': 'text/event-stream; charset=utf-8',
    // Close the connection with the stream: a connection kept open would delay the server's stop.
    connection: 'close',
    // Tells buffering proxies to pass each event on at once.
    'x-accel-buffering': 'no',
  });
}
