/**
 * The kit as a Fastify plugin: on a server of `createServer` it is mounted as it is; in an app of the partner's own it lives in a
 * scope of its own, with a reader of bodies of its own (handler.ts), and leaves the rest of the app alone.
 */
import { ConfigurationError } from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import fastifyPlugin from 'fastify-plugin';
import { partnerHandler } from './handler.ts';
import { mountKit, servedPaths, type PartnerKitOptions } from './kit.ts';

/**
 * `await app.register(partnerKit, options)`: mounts the operations of the interface (S2) and decorates the app with `partnerKit`.
 * Register it once. Payments are applied from then on until the app closes.
 * Throws ConfigurationError when the options, the database, or a route of the app at the same path would put money at risk.
 */
export const partnerKit = fastifyPlugin(registerKit, { name: 'duebridge-partner-kit' });

async function registerKit(app: FastifyInstance, options: PartnerKitOptions): Promise<void> {
  // A server of createServer reads bodies strictly already: it is known by the absence of Fastify's parser for plain text.
  if (!app.hasContentTypeParser('text/plain')) return mountKit(app, options);

  // In a scope with a prefix, Fastify puts the scope's before every path.
  const within = { ...options, prefix: `${app.prefix}${options.prefix ?? ''}` };
  const kit = await partnerHandler(within);
  app.decorate('partnerKit', kit.kit);
  const served = servedPaths(within);
  app.addHook('onReady', (done) => {
    // Fastify prefers a route with a parameter to our wildcard and would silently take requests from the kit. A path without one is a
    // route of ours, which Fastify lets nobody declare again.
    const taken = served.find(({ method, path }) => {
      const url = path.replaceAll(/\{([a-z_]+)\}/g, ':$1');
      return url !== path && app.hasRoute({ method, url });
    });
    if (!taken) done();
    else {
      const { method, path } = taken;
      done(
        new ConfigurationError(
          `this app has a route of its own at ${method} ${path}: give partnerKit a prefix, such as '/pay'`,
        ),
      );
    }
  });
  // Waiting reads would hold up the close of the app, so the kit stops first.
  app.addHook('preClose', () => kit.close());

  await app.register((scope, _options, done) => {
    // The bytes stay unread: the kit reads them.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
    // Wildcards, because an app takes 100 characters for a parameter and an account id may have 128 (decision 13).
    const roots = new Set(servedPaths(options).map(({ path }) => path.replace(/\{.*$/, '*')));
    for (const url of roots) {
      scope.route({
        method: ['GET', 'PUT', 'POST', 'PATCH', 'DELETE'],
        url,
        handler(request, reply) {
          reply.hijack();
          kit(request.raw, reply.raw);
        },
      });
    }
    done();
  });
}
