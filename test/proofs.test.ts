/**
 * Every rule of the interface, every guarantee and every fault has a test, and no test or comment names one that does not exist.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { SCENARIOS } from '@duebridge/conformance/scripted-partner';
import { CLAUSES } from '@duebridge/contract';
import { proofs } from '../scripts/proofs.ts';

const root = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

const GUARANTEE = /\b(?:PL|KT|EE|LV)\d{1,2}\b/g;
/** A fault; the figures of the benchmarks (bench/README.md) have one digit. */
const FAULT = /\bF\d{2,3}\b/g;
/** A document that the repository does not hold. */
const ELSEWHERE =
  /\b(?:reliability|performance|frontend|house) (?:F?\d|fact\b)|\b(?:performance|frontend|house)\.md\b/g;

/** The entries of a page: each begins with its id in bold, and ends where the next one or a heading begins. */
function entries(page: string): ReadonlyMap<string, string> {
  return new Map(
    [...read(page).matchAll(/^- \*\*([A-Z]{1,2}\d+)\*\*(?:[^\n]|\n(?!- \*\*|#))*/gm)].map(
      ([text, id = '']) => [id, text],
    ),
  );
}

const found = proofs();
const guarantees = entries('docs/guarantees.md');
const faults = entries('docs/faults.md');
/** Faults of the partner: test/conformance-platform.full.test.ts has the judge drive our platform through all of them. */
const scenarios = SCENARIOS.map(({ name }) => name.slice(0, 3));

test('no rule of the interface, guarantee or fault is without a test', () => {
  assert.deepEqual(
    Object.keys(CLAUSES).filter((id) => !found.has(id)),
    [],
  );
  assert.ok(guarantees.size > 0 && faults.size > 0);
  assert.deepEqual(
    [...guarantees.keys()].filter((id) => !found.has(id)),
    [],
  );
  const untried = [...faults]
    .filter(([id, text]) => !found.has(id) && !/Crash rig: |Not tested: /.test(text))
    .map(([id]) => id);
  assert.deepEqual(untried, [], 'no test has the id, and the page names neither rig nor reason');
  assert.deepEqual(
    [...guarantees].filter(([, text]) => !/Enforced (?:in|by)\s/.test(text)).map(([id]) => id),
    [],
    'these lines do not say where they are enforced',
  );
});

test('no test and no comment names a rule, guarantee or fault that does not exist', () => {
  const known = new Set<string>([...guarantees.keys(), ...faults.keys(), ...scenarios]);
  const rules = new Set(Object.keys(CLAUSES));
  assert.deepEqual(
    [...found.keys()].filter((id) => !known.has(id) && !rules.has(id)),
    [],
  );
  const sources = globSync(
    ['packages/*/{src,test}/**/*.{ts,tsx,sql,css}', '{bin,demo,test,scripts,bench}/**/*.ts'],
    { cwd: root },
  );
  const strangers = sources.flatMap((file) => {
    const text = read(file);
    return [GUARANTEE, FAULT, ELSEWHERE].flatMap((pattern) =>
      [...text.matchAll(pattern)].filter(([id]) => !known.has(id)).map(([id]) => `${file}: ${id}`),
    );
  });
  assert.deepEqual(strangers, []);
});

test('the list of rules is the one that the interface was read into', () => {
  // The list was fixed when the interface was read; a change here is a change of the interface.
  assert.equal(Object.keys(CLAUSES).length, 52);
});
