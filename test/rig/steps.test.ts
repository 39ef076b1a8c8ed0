/** Names of statements exist for tests that wait for them: a name that only one of the two sides has watches for nothing. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { STEPS } from './steps.ts';

const root = join(import.meta.dirname, '../..');
const textsOf = (pattern: string): string[] =>
  globSync(pattern, { cwd: root }).map((file) => readFileSync(join(root, file), 'utf8'));

test('every step of the crash rig waits for a statement that there is, and every name of a statement has a test that waits for it', () => {
  const sources = textsOf('packages/{partner,platform}/src/**/*.ts').join('\n');
  const named = new Set([...sources.matchAll(/\bsql\(\s*'(\w+)',/g)].map(([, name]) => name ?? ''));
  const awaited = STEPS.flatMap(
    ({ at }) => /^(?:before|after) (?:commit of )?(\w+)/.exec(at)?.[1] ?? [],
  );
  assert.deepEqual(
    awaited.filter((name) => !named.has(name)),
    [],
  );
  const tests = textsOf('{packages/{partner,platform}/src/**/*.test.ts,test/rig/*.ts}').join('\n');
  assert.deepEqual(
    [...named].filter((name) => !tests.includes(name)),
    [],
  );
});
