/** A new sheet replaces the old one and nothing else. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { withSheet } from './reliability-sheet.ts';

const page = readFileSync(join(import.meta.dirname, '../docs/reliability.md'), 'utf8');
const outside = (text: string): string[] => {
  const [before = '', rest = ''] = text.split('<!-- measured');
  return [before, rest.split('<!-- end of what was measured -->')[1] ?? ''];
};

test('a sheet that is written anew leaves what people wrote around it', () => {
  const once = withSheet(page, { seeds: 1, faults: { 'worker killed': 2 } }, ['the moon']);
  assert.deepEqual(outside(once), outside(page));
  assert.ok(outside(page)[0]?.includes('# Reliability'));
  const twice = withSheet(once, { seeds: 7 }, []);
  assert.ok(twice.includes('| seeds | 7 |'));
  assert.ok(!twice.includes('worker killed') && !twice.includes('The moon.'));
  assert.deepEqual(outside(twice), outside(page));
});

test('a page without its marks, or with two of them, is not overwritten', () => {
  assert.throws(() => withSheet('# Reliability', {}, []), /needs one/);
  assert.throws(() => withSheet(page + page, {}, []), /needs one/);
});
