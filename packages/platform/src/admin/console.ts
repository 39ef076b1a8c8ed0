/**
 * The operator console's page and files, on the admin listener. They hold no data: the page reads everything from the admin API,
 * with the cookie of the operator who signed in.
 */
import { Refusal } from '@duebridge/contract';
import { builtOnce, sendAsset } from '@duebridge/runtime';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

const headers = {
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; '),
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
  'Cross-Origin-Opener-Policy': 'same-origin',
};

/** Serves `/`, `/console…` and `/console/assets/…`. `dist` ends with a slash. */
export function serveConsole(app: FastifyInstance, dist: URL): void {
  const files = builtOnce(dist, async ({ manifest, asset }) => {
    const { console: built } = manifest as { console: { html: string; assets: string[] } };
    const assets = built.assets.map(
      async (file) => [file, await asset(`console/${file}`)] as const,
    );
    return {
      html: await asset(`console/${built.html}`),
      assets: new Map(await Promise.all(assets)),
    };
  });
  const page = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> =>
    sendAsset(request, reply.headers(headers), (await files()).html);
  app.get('/', (_request, reply) => reply.redirect('/console'));
  // The page itself knows which of its addresses there are.
  for (const path of ['/console', '/console/*']) app.get(path, page);
  app.get<{ Params: { file: string } }>('/console/assets/:file', async (request, reply) => {
    const asset = (await files()).assets.get(request.params.file);
    if (asset === undefined) throw new Refusal('NOT_FOUND');
    reply.headers({ ...headers, 'Cache-Control': 'private, max-age=31536000, immutable' });
    return sendAsset(request, reply, asset);
  });
}
