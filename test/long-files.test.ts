/** A source file of more than 600 lines is a table, or says at its top why it is one file. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';

const root = join(import.meta.dirname, '..');
const LIMIT = 600;

test('a long file says at its top why it is one', () => {
  const silent = globSync(
    ['packages/*/{src,test}/**/*.{ts,tsx}', '{bin,cli,demo,test,scripts,bench}/**/*.ts'],
    { cwd: root, exclude: (name) => name === 'node_modules' },
  )
    // Tests are lists of cases.
    .filter((file) => !/\.test\.tsx?$/.test(file))
    .filter((file) => {
      const text = readFileSync(join(root, file), 'utf8');
      // The last line ends with a line feed, too.
      if (text.split('\n').length - 1 <= LIMIT) return false;
      const [heading = ''] = /\/\*\*.*?\*\//s.exec(text) ?? [];
      return !/One file because|A table:/.test(heading);
    });
  assert.deepEqual(silent, []);
});
