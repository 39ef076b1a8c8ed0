/** The parent of a process that runs tests against one mutant after another (warm.ts): starts it, limits it, replaces it. */
import { fork, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Spans } from './spans.ts';
import type { Task, Verdict } from './warm.ts';

/** Modules of earlier mutants stay in the process's memory, so it is replaced after so many. */
const MUTANTS_OF_ONE_PROCESS = 100;
/** Processor time that a mutant may take: this multiple of what the unchanged code takes, and at least LEAST_MS. */
const PATIENCE = 8;
const LEAST_MS = 1_500;
/** A test that waits for something which never happens takes no processor time. Long enough for a busy machine. */
const WALL_MS = 120_000;
const LOOK_MS = 250;

/**
 * `fails`: a test failed. `does not end`: the tests took far more processor time than on the unchanged code, which other processes on
 * the machine cannot cause. `unclear`: the process died, or waits; the tests have to be run by node:test.
 */
export type WarmFate = 'passes' | 'fails' | 'does not end' | 'unclear';

interface Ended {
  readonly fate: WarmFate;
  readonly verdict?: Verdict;
}

/** Runs the tests of one file at a time. */
export class WarmTests {
  #child: ChildProcess | undefined;
  #left = 0;
  #test: string | undefined;
  /** What V8 counted on the unchanged code, and the processor time that it took. */
  #right: { readonly files: Spans['files']; readonly ms: number } = { files: {}, ms: 0 };

  /** Which code the tests of a file reach, by file path. Throws if one fails on the unchanged code. */
  async reach(test: string): Promise<Spans['files']> {
    if (this.#child === undefined || this.#left === 0 || this.#test !== test)
      await this.#start(test);
    return this.#right.files;
  }

  /** Runs all tests of a file against a mutant. Throws if one fails on the unchanged code. */
  async run(
    test: string,
    mutant: { readonly file: string; readonly text: string },
  ): Promise<WarmFate> {
    await this.reach(test);
    this.#left -= 1;
    const { fate } = await this.#tried(
      { test, mutant },
      Math.max(LEAST_MS, PATIENCE * this.#right.ms),
    );
    // What such a mutant left behind must not kill a later one.
    if (fate !== 'passes' && fate !== 'fails') this.end();
    return fate;
  }

  /** Ends the process. */
  end(): void {
    this.#child?.kill('SIGKILL');
    this.#child = undefined;
  }

  async #start(test: string): Promise<void> {
    this.end();
    this.#left = MUTANTS_OF_ONE_PROCESS;
    this.#test = test;
    const { fate, verdict } = await this.#tried({ test }, Infinity);
    if (fate !== 'passes') throw new Error(`over the right code ${test}: ${fate}`);
    this.#right = { files: verdict?.files ?? {}, ms: verdict?.cpuMs ?? 0 };
  }

  async #tried(task: Task, limitMs: number): Promise<Ended> {
    const child = (this.#child ??= fork(join(import.meta.dirname, 'warm.ts'), {
      // A test that measures memory must not be told of what earlier mutants left.
      execArgv: ['--expose-gc'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    }));
    const from = cpuMs(child.pid) ?? 0;
    const started = performance.now();
    const end = Promise.withResolvers<Ended>();
    const look = setInterval(() => {
      const used = cpuMs(child.pid);
      if (used !== undefined && used - from > limitMs) end.resolve({ fate: 'does not end' });
      else if (performance.now() - started > WALL_MS) end.resolve({ fate: 'unclear' });
    }, LOOK_MS);
    const told = (verdict: Verdict): void =>
      end.resolve({ fate: verdict.failed === undefined ? 'passes' : 'fails', verdict });
    const gone = (): void => end.resolve({ fate: 'unclear' });
    child.once('message', told);
    child.once('exit', gone);
    child.send(task);
    try {
      return await end.promise;
    } finally {
      clearInterval(look);
      child.off('message', told);
      child.off('exit', gone);
    }
  }
}

/** Processor time of a process so far, in milliseconds; undefined where the system does not tell. */
function cpuMs(pid: number | undefined): number | undefined {
  try {
    // The name, in parentheses, may contain spaces. Times are in hundredths of a second.
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return 10 * (Number(fields[11]) + Number(fields[12]));
  } catch {
    return undefined;
  }
}
