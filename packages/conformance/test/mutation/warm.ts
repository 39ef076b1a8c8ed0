/**
 * Runs tests of one file against one mutant after another in a single process, which saves starting Node and loading the same
 * packages for each. Only for tests that need no server, no database, and nothing of node:test but `test` and `t.diagnostic`.
 *
 * The test file, and whatever it imports by a relative path, is loaded anew for each mutant: its URL gets a number. The parent
 * (warm-tests.ts) sends a Task, receives a Verdict, and kills this process when a mutant loops forever.
 */
import { Session } from 'node:inspector/promises';
import { registerHooks } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Spans } from './spans.ts';

/** Runs the tests of a file against one mutant. */
export interface Task {
  /** Path of the test file. */
  readonly test: string;
  /** Path of the mutated file, and its text; absent for the unchanged code, which comes first. */
  readonly mutant?: { readonly file: string; readonly text: string };
}

/** The outcome of a task. */
export interface Verdict {
  /** The title of the first test that failed; undefined if all passed. */
  readonly failed: string | undefined;
  /** Of the unchanged code: what V8 counted, by file path, and the processor time of its tests. */
  readonly files?: Spans['files'];
  readonly cpuMs?: number;
}

type Run = (context: { diagnostic(message: string): void }) => unknown;

const COLLECTOR = 'warm:test';
let number = 0;
let mutant: { readonly url: string; readonly text: string } | undefined;
let tests = new Map<string, Run>();
/** Titles, the quickest test first: most mutants do not live to see the others. */
let titles: readonly string[] = [];
const tookMs = new Map<string, number>();

Object.assign(globalThis, {
  collectTest: (title: string, run: Run) => void tests.set(title, run),
});

registerHooks({
  resolve(specifier, context, next) {
    const query = /\?mutant=\d+$/.exec(context.parentURL ?? '')?.[0];
    if (query === undefined) return next(specifier, context);
    if (specifier === 'node:test') return { url: COLLECTOR + query, shortCircuit: true };
    const found = next(specifier, context);
    return specifier.startsWith('.') ? { ...found, url: found.url + query } : found;
  },
  load(url, context, next) {
    if (url.startsWith(COLLECTOR)) {
      const source = 'export default globalThis.collectTest;';
      return { format: 'module', source, shortCircuit: true };
    }
    const loaded = next(url, context);
    return mutant !== undefined && url === `${mutant.url}?mutant=${number}`
      ? { ...loaded, source: mutant.text }
      : loaded;
  },
});

async function verdictOn(task: Task): Promise<Verdict> {
  number += 1;
  tests = new Map();
  globalThis.gc?.();
  mutant = task.mutant && { url: pathToFileURL(task.mutant.file).href, text: task.mutant.text };
  let title = 'loading';
  try {
    await import(`${pathToFileURL(task.test).href}?mutant=${number}`);
    for (title of mutant === undefined ? tests.keys() : titles) {
      const from = performance.now();
      await tests.get(title)?.({ diagnostic: () => undefined });
      tookMs.set(title, performance.now() - from);
    }
    return { failed: undefined };
  } catch {
    return { failed: title };
  }
}

/** The verdict on the unchanged code, which of it the tests reach, and how long they take. */
async function verdictOnRight(task: Task): Promise<Verdict> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  const { failed } = await verdictOn(task);
  const { result } = await session.post('Profiler.takePreciseCoverage');
  await session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
  const own = result.filter(({ url }) => url.startsWith('file:') && url.endsWith('?mutant=1'));
  if (failed !== undefined) return { failed };
  // Once more, because counting takes longer than the tests.
  const from = process.cpuUsage();
  const again = await verdictOn(task);
  const { user, system } = process.cpuUsage(from);
  titles = [...tests.keys()].toSorted(
    (one, other) => (tookMs.get(one) ?? 0) - (tookMs.get(other) ?? 0),
  );
  return {
    ...again,
    cpuMs: (user + system) / 1_000,
    files: Object.fromEntries(own.map(({ url, functions }) => [fileURLToPath(url), functions])),
  };
}

process.on('message', (task: Task) => {
  const verdict = task.mutant === undefined ? verdictOnRight(task) : verdictOn(task);
  void verdict.then((found) => process.send?.(found));
});
