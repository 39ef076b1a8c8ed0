/**
 * A simulator that catches nothing proves nothing: every bug planted on purpose has to be caught within a few worlds.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test, { after, before } from 'node:test';
import { MAX_WORLDS, PLANTED } from './planted.ts';

/** Processes side by side. */
const PROCESSES = 2;

interface Caught {
  readonly bug: number;
  readonly caught: { readonly seed: number; readonly rule: string; readonly what: string } | null;
}

/** What became of each bug. All are tried at once, so a test waits for its bug alone, and its limit is not that of all thirty. */
const fates = PLANTED.map(() => Promise.withResolvers<Caught>());
const children: ChildProcess[] = [];

before(() => {
  for (const { promise } of fates) promise.catch(() => undefined); // reported by the bug's own test
  const waiting = [...PLANTED.keys()].values();
  for (let place = 0; place < PROCESSES; place += 1) void runEach(waiting);
});

after(() => {
  for (const child of children) child.kill('SIGKILL');
});

for (const [index, { name }] of PLANTED.entries()) {
  test(`a planted bug is caught: ${name}`, async (t) => {
    const one = await fates[index]?.promise;
    assert.ok(one?.caught, `not caught in ${MAX_WORLDS} worlds`);
    t.diagnostic(`seed ${one.caught.seed}: ${one.caught.rule} ${one.caught.what}`);
  });
}

async function runEach(bugs: Iterable<number>): Promise<void> {
  for (const bug of bugs) await run(bug);
}

/** Tries a bug in a process of its own, so that its worlds depend on no world of another bug, and settles its fate. Resolves at its end. */
async function run(bug: number): Promise<void> {
  const args = [join(import.meta.dirname, 'catch.ts'), '--bugs', String(bug)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said = `${said}${chunk.toString()}`.slice(-2_000)));
  createInterface(child.stdout).on('line', (line) =>
    fates[bug]?.resolve(JSON.parse(line) as Caught),
  );
  const [code] = (await once(child, 'close')) as [number | null];
  fates[bug]?.reject(new Error(`the run ended before it, with exit code ${code}: ${said}`));
}
