/** A closing server answers requests in progress, wakes waiting ones, and cuts those that do not end in time. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { letGo } from './front.ts';

/** Controllers of the requests that asked for a signal, per server; aborted when it begins to close. */
const waiting = new WeakMap<object, { closing: boolean; controllers: Set<AbortController> }>();

/** Makes a close of the server end within `closeTimeoutMs`. */
export function followClosing(app: FastifyInstance, closeTimeoutMs: number): void {
  const state = { closing: false, controllers: new Set<AbortController>() };
  waiting.set(app.server, state);
  app.addHook('preClose', (done) => {
    state.closing = true;
    for (const controller of state.controllers) controller.abort();
    letGo(app.server);
    // Requests that do not end by themselves are cut, so that the stop is bounded.
    setTimeout(() => app.server.closeAllConnections(), closeTimeoutMs).unref();
    done();
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (state.closing) reply.header('connection', 'close');
    done(null, payload);
  });
}

/** Aborts when the client has disconnected, or when the server begins to close. */
export function signalOf(
  app: FastifyInstance,
  request: FastifyRequest,
  reply: FastifyReply,
): AbortSignal {
  const state = waiting.get(app.server);
  const controller = new AbortController();
  // A client that disconnected earlier, for example during authentication, has already emitted 'close'; it is not emitted again.
  const hasGone = reply.raw.destroyed || request.raw.socket.destroyed;
  if (!state || state.closing || hasGone || (request.raw.destroyed && !request.raw.complete)) {
    controller.abort();
    return controller.signal;
  }
  state.controllers.add(controller);
  reply.raw.once('close', () => {
    state.controllers.delete(controller);
    // After a finished answer nobody waits any more; before that, the client has disconnected.
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

/** Whether the server has begun to close. */
export function isClosing(app: FastifyInstance): boolean {
  return waiting.get(app.server)?.closing === true;
}
