/** What axe finds: WCAG A and AA up to 2.2, and its best practices. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AxeResults } from 'axe-core';
import type { Frame } from 'playwright-core';

/** The library, to be run in a page. */
export const AXE = readFileSync(
  join(import.meta.dirname, '../../node_modules/axe-core/axe.min.js'),
  'utf8',
);
export const AXE_RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** The violations in one frame, those within it apart; each with the elements that break the rule. */
export async function axeIn(frame: Frame, rules = AXE_RULES): Promise<string[]> {
  await frame.evaluate(AXE);
  return frame.evaluate(async (runOnly) => {
    const { axe } = window as unknown as { axe: { run(options: object): Promise<AxeResults> } };
    const options = { runOnly, resultTypes: ['violations'], iframes: false };
    const { violations } = await axe.run(options);
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
  }, rules);
}
