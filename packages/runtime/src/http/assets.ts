/** Files for browsers: read and compressed once, sent plain or compressed. Also names the media type of each. */
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { Refusal } from '@duebridge/contract';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** A file as it is sent. */
export type Asset = Awaited<ReturnType<typeof toAsset>>;

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  json: 'application/json; charset=utf-8',
};

/** An asset of these bytes; the type follows from the name. */
export async function toAsset(name: string, plain: Buffer) {
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  return { type, plain, gzip: await promisify(gzip)(plain, { level: 9 }) };
}

/** Sends an asset, compressed where the browser takes that. */
export function sendAsset(
  request: FastifyRequest,
  reply: FastifyReply,
  asset: Asset,
): FastifyReply {
  reply.type(asset.type).header('Vary', 'Accept-Encoding');
  const accepted = request.headers['accept-encoding'] ?? '';
  if (!/\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:,|$))/.test(accepted)) return reply.send(asset.plain);
  return reply.header('Content-Encoding', 'gzip').send(asset.gzip);
}

/** A folder that a build fills. */
export interface BuiltFolder {
  readonly manifest: unknown;
  readonly asset: (path: string) => Promise<Asset>;
  readonly text: (path: string) => Promise<string>;
}

/**
 * What `load` makes of a build's folder, loaded at once and kept. Until the folder has a manifest.json each call tries again, because
 * the build may be running, and throws Refusal SERVICE_UNAVAILABLE. `folder` ends with a slash.
 */
export function builtOnce<T>(
  folder: URL,
  load: (built: BuiltFolder) => Promise<T>,
): () => Promise<T> {
  const read = (path: string): Promise<Buffer> => readFile(new URL(path, folder));
  const loadNow = async (): Promise<T> => {
    const manifest = await read('manifest.json').catch(() => {
      throw new Refusal('SERVICE_UNAVAILABLE', {
        message: 'The pages are not built yet: run "npm run prepare" and reload',
        headers: { 'Retry-After': '5' },
      });
    });
    return load({
      manifest: JSON.parse(manifest.toString()),
      asset: async (path) => toAsset(path, await read(path)),
      text: async (path) => (await read(path)).toString(),
    });
  };
  let loaded: Promise<T> | undefined;
  const get = (): Promise<T> => {
    const loading = (loaded ??= loadNow());
    loading.catch(() => {
      if (loaded === loading) loaded = undefined;
    });
    return loading;
  };
  get().catch(() => undefined);
  return get;
}
