/** The directory for what a server creates by itself: the embedded database and generated secrets (decision 28). */
import { appendFile, chown, mkdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { ConfigurationError, messageOf } from './errors.ts';

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

/**
 * Makes a folder, and those above it that are missing. Node's own way to do so never returns where a file system answers ENOENT whatever is
 * there, as /proc does.
 */
export async function makeFolder(folder: string, mode?: number): Promise<void> {
  const above = path.dirname(folder);
  if (above !== folder) await makeFolder(above, mode);
  await mkdir(folder, { mode }).catch(async (error: unknown) => {
    const there = await stat(folder).catch(() => undefined);
    if (there?.isDirectory() !== true) throw error;
  });
}

/**
 * Locks a data directory for one process until it releases it or ends, however it ends; undefined when another process has it. `name`
 * is the lock file. The kernel holds the lock, through SQLite. Throws ConfigurationError when the directory cannot be used.
 */
export async function holdDataDirectory(
  directory: string,
  name: string,
): Promise<{ release(): void } | undefined> {
  const file = path.join(directory, name);
  // Loaded here: Node 22 prints a warning for it, and a server with a database of its own needs no lock.
  const { DatabaseSync } = await import('node:sqlite');
  let lock: InstanceType<typeof DatabaseSync> | undefined;
  try {
    // Root lets others pass: the user id that runs PostgreSQL has to reach its files.
    const mode = process.getuid?.() === 0 ? 0o711 : 0o700;
    await makeFolder(directory, mode);
    await appendFile(file, '', { mode: 0o600 });
    await keepOwner(file, directory);
    const held = (lock = new DatabaseSync(file));
    // An exclusive one would be refused to both of two that ask at once: each has the file open when the other asks.
    held.exec('BEGIN IMMEDIATE');
    return { release: () => held.close() };
  } catch (error) {
    lock?.close();
    // SQLITE_BUSY
    if (error instanceof Error && 'errcode' in error && error.errcode === 5) return undefined;
    throw new ConfigurationError(
      `the data directory ${directory} cannot be used (${messageOf(error)}): start as the user that it belongs to, or set DUEBRIDGE_DATA_DIR to a folder you may write to`,
      { cause: error },
    );
  }
}
