/**
 * The judge's figures in docs/conformance.md: how many peers it is measured with, each check with the number of wrong peers that it must
 * catch, and the right peers that it must not accuse.
 *
 *   npm run judge:figures        writes them; figures.test.ts fails while they are old
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CALLER_CASES, PARTNER_CASES, SCENARIO_CASES, TOKEN_CASES } from '../src/cases/index.ts';
import { WRONG_CALLERS, WRONG_IN_SCENARIOS } from './peers/callers.ts';
import { WRONG_PARTNERS } from './peers/partners.ts';
import { WRONG_PLATFORMS } from './peers/platforms.ts';
import { RIGHT_CALLERS, RIGHT_PARTNERS, RIGHT_PLATFORMS } from './peers/right.ts';

export const PAGE = join(import.meta.dirname, '../../../docs/conformance.md');

const [BEGIN, END] = ['<!-- figures: npm run judge:figures -->', '<!-- end of the figures -->'];

/** The page with the figures of today. */
export function withFigures(page: string): string {
  const [before, rest = ''] = page.split(BEGIN);
  const [, after = ''] = rest.split(END);
  return `${before ?? ''}${BEGIN}\n\n${figures()}\n${END}${after}`;
}

const table = (heads: readonly string[], rows: readonly (readonly (string | number)[])[]): string =>
  [heads, heads.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');

function figures(): string {
  const wrong = [...WRONG_PARTNERS, ...WRONG_PLATFORMS, ...WRONG_CALLERS];
  const sides = table(
    ['side', 'checks', 'wrong peers', 'right peers'],
    [
      ['a partner (P)', PARTNER_CASES.length, WRONG_PARTNERS.length, RIGHT_PARTNERS.length],
      ['a token endpoint (T)', TOKEN_CASES.length, WRONG_PLATFORMS.length, RIGHT_PLATFORMS.length],
      ['a caller (C)', CALLER_CASES.length, WRONG_CALLERS.length, RIGHT_CALLERS.length],
      ['a caller in a scenario (F)', SCENARIO_CASES.length, WRONG_IN_SCENARIOS.length, 'the same'],
    ],
  );
  const checks = table(
    ['check', 'what it verifies', 'rules', 'severity', 'wrong peers'],
    [
      ...[...PARTNER_CASES, ...TOKEN_CASES, ...CALLER_CASES].map((one) => [
        one.id,
        one.title,
        one.clauses.join(' '),
        `${one.severity ?? 'must'}${one.profile === 'strict' ? ', strict' : ''}`,
        wrong.filter(({ breaks }) => breaks === one.id).length,
      ]),
      [
        SCENARIO_CASES.map(({ id }) => id).join(' '),
        'what a platform does while a [partner fails](faults.md)',
        'as named there',
        'as named there',
        'one each',
      ],
    ],
  );
  const warned = RIGHT_PARTNERS.flatMap(({ name, warns }) =>
    warns === undefined ? [] : `${name} (${warns.join(', ')})`,
  );
  return `${sides}\n\n${checks}\n\nOf the right partners these are warned, each a partner:\n\n${warned.map((name) => `- ${name}`).join('\n')}\n`;
}

if (import.meta.main) writeFileSync(PAGE, withFigures(readFileSync(PAGE, 'utf8')));
