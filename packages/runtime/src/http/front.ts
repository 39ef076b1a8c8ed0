/**
 * What one address may do to a listener before a request is looked at.
 *
 * enters: connections and pipelined requests.  leaves: what is within the limits; the rest is cut, unanswered.
 * holds:  a stranger's connection costs at most one read of 64 KiB. Node parses all requests of a read in one go and hands each of
 *         them on, which at 300 connections with 400 pipelined requests stopped the process, and the engine in it, for 13 s. So a
 *         connection that pipelines ends all connections of its address, whose unread bytes are then never parsed. Those that
 *         it opens next are held unread: one that is closed at once would be opened again a thousand times a second.
 *
 * Proxies that the deployment names are exempt from what counts addresses: their connections carry many people's requests.
 */
import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import { BlockList, isIP, isIPv6, type Socket } from 'node:net';

/** Limits of a listener, as they are unless it is told otherwise. */
export const FRONT_LIMITS = {
  /** Connections at once, well under the usual limit of file descriptors. */
  connections: 10_000,
  /** Connections at once from one address: several hundred people behind one address, and no tenth of the whole for a stranger. */
  connectionsPerAddress: 1_000,
  /** Requests that one connection may have open: browsers and proxies wait for each answer. */
  pipelined: 8,
  /** How long an address that pipelines, or that floods (`shutOut`), is shut out, and its new connections are held. */
  shutOutMs: 10_000,
  /** A connection on which nothing moves for this long is closed, unless it waits for an answer: whoever reads none, or asks nothing. */
  idleMs: 40_000,
};

/** Addresses that are remembered as shut out; the first of more are let in again. */
const MAX_SHUT_OUT = 10_000;

/** Whether an address belongs to a proxy whose forwarding headers are believed. */
export type Believes = (address: string) => boolean;

/** This machine: with a listener on 127.0.0.1 nobody but a proxy here reaches it. */
export const LOOPBACK: readonly string[] = ['127.0.0.0/8', '::1'];

/** The proxies of a list of addresses and networks. Throws an Error for a text that is neither. */
export function believing(proxies: readonly string[]): Believes {
  const known = new BlockList();
  for (const text of proxies) {
    const [address = '', bits, ...rest] = text.split('/');
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    const longest = family === 'ipv6' ? 128 : 32;
    const prefix = bits === undefined ? longest : /^\d{1,3}$/.test(bits) ? Number(bits) : Infinity;
    if (isIP(address) === 0 || prefix > longest || rest.length > 0) {
      throw new Error('must be addresses or networks such as 10.0.0.0/8, separated by commas');
    }
    known.addSubnet(address, prefix, family);
  }
  return (address) => isIP(address) > 0 && known.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
}

/**
 * What an address is counted under: an IPv4 address itself, the network of 64 bits of an IPv6 address, because whoever has one of
 * its addresses has them all.
 */
export function addressKey(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !isIPv6(address)) return mapped ?? address;
  const [head = [], tail = []] = address.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = Array<string>(8 - head.length - tail.length).fill('0');
  return `${[...head, ...zeros].slice(0, 4).join(':')}::/64`;
}

/** Ends all connections of the address that a connection comes from, for a while; those of a believed proxy are left alone. */
export function shutOut(server: Server, socket: Socket): void {
  server.emit('shutOut', socket);
}

/** Ends the connections that are held, because the server closes. */
export function letGo(server: Server): void {
  server.emit('letGo');
}

/** Opens a server for a handler. `now` is a monotonic clock. */
export function openFront(
  handler: RequestListener,
  options: {
    readonly http: ServerOptions;
    readonly limits: typeof FRONT_LIMITS;
    readonly believes: Believes;
    readonly now: () => number;
  },
): Server {
  const { limits, believes, now } = options;
  /** Connections of each address that is counted. */
  const open = new Map<string, Set<Socket>>();
  /** Requests that are not answered yet, by connection. */
  const unanswered = new WeakMap<Socket, number>();
  /** Addresses that are shut out, and until when. */
  const out = new Map<string, number>();
  /** Connections that they opened while they were out, of which nothing is read. */
  const held = new Set<Socket>();

  const isShutOut = (key: string): boolean => {
    const until = out.get(key);
    if (until !== undefined && until <= now()) out.delete(key);
    return out.has(key);
  };
  const shut = (socket: Socket): void => {
    socket.destroy();
    const key = addressKey(socket.remoteAddress ?? '');
    const all = open.get(key);
    if (all === undefined) return;
    const [oldest] = out.keys();
    if (out.size >= MAX_SHUT_OUT && oldest !== undefined) out.delete(oldest);
    out.set(key, now() + limits.shutOutMs);
    for (const one of all) one.destroy();
  };
  const hold = (socket: Socket): void => {
    held.add(socket);
    socket.on('error', () => undefined).once('close', () => held.delete(socket));
    socket.setTimeout(limits.shutOutMs, () => socket.destroy());
  };

  const isFull = (address: string): boolean =>
    (open.get(addressKey(address))?.size ?? 0) >= limits.connectionsPerAddress &&
    !believes(address);

  const server = createServer(options.http, (request, response) => {
    const { socket } = request;
    const waiting = (unanswered.get(socket) ?? 0) + 1;
    unanswered.set(socket, waiting);
    // What was parsed with the request that broke the limit still comes here.
    if (socket.destroyed) return;
    if (waiting > limits.pipelined) {
      shut(socket);
      return;
    }
    response.once('close', () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1));
    handler(request, response);
  });
  server.on('shutOut', (socket: Socket) => {
    if (!believes(socket.remoteAddress ?? '')) shut(socket);
  });
  server.on('letGo', () => held.forEach((socket) => socket.destroy()));
  server.maxConnections = limits.connections;
  // Node calls it before it makes a socket, which costs the event loop as much again as all else that a refusal takes. It is an option
  // of net that http's createServer does not pass on; Node calls only its `check`.
  Object.assign(server, { blockList: { check: isFull } });
  server.setTimeout(limits.idleMs, (socket) => {
    // An answer may take minutes, such as a comparison of the money of a year.
    const isAwaited = (unanswered.get(socket) ?? 0) > 0 && socket.writableLength === 0;
    if (!isAwaited) socket.destroy();
  });
  // Node's own listener reads and parses a connection: only those that are let in get it.
  const read = server.listeners('connection') as ((socket: Socket) => void)[];
  const letIn = (socket: Socket): void => read.forEach((listener) => listener.call(server, socket));
  server.removeAllListeners('connection');
  server.on('connection', (socket) => {
    const address = socket.remoteAddress ?? '';
    if (believes(address)) return letIn(socket);
    const key = addressKey(address);
    const all = open.get(key) ?? new Set();
    // Where Node does not ask `blockList` of an http server, the limit holds all the same.
    if (isFull(address)) {
      socket.destroy();
      return;
    }
    open.set(key, all.add(socket));
    socket.once('close', () => {
      all.delete(socket);
      if (all.size === 0 && open.get(key) === all) open.delete(key);
    });
    if (isShutOut(key)) hold(socket);
    else letIn(socket);
  });
  return server;
}
