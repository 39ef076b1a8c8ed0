/**
 * Which tests prove what: takes the ids at the end of test titles, gives them by id.
 *
 * `npm run proofs -- PL1 F70` lists the tests of a guarantee (docs/guarantees.md), a fault (docs/faults.md) or a rule of the interface
 * (clauses.ts).
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

/** A test with ids at the end of its title; `inEngine` defines one in a browser, `testInRealTime` one that may be skipped. */
const TITLE =
  /\b(?:test|testInRealTime|it|inEngine)\(\s*(['"`])((?:(?!\1).)*?)\s*\[([A-Z0-9 ]+)\]\1/gs;

/** A test that claims an id. */
export interface Proof {
  /** Its path in the repository. */
  readonly file: string;
  /** Its title without the ids. */
  readonly title: string;
}

/** The tests of each claimed id, in the order of their files. */
export function proofs(): ReadonlyMap<string, readonly Proof[]> {
  const found = new Map<string, Proof[]>();
  const files = globSync(
    ['packages/*/{src,test}/**/*.test.{ts,tsx}', 'packages/*/*.test.ts', 'test/**/*.test.ts'],
    { cwd: root },
  ).sort();
  for (const file of files) {
    const text = readFileSync(join(root, file), 'utf8');
    for (const [, , title = '', ids = ''] of text.matchAll(TITLE)) {
      for (const id of ids.split(' ')) found.set(id, [...(found.get(id) ?? []), { file, title }]);
    }
  }
  return found;
}

if (import.meta.main) {
  const found = proofs();
  const ids = process.argv.slice(2);
  if (ids.length === 0) {
    console.error('Name the ids to look up: npm run proofs -- PL1 F70');
    process.exitCode = 3;
  }
  for (const id of ids) {
    const tests = (found.get(id) ?? []).map(({ file, title }) => `\n  ${title}\n    ${file}`);
    console.log(`${id}: ${tests.join('') || 'no test'}`);
  }
}
