/** A closing server answers requests in progress, wakes waiting ones, and cuts those that do not end in time. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { abortWith } from '../abort.ts';
import { letGo } from './front.ts';

/** Of each server, what aborts when it begins to close. */
const closings = new WeakMap<object, AbortSignal>();

/** Makes a close of the server end within `closeTimeoutMs`. */
export function followClosing(app: FastifyInstance, closeTimeoutMs: number): void {
  const closing = new AbortController();
  closings.set(app.server, closing.signal);
  app.addHook('preClose', (done) => {
    closing.abort();
    letGo(app.server);
    // Requests that do not end by themselves are cut, so that the stop is bounded.
    setTimeout(() => app.server.closeAllConnections(), closeTimeoutMs).unref();
    done();
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (closing.signal.aborted) reply.header('connection', 'close');
    done(null, payload);
  });
}

/** Aborts when the client has disconnected, or when the server begins to close. */
export function signalOf(
  app: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): AbortSignal {
  const gone = new AbortController();
  // A client that disconnected earlier, for example during authentication, has already emitted 'close'; it is not emitted again.
  const hasGone = reply.raw.destroyed || request.raw.socket.destroyed;
  if (hasGone || (request.raw.destroyed && !request.raw.complete)) gone.abort();
  const closing = closings.get(app.server);
  const unlink = closing && abortWith(gone, closing);
  reply.raw.once('close', () => {
    unlink?.();
    // After a finished answer nobody waits any more; before that, the client has disconnected.
    if (!reply.raw.writableFinished) gone.abort();
  });
  return gone.signal;
}

/** Whether the server has begun to close. */
export function isClosing(app: FastifyInstance): boolean {
  return closings.get(app.server)?.aborted === true;
}
