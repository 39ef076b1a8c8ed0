/**
 * F10: how long a start takes: `npm start` to its first succeeded payment, first in an empty data directory and then warm, and
 * `duebridge --help`. `--rounds` warm rounds, default 5.
 */
import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { benchOptions } from './options.ts';
import { report, spread } from './report.ts';

const flags = benchOptions(import.meta.main, { rounds: '5' });
const rounds = Number(flags.rounds);
const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

async function seconds(
  program: string,
  words: readonly string[],
  env: object = {},
): Promise<number> {
  const from = performance.now();
  await run(program, [...words], { cwd: root, env: { ...process.env, ...env } });
  return (performance.now() - from) / 1_000;
}

const directory = await mkdtemp(join(tmpdir(), 'duebridge-bench-start-'));
// When root starts it, the server's user id must be able to enter, or the cluster is stored elsewhere and left there.
await chmod(directory, 0o711);
try {
  const env = { DUEBRIDGE_DATA_DIR: directory };
  const demo = ['start', '--silent', '--', '--once'];
  const first = await seconds('npm', demo, env);
  const warm: number[] = [];
  for (let round = 0; round < rounds; round += 1) warm.push(await seconds('npm', demo, env));
  const help: number[] = [];
  for (let round = 0; round < rounds * 2; round += 1) {
    help.push((await seconds(process.execPath, ['bin/duebridge.ts', '--help'])) * 1_000);
  }
  report({
    figure: 'F10',
    what: 'npm start -- --once in an empty directory',
    value: first,
    unit: 's',
    target: 'at most 10 s',
  });
  report({
    figure: 'F10',
    what: 'npm start -- --once, warm',
    ...spread(warm),
    unit: 's',
    target: 'at most 4 s',
  });
  report({
    figure: 'F10',
    what: 'duebridge --help',
    ...spread(help),
    unit: 'ms',
    target: 'at most 150 ms',
  });
} finally {
  await rm(directory, { recursive: true, force: true });
}
