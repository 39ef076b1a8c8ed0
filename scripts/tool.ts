/**
 * Packages that starting does without stand in tools/NAME, with a lock file of their own, and are installed there at their first use:
 * `npm ci` of the repository leaves them out. tools/NAME/index.mjs exports what is used of them.
 *
 *   node scripts/tool.ts PROGRAM ARGUMENT…   runs a program of tools/test, such as tsc, oxlint, knip or oxfmt
 */
import { execFile, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

/** The lock file that a folder of packages was installed from, in it: another one, after a pull, is installed anew. */
const LOCK = '.installed-lock.json';

const folders = new Map<string, Promise<string>>();

/** The folder of a tool whose packages are installed. Rejects with npm's own words when they cannot be; `program` says who asks. */
export function toolFolder(tool: string, program: string): Promise<string> {
  let folder = folders.get(tool);
  if (folder === undefined) folders.set(tool, (folder = install(tool, program)));
  return folder;
}

async function install(tool: string, program: string): Promise<string> {
  const folder = join(import.meta.dirname, '../tools', tool);
  const installed = join(folder, 'node_modules');
  const lock = readFileSync(join(folder, 'package-lock.json'), 'utf8');
  if (isThere()) return folder;
  console.error(`${program}: installing tools/${tool}, once …`);
  // Apart, and renamed when it is whole: several processes may come here at the same time.
  const draft = join(folder, `node_modules.${process.pid}`);
  mkdirSync(draft);
  try {
    for (const name of ['package.json', 'package-lock.json'])
      copyFileSync(join(folder, name), join(draft, name));
    await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund'], { cwd: draft });
    writeFileSync(join(draft, 'node_modules', LOCK), lock);
    if (!isThere()) {
      rmSync(installed, { recursive: true, force: true });
      renameSync(join(draft, 'node_modules'), installed);
    }
  } catch (error) {
    if (!isThere()) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;

  function isThere(): boolean {
    const file = join(installed, LOCK);
    return existsSync(file) && readFileSync(file, 'utf8') === lock;
  }
}

/** An environment in which the programs of tools/test (compiler, linters, formatter) are found by name, and find each other. */
export async function testPrograms(program: string): Promise<NodeJS.ProcessEnv> {
  const programs = join(await toolFolder('test', program), 'node_modules/.bin');
  return { ...process.env, PATH: [programs, process.env['PATH']].join(delimiter) };
}

/** The packages of tools/test. */
export async function testTools(): Promise<typeof import('../tools/test/index.ts')> {
  await toolFolder('test', 'test');
  return await import('../tools/test/index.ts');
}

/** What tools/NAME/index.mjs exports. */
export async function importTool<T>(tool: string, program: string): Promise<T> {
  const file = join(await toolFolder(tool, program), 'index.mjs');
  return (await import(pathToFileURL(file).href)) as T;
}

if (import.meta.main) {
  const [, , name, ...args] = process.argv;
  if (name === undefined) {
    console.error('tool: name a program of tools/test, such as tsc or oxfmt');
    process.exit(3);
  }
  const env = await testPrograms('tool');
  const { status, error } = spawnSync(name, args, { env, stdio: 'inherit' });
  const isMissing = error !== undefined && 'code' in error && error.code === 'ENOENT';
  if (error)
    console.error(`tool: ${isMissing ? `tools/test has no program "${name}"` : error.message}`);
  process.exitCode = status ?? 1;
}
