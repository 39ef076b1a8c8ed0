/** docs/conformance.md has the figures of today, and names every check. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { CALLER_CASES, PARTNER_CASES, SCENARIO_CASES, TOKEN_CASES } from '../src/cases/index.ts';
import { PAGE, withFigures } from './figures.ts';

test('docs/conformance.md names every check, with the figures of today', () => {
  const page = readFileSync(PAGE, 'utf8');
  for (const { id } of [...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES, ...SCENARIO_CASES]) {
    assert.match(page, new RegExp(`^\\|.*\\b${id}\\b`, 'm'), `${id} is missing`);
  }
  const squeezed = (text: string): string => text.replaceAll(/[ -]+/g, ' ');
  assert.equal(squeezed(withFigures(page)), squeezed(page), 'npm run judge:figures writes them');
});
