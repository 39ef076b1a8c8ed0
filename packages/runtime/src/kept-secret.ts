/** A secret that a server generates once and keeps in its own file, for starts without a configured one (decision 28). */
import { randomBytes } from 'node:crypto';
import { link, readFile, unlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { keepOwner, makeFolder } from './data-directory.ts';
import { ConfigurationError, messageOf } from './errors.ts';

/** 256 bits: beyond guessing. */
const SECRET_BYTES = 32;

/** The secret in a file, or undefined when there is no such file. Throws ConfigurationError when it cannot be read. */
export async function readKeptSecret(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw new ConfigurationError(
      `the file ${file} cannot be read (${messageOf(error)}): start as the user that owns it, or set DUEBRIDGE_DATA_DIR`,
      { cause: error },
    );
  }
}

/**
 * The secret in a file, created at the first call: 32 random bytes in base64, readable by its owner only. The file is written
 * atomically, however many processes start concurrently. Throws ConfigurationError when the file can be neither read nor created.
 */
export async function keptSecret(file: string): Promise<string> {
  const found = await readKeptSecret(file);
  if (found !== undefined) return found;
  // Written to another file and linked into place: of two concurrent starts one wins, and neither reads half a secret.
  const aside = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    await makeFolder(path.dirname(file));
    // On the disk before any row that it seals: after a power loss an empty file would leave them closed for good.
    const made = randomBytes(SECRET_BYTES).toString('base64');
    await writeFile(aside, `${made}\n`, { mode: 0o600, flush: true });
    await keepOwner(aside, path.dirname(file));
    await link(aside, file).catch((error: unknown) => {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    });
  } catch (error) {
    throw new ConfigurationError(
      `the file ${file} cannot be written (${messageOf(error)}): set DUEBRIDGE_DATA_DIR to a folder of this user`,
      { cause: error },
    );
  } finally {
    await unlink(aside).catch(() => undefined);
  }
  const kept = await readKeptSecret(file);
  if (kept === undefined)
    throw new ConfigurationError(`the file ${file} was removed during the start`);
  return kept;
}
