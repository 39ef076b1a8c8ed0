import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { abortWith } from './abort.ts';

test('what is over leaves nothing behind at the signal of a stop', () => {
  const stop = new AbortController();
  const [over, late, after] = [new AbortController(), new AbortController(), new AbortController()];
  const unlink = abortWith(over, stop.signal);
  abortWith(late, stop.signal);
  unlink();
  assert.equal(getEventListeners(stop.signal, 'abort').length, 1);
  stop.abort('the stop');
  abortWith(after, stop.signal);
  assert.deepEqual(
    [over, late, after].map(({ signal }) => signal.aborted),
    [false, true, true],
  );
  assert.equal(late.signal.reason, 'the stop');
});

test('no server combines signals in the way that leaks on Node 22', () => {
  const packages = join(import.meta.dirname, '../..');
  const files = globSync('{partner,platform,runtime}/src/**/*.ts', { cwd: packages });
  assert.ok(files.length > 100);
  const leaking = files.filter((file) =>
    readFileSync(join(packages, file), 'utf8').match(/AbortSignal\.any\(/),
  );
  assert.deepEqual(leaking, []);
});
