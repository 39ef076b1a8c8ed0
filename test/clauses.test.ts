/**
 * Every rule of the interface is claimed by a test or a conformance check, and no claim names a rule
 * that does not exist. A claim is the list of ids in brackets at the end of a test's title.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { CLAUSES, isClauseId } from '@duebridge/contract';

const root = join(import.meta.dirname, '..');
const TITLE = /\b(?:test|it|inEngine)\(\s*(['"`])((?:(?!\1).)*?)\s*\[([A-Z0-9 ]+)\]\1/gs;

function claims(): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const files = globSync(['packages/*/{src,test}/**/*.test.{ts,tsx}', 'test/**/*.test.ts'], {
    cwd: root,
  });
  for (const file of files) {
    for (const [, , title = '', ids = ''] of readFileSync(join(root, file), 'utf8').matchAll(
      TITLE,
    )) {
      for (const id of ids.split(' ')) {
        found.set(id, [...(found.get(id) ?? []), `${file}: ${title}`]);
      }
    }
  }
  return found;
}

test('no rule of the interface is without a test', () => {
  const found = claims();
  const bare = Object.keys(CLAUSES).filter((id) => !found.has(id));
  assert.deepEqual(bare, []);
});

test('no test claims a rule that does not exist', () => {
  // Ids of guarantees stand beside those of rules; test/guarantees.test.ts looks at them.
  const strangers = [...claims()].filter(
    ([id]) => !isClauseId(id) && !/^(?:PL|KT|EE|LV)\d{1,2}$/.test(id),
  );
  assert.deepEqual(strangers, []);
});

test('our list of rules is the one that the rules are published under', () => {
  // The list was fixed when the interface was read; a change here is a change of the interface.
  assert.equal(Object.keys(CLAUSES).length, 52);
});
