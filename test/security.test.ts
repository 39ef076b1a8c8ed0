/** Each line of the checklist in SECURITY.md names tests that exist: a promise whose test is gone is none. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';

const root = join(import.meta.dirname, '..');

/** The lines of the checklist, each with the tests beneath it. */
function checklist(): Map<string, { readonly title: string; readonly file: string }[]> {
  const page = readFileSync(join(root, 'SECURITY.md'), 'utf8');
  const part = page.slice(page.indexOf('## Checklist'), page.indexOf('### Not done'));
  const lines = new Map<string, { title: string; file: string }[]>();
  let tests: { title: string; file: string }[] | undefined;
  // One item is one paragraph, however long its lines are.
  for (const item of part.split(/\n(?= *- )/).slice(1)) {
    const text = item.replaceAll(/\s+/g, ' ').trim();
    const [, title, file] = /^- \[(.+)\]\((\S+\.test\.ts)\)/.exec(text) ?? [];
    if (title !== undefined && file !== undefined) {
      assert.ok(tests, `${title} belongs to no line`);
      tests.push({ title, file });
    } else {
      tests = [];
      lines.set(text, tests);
    }
  }
  return lines;
}

test('every line of the security checklist names a test that exists', () => {
  const lines = checklist();
  assert.ok(lines.size > 40, `${lines.size} lines`);
  for (const [line, tests] of lines) {
    assert.ok(tests.length > 0, `no test proves: ${line}`);
    for (const { title, file } of tests) {
      const source = readFileSync(join(root, file), 'utf8').replaceAll(/\s+/g, ' ');
      // `inEngine` defines a test in each browser engine.
      const isThere = ['test', 'testInRealTime', 'inEngine'].some((define) =>
        ["'", '`', '"'].some(
          (quote) =>
            source.includes(`${define}(${quote}${title}`) ||
            source.includes(`${define}( ${quote}${title}`),
        ),
      );
      assert.ok(isThere, `${file} has no test "${title}", which SECURITY.md names for: ${line}`);
    }
  }
});
