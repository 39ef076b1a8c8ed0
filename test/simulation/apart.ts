/**
 * Worlds in a thread of their own. The test runner follows every promise of its thread, with which the same worlds took a third more
 * processor time.
 */
import { once } from 'node:events';
import { after } from 'node:test';
import { Worker } from 'node:worker_threads';
import type { Outcome } from './world.ts';

/** What the thread is asked for: the world of a seed, with the bug of a number planted in its code or with none. */
export interface Asked {
  readonly seed: number;
  readonly bug?: number;
}

/** Opens the thread for a test file; it runs one world at a time. */
export function worldsApart(): (asked: Asked) => Promise<Outcome> {
  // Without what was loaded into this thread: the limit of a test file's progress is one of the test runner.
  const thread = new Worker(new URL('./thread.ts', import.meta.url), { execArgv: [] });
  after(() => thread.terminate());
  return async (asked) => {
    thread.postMessage(asked, []);
    const [outcome] = (await once(thread, 'message')) as [Outcome];
    return outcome;
  };
}
