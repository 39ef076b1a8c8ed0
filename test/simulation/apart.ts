/**
 * Worlds in a thread of their own. The test runner follows every promise of its thread, with which the same worlds took a third more
 * processor time.
 */
import assert from 'node:assert/strict';
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
  // A world that throws ends the thread: the next one would wait for its answer for ever.
  const ended = once(thread, 'exit').then(() => assert.fail('the thread of the worlds has ended'));
  ended.catch(() => undefined);
  return async (asked) => {
    thread.postMessage(asked, []);
    const [outcome] = (await Promise.race([once(thread, 'message'), ended])) as [Outcome];
    return outcome;
  };
}
