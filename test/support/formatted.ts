import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { testTools } from '../../scripts/tool.ts';

const RULES = join(import.meta.dirname, '../../.oxfmtrc.json');

/** A page with a part that was printed anew, formatted as `npm run format` would. */
export async function formatted(page: string): Promise<string> {
  const { format } = await (await testTools()).oxfmt();
  const rules = JSON.parse(await readFile(RULES, 'utf8')) as Parameters<typeof format>[2];
  return (await format('page.md', page, rules)).code;
}
