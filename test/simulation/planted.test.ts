/** A simulator that catches nothing proves nothing: every bug that was planted on purpose has to be caught within a few worlds. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { PLANTED } from './planted.ts';

/** Worlds in which a bug has to be caught; they are always the same ones. */
const MAX_SEEDS = 60;
/** Processes side by side. */
const PROCESSES = 2;

interface Caught {
  readonly bug: number;
  readonly seconds: number;
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
});

function run(bugs: readonly number[]): Promise<Caught[]> {
  const args = [
    join(import.meta.dirname, 'catch.ts'),
    '--bugs',
    bugs.join(','),
    '--seeds',
    String(MAX_SEEDS),
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
