/**
 * Reloads the code under simulation with one planted bug in it.
 *
 * The engine, the kit and the world are imported under a separate URL for each bug (`?planted=N`), so that many bugs share
 * one process and one PostgreSQL. What both must share, because they compare its classes, is loaded once: contract, runtime, and the
 * simulated time and database.
 */
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';
import { PLANTED, type Planted } from './planted.ts';
import type { runWorld } from './world.ts';

const SHARED =
  /\/packages\/(?:contract|runtime(?!\/src\/name-lookup)|web)\/|\/test\/simulation\/(?:chance|database|time|planted|plant)\.ts/;
const OURS = /\/packages\/[a-z]+\/src\/|\/test\/simulation\//;

const applied = new Set<number>();

registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    const planted =
      /\?planted=\d+/.exec(specifier)?.[0] ?? /\?planted=\d+/.exec(context.parentURL ?? '')?.[0];
    const [url = ''] = resolved.url.split('?');
    if (planted === undefined || SHARED.test(url) || !OURS.test(url)) return resolved;
    return { ...resolved, url: url + planted };
  },
  load(url, context, next) {
    const [file = '', query = ''] = url.split('?planted=');
    const loaded = next(query === '' ? url : file, context);
    const planted = query === '' ? undefined : PLANTED[Number(query)];
    if (planted === undefined || !file.endsWith(`/packages/${planted.file}`)) return loaded;
    applied.add(Number(query));
    return { ...loaded, source: plantIn(textOf(loaded.source), planted) };
  },
});

function textOf(source: unknown): string {
  assert.ok(typeof source === 'string' || source instanceof Uint8Array);
  return typeof source === 'string' ? source : Buffer.from(source).toString('utf8');
}

/** The source with the bug in it. Fails when the text is not there exactly once. */
function plantIn(source: string, { name, file, find, replace }: Planted): string {
  assert.equal(source.split(find).length - 1, 1, `"${name}": its text must stand in ${file} once`);
  return source.replace(find, () => replace);
}

/** The simulator over code with one bug in it. */
export async function withBug(index: number): Promise<typeof runWorld> {
  const module = (await import(`./world.ts?planted=${index}`)) as { runWorld: typeof runWorld };
  assert.ok(
    applied.has(index),
    `"${PLANTED[index]?.name ?? ''}" is in a file that the simulator does not load`,
  );
  return module.runWorld;
}
