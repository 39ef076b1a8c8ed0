/**
 * Packages that only some tests or a benchmark need stand in tools/NAME, with a lock file of their own, and are installed there at their
 * first use: `npm ci` of the repository does without them. tools/NAME/index.mjs exports what is used of them.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

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
  if (isThere()) return folder;
  console.error(`${program}: installing tools/${tool}, once …`);
  // Apart, and renamed when it is whole: several processes may come here at the same time.
  const draft = join(folder, `node_modules.${process.pid}`);
  mkdirSync(draft);
  try {
    for (const name of ['package.json', 'package-lock.json'])
      copyFileSync(join(folder, name), join(draft, name));
    await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund'], { cwd: draft });
    if (!isThere()) renameSync(join(draft, 'node_modules'), installed);
  } catch (error) {
    if (!isThere()) throw error;
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;

  function isThere(): boolean {
    return existsSync(join(installed, '.package-lock.json'));
  }
}

/** What tools/NAME/index.mjs exports. */
export async function importTool<T>(tool: string, program: string): Promise<T> {
  const file = join(await toolFolder(tool, program), 'index.mjs');
  return (await import(pathToFileURL(file).href)) as T;
}
