import assert from 'node:assert/strict';
import test from 'node:test';
import { repeatedly } from './repeatedly.ts';
import { manualClock } from '../test/testing.ts';
import { silentLog } from './log.ts';

test('work is repeated after a pause, at once while there is more, and an outage is one line', async () => {
  const clock = manualClock();
  const stop = new AbortController();
  const lines: string[] = [];
  const log = { ...silentLog, warn: (_: object, line: string) => void lines.push(line) };
  const answers = [true, false, 'down', 'down', false, 'down', false];
  const at: number[] = [];
  const ended = repeatedly({ clock, log, signal: stop.signal }, 100, 'it failed', async () => {
    at.push(clock.monotonic());
    const answer = answers[at.length - 1];
    if (answer === 'down') throw new Error('the database is away');
    return answer === true;
  });
  await clock.advance(550);
  stop.abort();
  await ended;
  assert.deepEqual(at, [0, 0, 100, 200, 300, 400, 500]);
  assert.deepEqual(lines, ['it failed', 'it failed']);
});
