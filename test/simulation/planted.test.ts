/**
 * A simulator that catches nothing proves nothing: every bug planted on purpose has to be caught within a few worlds.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 tries the worlds from the first one and writes docs/planted-bugs.md: how many it takes, and how long.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { format, resolveConfig } from 'prettier';
import { PLANTED } from './planted.ts';

/** Worlds in which a bug has to be caught; they are always the same ones. */
const MAX_SEEDS = 120;
/** Processes side by side. */
const PROCESSES = 2;

const PAGE = join(import.meta.dirname, '../../docs/planted-bugs.md');
const updates = process.env['DUEBRIDGE_UPDATE_DOCS'] === '1';

interface Caught {
  readonly bug: number;
  /** Of processor time. */
  readonly seconds: number;
  readonly tried: number;
  readonly caught: { readonly seed: number; readonly rule: string; readonly what: string } | null;
}

test('every planted bug is caught', async (t) => {
  const all = PLANTED.map((_, index) => index);
  const parts = Array.from({ length: PROCESSES }, (_, part) =>
    all.filter((index) => index % PROCESSES === part),
  );
  const found = new Map<number, Caught>();
  for (const caught of (await Promise.all(parts.map(run))).flat()) found.set(caught.bug, caught);
  for (const [index, { name }] of PLANTED.entries()) {
    await t.test(name, (t) => {
      const one = found.get(index);
      assert.ok(one, 'the run ended before it');
      assert.ok(one.caught, `not caught in ${MAX_SEEDS} worlds`);
      t.diagnostic(
        `seed ${one.caught.seed}, ${one.seconds} s: ${one.caught.rule} ${one.caught.what}`,
      );
    });
  }
  if (updates) writeFileSync(PAGE, await page(found));
});

test('the page of the planted bugs names each of them', () => {
  const rows = [...readFileSync(PAGE, 'utf8').matchAll(/^\| +(\d+) \| (.+?) +\| `/gm)];
  assert.deepEqual(
    rows.map(([, , name]) => name),
    PLANTED.map(({ name }) => name),
    'DUEBRIDGE_UPDATE_DOCS=1 writes it anew',
  );
});

/** The table for the documentation. */
async function page(found: ReadonlyMap<number, Caught>): Promise<string> {
  const rows = PLANTED.map(({ name, file }, index) => {
    const one = found.get(index);
    return `| ${index + 1} | ${name} | \`${file}\` | ${one?.caught?.rule ?? 'not caught'} | ${one?.tried ?? ''} | ${one?.seconds ?? ''} |`;
  });
  const text = `# Planted bugs

Written by [planted.test.ts](../test/simulation/planted.test.ts). Each bug is a change that somebody could make, planted in the source while the
simulator loads it; the build fails when one is not caught within ${MAX_SEEDS} worlds. Worlds are counted from seed 1, without a hint; time is
that of one processor, with loading the changed code. A rule is a line of [guarantees.md](guarantees.md); \`bug\` is an assertion of
our own that failed.

| # | bug | file below packages/ | broken rule | worlds | seconds |
| ---: | --- | --- | --- | ---: | ---: |
${rows.join('\n')}
`;
  return format(text, { ...(await resolveConfig(PAGE)), parser: 'markdown' });
}

function run(bugs: readonly number[]): Promise<Caught[]> {
  const args = [
    join(import.meta.dirname, 'catch.ts'),
    '--bugs',
    bugs.join(','),
    '--seeds',
    String(MAX_SEEDS),
    ...(updates ? ['--from-start'] : []),
  ];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { maxBuffer: 2 ** 24 }, (error, stdout, stderr) => {
      if (error !== null) reject(new Error(stderr.slice(-2_000), { cause: error }));
      else
        resolve(
          stdout
            .trim()
            .split('\n')
            .map((line) => JSON.parse(line) as Caught),
        );
    });
  });
}
