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

/** Listens, unless told otherwise on a free port of this machine; returns the port. */
export async function listen(server: net.Server, port = 0, host = '127.0.0.1'): Promise<number> {
  await once(server.listen(port, host), 'listening');
  return (server.address() as AddressInfo).port;
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
  const socket = net.connect({ port: towards, host, localPort: port, localAddress: host });
  // It may fail, and may be ended from the other side.
  socket.on('error', () => undefined);
  await once(socket, 'connect').catch(() => undefined);
  return socket;
}

/** Gives up a port that was held. */
export async function release(holder: Socket): Promise<void> {
  holder.resetAndDestroy();
  if (!holder.closed) await once(holder, 'close');
}

/** Stops listening; connections stay open. */
export async function closeListener(server: net.Server): Promise<void> {
  if (server.listening) await once(server.close(), 'close');
}

/** Stops listening, and ends every connection. */
export async function closeAll(server: http.Server): Promise<void> {
  const closed = closeListener(server);
  server.closeAllConnections();
  await closed;
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
    stop: () => closeAll(server),
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
