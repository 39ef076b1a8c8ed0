/** Where a server keeps what it makes by itself: the embedded database and the secrets that nobody gave (decisions 28 and 53). */
import { chown, stat } from 'node:fs/promises';
import path from 'node:path';

/** The servers, as commands and files name them. */
export type ServerName = 'platform' | 'partner';

/** The data directory of an environment, absolute: DUEBRIDGE_DATA_DIR, or `.duebridge` in the working directory where that is unset or empty. */
export function dataDirectory(
  env: Readonly<Record<string, string | undefined>> = process.env,
): string {
  return path.resolve(env['DUEBRIDGE_DATA_DIR'] || '.duebridge');
}

/** The file of a data directory that holds a server's admin key. */
export function adminKeyFile(directory: string, server: ServerName): string {
  return path.join(directory, `${server}-admin-key`);
}

/**
 * Gives a file that root made in a user's data directory to that user, so that the user can start there again; a file made by
 * anybody else has its owner already.
 */
export async function keepOwner(file: string, directory: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(directory);
  if (uid !== 0) await chown(file, uid, gid);
}
