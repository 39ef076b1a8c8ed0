/**
 * Reloads the code under simulation with one planted bug in it.
 *
 * The file of a bug, and every module that imports it in turn, is imported under a separate URL for each bug (`?planted=N`), so that many
 * bugs share one process, one PostgreSQL and all other code. What both must share, because they compare its classes, is loaded once:
 * contract, runtime, and the simulated time and database.
 */
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';
import { PLANTED, type Planted } from './planted.ts';
import type { runWorld } from './world.ts';

const SHARED =
  /\/packages\/(?:contract|runtime(?!\/src\/name-lookup)|web)\/|\/test\/simulation\/(?:chance|database|time|planted|plant)\.ts/;
const OURS = /\/packages\/[a-z]+\/src\/|\/test\/simulation\//;

const applied = new Set<number>();
/** Which modules import a module: known once the code has been loaded without a bug. */
const importers = new Map<string, Set<string>>();
/** The modules that are loaded anew for a bug. */
const changed = new Map<string, ReadonlySet<string>>();

registerHooks({
  resolve(specifier, context, next) {
    const resolved = next(specifier, context);
    const planted =
      /\?planted=\d+/.exec(specifier)?.[0] ?? /\?planted=\d+/.exec(context.parentURL ?? '')?.[0];
    const [url = ''] = resolved.url.split('?');
    if (SHARED.test(url) || !OURS.test(url)) return resolved;
    if (planted !== undefined) {
      return changed.get(planted)?.has(url) === true
        ? { ...resolved, url: url + planted }
        : resolved;
    }
    const known = importers.get(url) ?? new Set();
    importers.set(url, known.add(context.parentURL ?? ''));
    return resolved;
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

/** The module of a file, and those that import it, directly or not. */
function importing(file: string): ReadonlySet<string> {
  const found = new Set([...importers.keys()].filter((url) => url.endsWith(`/packages/${file}`)));
  for (const url of found) for (const importer of importers.get(url) ?? []) found.add(importer);
  return found;
}

/** The simulator over code with one bug in it. */
export async function withBug(index: number): Promise<typeof runWorld> {
  await import('./world.ts');
  changed.set(`?planted=${index}`, importing(PLANTED[index]?.file ?? ''));
  const module = (await import(`./world.ts?planted=${index}`)) as { runWorld: typeof runWorld };
  assert.ok(
    applied.has(index),
    `"${PLANTED[index]?.name ?? ''}" is in a file that the simulator does not load`,
  );
  return module.runWorld;
}
