import { testTools } from '../../scripts/tool.ts';

/** A page with a part that was printed anew, formatted as `npm run format` would. `file` is its path. */
export async function formatted(page: string, file: string): Promise<string> {
  const { format, resolveConfig } = await (await testTools()).prettier();
  return format(page, { ...(await resolveConfig(file)), parser: 'markdown' });
}
