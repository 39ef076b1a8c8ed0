/**
 * The operator console's page and files, on the admin listener. They hold no data: the page reads everything from the admin API,
 * with the cookie of the operator who signed in.
 */
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { Refusal } from '@duebridge/contract';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** The output directory of the build of packages/web. */
const builtPages = new URL('./dist/', import.meta.resolve('@duebridge/web/package.json'));

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

interface ConsoleFiles {
  readonly html: Buffer;
  readonly assets: ReadonlyMap<string, { readonly plain: Buffer; readonly gzip: Buffer }>;
}

/** Serves `/`, `/console…` and `/console/assets/…`. `dist` ends with a slash. */
export function serveConsole(app: FastifyInstance, dist: URL = builtPages): void {
  let loaded: Promise<ConsoleFiles> | undefined;
  const files = (): Promise<ConsoleFiles> => {
    loaded ??= loadConsole(dist).catch((error: unknown) => {
      loaded = undefined;
      throw error;
    });
    return loaded;
  };
  const page = async (_request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { html } = await files();
    return reply.headers(headers).type('text/html; charset=utf-8').send(html);
  };
  app.get('/', (_request, reply) => reply.redirect('/console'));
  app.get('/console', page);
  app.get('/console/', page);
  for (const path of [
    '/console/payments',
    '/console/payments/:id',
    '/console/bulk',
    '/console/partners',
    '/console/partners/:id',
    '/console/batches',
    '/console/batches/:id',
    '/console/reconciliation',
    '/console/audit',
    '/console/access',
    '/console/people',
    '/console/operators',
    '/console/settings',
  ]) {
    app.get(path, page);
  }
  app.get<{ Params: { file: string } }>('/console/assets/:file', async (request, reply) => {
    const { file } = request.params;
    const asset = (await files()).assets.get(file);
    if (asset === undefined) throw new Refusal('NOT_FOUND');
    reply
      .headers({ ...headers, 'Cache-Control': 'private, max-age=31536000, immutable' })
      .header('Vary', 'Accept-Encoding')
      .type(file.endsWith('.css') ? 'text/css; charset=utf-8' : 'text/javascript; charset=utf-8');
    if (!/\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) return reply.send(asset.plain);
    return reply.header('Content-Encoding', 'gzip').send(asset.gzip);
  });
}

async function loadConsole(dist: URL): Promise<ConsoleFiles> {
  const text = await readFile(new URL('manifest.json', dist), 'utf8').catch(() => {
    throw new Refusal('SERVICE_UNAVAILABLE', {
      message: 'The pages are not built yet: run "npm run prepare" and reload',
      headers: { 'Retry-After': '5' },
    });
  });
  const { console: built } = JSON.parse(text) as { console: { html: string; assets: string[] } };
  const assets = await Promise.all(
    built.assets.map(async (file) => {
      const plain = await readFile(new URL(`console/${file}`, dist));
      return [file, { plain, gzip: await promisify(gzip)(plain, { level: 9 }) }] as const;
    }),
  );
  return { html: await readFile(new URL(`console/${built.html}`, dist)), assets: new Map(assets) };
}
