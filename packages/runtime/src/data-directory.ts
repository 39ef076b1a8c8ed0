/** The directory for what a server creates by itself: the embedded database and generated secrets (decisions 28 and 53). */
import { chown, stat } from 'node:fs/promises';
import path from 'node:path';

/** The servers, as commands and files name them. */
export type ServerName = 'platform' | 'partner';

/**
 * The data directory of an environment, absolute: DUEBRIDGE_DATA_DIR, or `.duebridge` in the working directory when that is unset
 * or empty.
 */
export function dataDirectory(
  env: Readonly<Record<string, string | undefined>> = process.env,
): string {
  return path.resolve(env['DUEBRIDGE_DATA_DIR'] || '.duebridge');
}

/** The file in a data directory that holds a server's admin key. */
export function adminKeyFile(directory: string, server: ServerName): string {
  return path.join(directory, `${server}-admin-key`);
}

/**
 * Changes the owner of a file that root created in a user's data directory to that user, so that the user can start the server
 * again. A file created by anybody else already has the right owner.
 */
export async function keepOwner(file: string, directory: string): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(directory);
  if (uid !== 0) await chown(file, uid, gid);
}
