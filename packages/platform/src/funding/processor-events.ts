/**
 * Webhooks of payment processors: POST /v1/funding/{adapter}/events.
 *
 * enters: a request of a processor.  leaves: its event applied once, and 200, also for an event that concerns nothing here.
 * holds:  nothing is read of a request whose signature over the raw bytes was not verified. Answers 503 when the event could not be
 *         stored, so that the processor sends it again.
 */
import { Refusal } from '@duebridge/contract';
import { messageOf, type Log } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { UnverifiedEvent } from './adapter.ts';
import type { Funds } from './funds.ts';

/** Processors' events are a few kilobytes; one with a long list may be larger. */
const MAX_BYTES = 256 * 1024;

/** Mounts the route in a scope of its own, because it alone reads raw bytes. */
export function mountProcessorEvents(
  app: FastifyInstance,
  { funding, log }: { readonly funding: Pick<Funds, 'adapters' | 'apply'>; readonly log: Log },
): void {
  const adapters = new Map(funding.adapters.map((adapter) => [adapter.name, adapter]));
  void app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser(
      '*',
      { parseAs: 'buffer', bodyLimit: MAX_BYTES },
      (_request, body, done) => done(null, body),
    );
    scope.post<{ Params: { adapter: string } }>(
      '/v1/funding/:adapter/events',
      async (request, reply) => {
        const adapter = adapters.get(request.params.adapter);
        if (adapter?.readEvent === undefined) throw new Refusal('NOT_FOUND');
        if (!Buffer.isBuffer(request.body)) throw new Refusal('INVALID_REQUEST');
        try {
          const event = await adapter.readEvent({
            body: request.body,
            header(name) {
              const value = request.headers[name.toLowerCase()];
              return typeof value === 'string' ? value : undefined;
            },
          });
          const applied = event !== undefined && (await funding.apply(adapter.name, event));
          return reply.send({ applied });
        } catch (error) {
          const what = { adapter: adapter.name, error: messageOf(error) };
          if (error instanceof UnverifiedEvent) {
            log.warn(what, 'a webhook was refused: its signature is not valid');
            throw new Refusal('INVALID_REQUEST', { message: 'The signature is not valid' });
          }
          log.error(what, 'a webhook could not be applied; the processor will send it again');
          throw new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': '30' } });
        }
      },
    );
  });
}
