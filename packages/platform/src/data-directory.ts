/**
 * Where a platform keeps what it makes by itself. Apart from config.ts, so that the command line finds the admin key without loading
 * a server.
 */
import path from 'node:path';

/** The data directory of an environment, absolute: DUEBRIDGE_DATA_DIR, or `.duebridge` in the working directory (decision 28). */
export function dataDirectory(
  env: Readonly<Record<string, string | undefined>> = process.env,
): string {
  const given = env['DUEBRIDGE_DATA_DIR'];
  return path.resolve(given === undefined || given === '' ? '.duebridge' : given);
}

/** The file of a data directory that holds the admin key. */
export function adminKeyFile(directory: string): string {
  return path.join(directory, 'platform-admin-key');
}
