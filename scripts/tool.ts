/**
 * Packages that only a long test or a benchmark needs stand in tools/NAME, with a lock file of their own, and are installed there at their
 * first use: `npm ci` of the repository does without them. tools/NAME/index.mjs exports what is used of them.
 */
import { execFile } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

/** The folder of a tool whose packages are installed. Rejects with npm's own words when they cannot be; `program` says who asks. */
export async function toolFolder(tool: string, program: string): Promise<string> {
  const folder = join(import.meta.dirname, '../tools', tool);
  const installed = join(folder, 'node_modules');
  if (existsSync(join(installed, '.package-lock.json'))) return folder;
  console.error(`${program}: installing tools/${tool}, once …`);
  try {
    await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund'], { cwd: folder });
  } catch (error) {
    rmSync(installed, { recursive: true, force: true });
    throw error;
  }
  return folder;
}

/** What tools/NAME/index.mjs exports. */
export async function importTool<T>(tool: string, program: string): Promise<T> {
  const file = join(await toolFolder(tool, program), 'index.mjs');
  return (await import(pathToFileURL(file).href)) as T;
}
