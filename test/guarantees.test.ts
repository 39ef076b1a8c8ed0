/**
 * Every guarantee that code or a test refers to can be opened in docs/guarantees.md, and every one of them has a test.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 writes the lists of tests anew instead of comparing them.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import test from 'node:test';
import { format, resolveConfig } from 'prettier';

const root = join(import.meta.dirname, '..');
const PAGE = 'docs/guarantees.md';
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

const ID = /\b(?:PL|KT|EE|LV)\d{1,2}\b/g;
/** A fault of docs/faults.md; the figures of the benchmarks (bench/README.md) have one digit. */
const FAULT = /\bF\d{2,3}\b/g;
/** A document that the repository does not hold. */
const ELSEWHERE =
  /\b(?:reliability|performance|frontend|house) (?:F?\d|fact\b)|\b(?:performance|frontend|house)\.md\b/g;
/** A letter and a number alone: too much like the ids of conformance checks (P01, T01). */
const OLD_ID = /(?<![\w.#$/-])[PQEL](?:[1-9]|1[0-6])(?![\w.])/;
/** A test with ids at the end of its title; `inEngine` defines one in each browser engine. */
const TITLE = /\b(?:test|it|inEngine)\(\s*(['"`])((?:(?!\1).)*?)\s*\[([A-Z0-9 ]+)\]\1/gs;

/** One guarantee: its id, the sentence and where it is enforced, without the list of its tests. */
const LINE = /^- \*\*([A-Z]{2}\d{1,2})\*\*[^\n]*\n(?: {2}(?!- )[^\n]*\n)*/gm;

const testFiles = globSync(
  ['packages/*/{src,test}/**/*.test.{ts,tsx}', 'packages/*/*.test.ts', 'test/**/*.test.ts'],
  { cwd: root },
).sort();

/** Titles of the tests that name a guarantee, by its id. */
function proofs(): Map<string, { readonly file: string; readonly title: string }[]> {
  const found = new Map<string, { file: string; title: string }[]>();
  for (const file of testFiles) {
    for (const [, , title = '', ids = ''] of read(file).matchAll(TITLE)) {
      for (const [id] of ids.matchAll(ID)) {
        found.set(id, [...(found.get(id) ?? []), { file, title }]);
      }
    }
  }
  return found;
}

test('a guarantee without a test, or a list of tests that is not theirs, does not build', async () => {
  const tests = proofs();
  const page = read(PAGE);
  const stripped = page.replaceAll(/^ {2}- (?:Tests: )?\[[^\]]*\]\(\S*\.test\.tsx?\).*\n/gm, '');
  const written = stripped.replaceAll(
    LINE,
    (line, id: string) =>
      `${line.trimEnd()}\n${(tests.get(id) ?? [])
        .map(({ file, title }) => `  - [${title}](${relative('docs', file)})\n`)
        .join('')}`,
  );
  const printed = await format(written, {
    ...(await resolveConfig(join(root, PAGE))),
    parser: 'markdown',
  });
  if (process.env['DUEBRIDGE_UPDATE_DOCS'] === '1') writeFileSync(join(root, PAGE), printed);
  else assert.equal(page, printed, `DUEBRIDGE_UPDATE_DOCS=1 writes ${PAGE} anew`);
  const bare = listed(printed).filter((id) => !tests.has(id));
  assert.deepEqual(bare, [], 'no test carries these ids');
  const nowhere = [...printed.matchAll(LINE)]
    .filter(([line]) => !/Enforced (?:in|by)\s/.test(line))
    .map(([, id]) => id);
  assert.deepEqual(nowhere, [], 'these lines do not say where they are enforced');
});

test('an id in the code leads to a line that can be opened', () => {
  const known = new Set(listed(read(PAGE)));
  const sources = globSync(
    ['packages/*/{src,test}/**/*.{ts,tsx,sql,css}', '{bin,demo,test,scripts,bench}/**/*.ts'],
    { cwd: root },
  );
  for (const [id] of read('docs/faults.md').matchAll(FAULT)) known.add(id);
  const strangers = sources.flatMap((file) => {
    const text = read(file);
    return [...text.matchAll(ID), ...text.matchAll(FAULT), ...text.matchAll(ELSEWHERE)]
      .map(([id]) => id)
      .filter((id) => !known.has(id))
      .map((id) => `${file}: ${id}`);
  });
  assert.deepEqual(strangers, []);
  const old = sources
    .filter((file) => !/^packages\/(?:conformance|web)\//.test(file))
    .flatMap((file) =>
      read(file)
        .split('\n')
        .filter((line) => /^\s*(?:\/\/|\/?\*|--)/.test(line) && OLD_ID.test(line))
        .map((line) => `${file}: ${line.trim()}`),
    );
  assert.deepEqual(old, [], 'guarantees are named by the ids of docs/guarantees.md');
});

/** The ids of the page, in its order. */
function listed(page: string): string[] {
  return [...page.matchAll(/^- \*\*([A-Z]{2}\d{1,2})\*\*/gm)].map(([, id = '']) => id);
}
