/**
 * A simulator that catches nothing proves nothing: every bug planted on purpose has to be caught within a few worlds.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
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
    t.diagnostic(`seed ${one.caught.seed}: ${one.caught.rule} ${one.caught.what}`);
  });
}

/** Tries bugs one after the other in a process of its own, and settles the fate of each as soon as it is known. */
function run(bugs: readonly number[]): ChildProcess {
  const args = [join(import.meta.dirname, 'catch.ts'), '--bugs', bugs.join(',')];
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
