/** The listeners of the scripted partner: ports that open, close and open again, and the host that is not the partner. */
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import type { Refusal } from '@duebridge/contract';
import type { Answer } from './behaviour.ts';

/** Largest request body read (decision 16). */
const MAX_BODY_BYTES = 64 * 1024;

/** Maximum number of paths kept of requests that should never have come. */
const MAX_PATHS = 10_000;

/** The origin of a listener; an IPv6 address needs brackets. */
export function urlOf(scheme: 'http' | 'https', host: string, port: number): string {
  return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Listens; returns the port. */
export function listen(server: net.Server, port: number, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/**
 * Stops listening, so that connections are refused, but keeps the port: it stays in use as the local end of a connection to a
 * listener of our own. If it were released, another program could take it and receive the caller's requests.
 */
export async function closeButHold(
  server: net.Server,
  port: number,
  host: string,
  towards: number,
): Promise<Socket> {
  await closeListener(server);
  return new Promise((resolve) => {
    const socket = net.connect({ port: towards, host, localPort: port, localAddress: host });
    socket.on('connect', () => resolve(socket));
    socket.on('error', () => resolve(socket));
  });
}

/** Gives up a port that was held. */
export async function release(holder: Socket): Promise<void> {
  holder.resetAndDestroy();
  if (!holder.closed) await once(holder, 'close');
}

/** Stops listening; connections stay open. */
export function closeListener(server: net.Server): Promise<void> {
  return new Promise((resolve) => {
    if (!server.listening) return resolve();
    server.close(() => resolve());
  });
}

/** A host that is not the partner: a caller that follows a redirect to it has failed (F19, F68). */
export async function openStray(host: string) {
  const paths: string[] = [];
  // No timeouts: an idle connection to this listener keeps a closed partner's port in use.
  const server = http.createServer(
    { headersTimeout: 0, requestTimeout: 0 },
    (request, response) => {
      if (paths.length < MAX_PATHS) paths.push(request.url ?? '');
      response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}');
    },
  );
  const port = await listen(server, 0, host);
  return {
    port,
    url: urlOf('http', host, port),
    paths: paths as readonly string[],
    stop: async () => {
      const closed = closeListener(server);
      server.closeAllConnections();
      await closed;
    },
  };
}

/** The body; undefined when it exceeds the limit. */
export async function readBody(request: http.IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes <= MAX_BODY_BYTES) chunks.push(chunk);
    }
  } catch {
    // The caller disconnected in the middle: process what was received; the answer is not delivered.
  }
  return bytes > MAX_BODY_BYTES ? undefined : Buffer.concat(chunks);
}

/** The media type of a request, without its parameters. */
export function mediaTypeOf(headers: http.IncomingHttpHeaders): string {
  return (headers['content-type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? '';
}

/** A refusal as an answer. */
export function refusalAnswer(refusal: Refusal): Answer {
  return { status: refusal.status, headers: refusal.headers, body: { ...refusal.toBody() } };
}
