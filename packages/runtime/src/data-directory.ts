/** Where a server keeps what it makes by itself: the embedded database and the secrets that nobody gave (decisions 28 and 53). */
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
