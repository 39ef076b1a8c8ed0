/** Every SQL statement of both servers as written in the source, for tests that state what no statement may do. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { testTools } from '../../scripts/tool.ts';

const { parseSync } = await (await testTools()).parser();

export type Side = 'platform' | 'partner';

/** A statement, or the part of one that stands in one text; a space stands for what is put in at run time. */
export interface Statement {
  /** Path below packages/SIDE/src. */
  readonly file: string;
  readonly text: string;
}

/** The texts of a side that name a table of its schema. */
export function statementsOf(side: Side): Statement[] {
  const folder = join(import.meta.dirname, '../../packages', side, 'src');
  return globSync('**/*.ts', { cwd: folder })
    .filter((file) => !/(^|\/)testing\.ts$|\.test\.ts$|^example\//.test(file))
    .toSorted()
    .flatMap((file) => {
      const found: string[] = [];
      collect(parseSync(file, readFileSync(join(folder, file), 'utf8')).program, found);
      return found
        .filter((text) => text.includes(`duebridge_${side}.`))
        .map((text) => ({ file, text: text.replaceAll(/\s+/g, ' ').trim() }));
    });
}

/** The strings of a syntax tree, without comments, which also name tables. */
function collect(node: unknown, found: string[]): void {
  if (Array.isArray(node)) {
    for (const one of node) collect(one, found);
    return;
  }
  if (typeof node !== 'object' || node === null) return;
  const { type, value, quasis } = node as {
    type?: unknown;
    value?: unknown;
    quasis?: readonly { value: { cooked?: string | null; raw: string } }[];
  };
  if (type === 'Literal' && typeof value === 'string') found.push(value);
  if (type === 'TemplateLiteral' && quasis !== undefined) {
    found.push(quasis.map((part) => part.value.cooked ?? part.value.raw).join(' '));
  }
  for (const inner of Object.values(node)) collect(inner, found);
}
