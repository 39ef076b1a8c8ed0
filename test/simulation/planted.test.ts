/**
 * A simulator that catches nothing proves nothing: every bug planted on purpose has to be caught within a few worlds.
 *
 * DUEBRIDGE_UPDATE_DOCS=1 tries the worlds from the first one and writes docs/planted-bugs.md: how many it takes, and how long.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { after, before } from 'node:test';
import { format, resolveConfig } from 'prettier';
import { MAX_WORLDS, PLANTED } from './planted.ts';

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

/** What became of each bug. All are tried at once, so a test waits for its bug alone, and its limit is not that of all thirty. */
const fates = PLANTED.map(() => Promise.withResolvers<Caught>());
const children: ChildProcess[] = [];

before(() => {
  for (const { promise } of fates) promise.catch(() => undefined); // reported by the bug's own test
  for (let part = 0; part < PROCESSES; part += 1) {
    children.push(run([...PLANTED.keys()].filter((index) => index % PROCESSES === part)));
  }
});

after(() => {
  for (const child of children) child.kill('SIGKILL');
});

for (const [index, { name }] of PLANTED.entries()) {
  test(`a planted bug is caught: ${name}`, async (t) => {
    const one = await fates[index]?.promise;
    assert.ok(one?.caught, `not caught in ${MAX_WORLDS} worlds`);
    t.diagnostic(
      `seed ${one.caught.seed}, ${one.seconds} s: ${one.caught.rule} ${one.caught.what}`,
    );
  });
}

if (updates) {
  test('the page of the planted bugs is written', async () => {
    writeFileSync(PAGE, await page(await Promise.all(fates.map(({ promise }) => promise))));
  });
}

test('the page of the planted bugs names each of them', () => {
  const rows = [...readFileSync(PAGE, 'utf8').matchAll(/^\| +(\d+) \| (.+?) +\| `/gm)];
  assert.deepEqual(
    rows.map(([, , name]) => name),
    PLANTED.map(({ name }) => name),
    'DUEBRIDGE_UPDATE_DOCS=1 writes it anew',
  );
});

/** The table for the documentation. */
async function page(found: readonly Caught[]): Promise<string> {
  const rows = PLANTED.map(({ name, file }, index) => {
    const one = found[index];
    return `| ${index + 1} | ${name} | \`${file}\` | ${one?.caught?.rule ?? 'not caught'} | ${one?.tried ?? ''} | ${one?.seconds ?? ''} |`;
  });
  const text = `# Planted bugs

Written by [planted.test.ts](../test/simulation/planted.test.ts). Each bug is a change that somebody could make, planted in the source while the
simulator loads it; the build fails when one is not caught within ${MAX_WORLDS} worlds. Worlds are counted from seed 1, without a hint; time is
that of one processor, with loading the changed code. A rule is a line of [guarantees.md](guarantees.md); \`bug\` is an assertion of
our own that failed.

| # | bug | file below packages/ | broken rule | worlds | seconds |
| ---: | --- | --- | --- | ---: | ---: |
${rows.join('\n')}
`;
  return format(text, { ...(await resolveConfig(PAGE)), parser: 'markdown' });
}

/** Tries bugs one after the other in a process of its own, and settles the fate of each as soon as it is known. */
function run(bugs: readonly number[]): ChildProcess {
  const args = [
    join(import.meta.dirname, 'catch.ts'),
    '--bugs',
    bugs.join(','),
    ...(updates ? ['--from-start'] : []),
  ];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = `${said}${chunk.toString()}`.slice(-2_000)));
  createInterface(child.stdout).on('line', (line) => {
    const caught = JSON.parse(line) as Caught;
    fates[caught.bug]?.resolve(caught);
  });
  child.on('close', (code) => {
    const why = new Error(`the run ended before it, with exit code ${code}: ${said}`);
    for (const bug of bugs) fates[bug]?.reject(why); // those already settled stay as they are
  });
  return child;
}
