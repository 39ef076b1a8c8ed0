/**
 * Preloaded into a test file: records which code each of its tests runs, so that a mutant is tested only by tests that reach it.
 *
 *   SPANS=/path/of/the/result.jsonl  SPANS_FILES=/path/one.ts:/path/two.ts
 *
 * Writes one line of JSON per top-level test: its name, its duration, and the ranges of each file that V8 counted while it ran. Code
 * in other processes is not recorded.
 */
import { appendFileSync } from 'node:fs';
import { Session, type Profiler } from 'node:inspector';
import { afterEach, beforeEach } from 'node:test';
import { pathToFileURL } from 'node:url';

const { SPANS = '', SPANS_FILES = '' } = process.env;

/** A test and the code it ran. */
export interface Spans {
  readonly name: string;
  readonly ms: number;
  /** By file path. */
  readonly files: Readonly<Record<string, readonly Profiler.FunctionCoverage[]>>;
}

// Programs started by a test inherit this preload; these hooks would turn them into test files.
if (SPANS !== '' && process.argv[1]?.endsWith('.test.ts') === true) {
  const files = new Map(SPANS_FILES.split(':').map((file) => [pathToFileURL(file).href, file]));
  const session = new Session();
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  let started = 0;
  beforeEach(() => {
    started = performance.now();
  });
  afterEach((context) => {
    const ran: Record<string, Profiler.FunctionCoverage[]> = {};
    session.post('Profiler.takePreciseCoverage', (error, taken) => {
      if (error) throw error;
      for (const { url, functions } of taken.result) {
        const file = files.get(url);
        if (file !== undefined) ran[file] = [...(ran[file] ?? []), ...functions];
      }
    });
    const [name = ''] = (context.fullName ?? context.name).split(' > ');
    const spans: Spans = { name, ms: performance.now() - started, files: ran };
    appendFileSync(SPANS, `${JSON.stringify(spans)}\n`);
  });
}
