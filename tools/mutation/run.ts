/**
 * Mutates one source file with Stryker and runs tests against each mutant; Stryker prints the mutants that survive.
 *
 *   npm run mutation -- packages/platform/src/engine/lease.ts
 *   npm run mutation -- packages/partner/src/status.ts --test packages/partner/src/waiting-reads.test.ts --lines 20-80
 *
 * Stryker is installed into this folder, from its lock file, at the first run; `npm ci` does not install it. Mutants are written to a copy of the
 * repository, where a package still imports the other packages unchanged: name tests of the package that the file belongs to.
 */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { toolFolder } from '../../scripts/tool.ts';
import { readWords, refuse } from '../../scripts/words.ts';

const HELP = `Usage: npm run mutation -- FILE [--test FILE …] [--lines FROM-TO]

Mutates FILE and lists the mutants that its tests do not kill. The tests are the file's own (NAME.test.ts beside it) unless --test names others.
Exit codes: 0 done, 1 the tests fail without a mutant or Stryker failed, 3 wrong arguments.`;

const FOLDER = import.meta.dirname;
const ROOT = join(FOLDER, '../..');

const { values, positionals } = readWords('mutation', HELP, {
  allowPositionals: true,
  options: { test: { type: 'string', multiple: true }, lines: { type: 'string' } },
});
const [file, ...more] = positionals;
if (file === undefined || more.length > 0) refuse('mutation', 'name one file');
if (values.lines !== undefined && !/^\d+-\d+$/.test(values.lines)) {
  refuse('mutation', '--lines takes two line numbers, as in 20-80');
}

const source = inRepository(file);
const tests = (values.test ?? [source.replace(/\.tsx?$/, '.test.ts')]).map(inRepository);

await toolFolder('mutation', 'mutation');
const { status } = spawnSync(
  process.execPath,
  [
    join(FOLDER, 'node_modules/@stryker-mutator/core/bin/stryker.js'),
    'run',
    join(FOLDER, 'stryker.config.mjs'),
    '--mutate',
    values.lines === undefined ? source : `${source}:${values.lines}`,
  ],
  { cwd: ROOT, stdio: 'inherit', env: { ...process.env, MUTATION_TESTS: tests.join('\n') } },
);
process.exitCode = status ?? 1;

/** The path of a file below the root of the repository, with slashes; refuses one that is not there. */
function inRepository(path: string): string {
  const found = relative(ROOT, resolve(path));
  if (found.startsWith('..') || !existsSync(join(ROOT, found))) {
    refuse('mutation', `there is no file ${path}; name tests with --test`);
  }
  return found.replaceAll('\\', '/');
}
