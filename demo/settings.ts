/**
 * Settings that the demo creates once and keeps in its data directory: the secrets that two partners and the platform would have
 * exchanged.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  ConfigurationError,
  dataDirectory as dataDirectoryOf,
  keepOwner,
} from '@duebridge/runtime';

/** Credentials of a partner at the platform's token endpoint. */
export interface ClientKey {
  readonly client_id: string;
  readonly api_key: string;
}

/** Kept between starts, readable only by its owner; both by partner id. */
interface Settings {
  /** With which the platform calls each partner (OA1, KY1). */
  readonly secrets: Readonly<Record<string, string>>;
  /** What the platform issued to each partner whose accounts are loaded (AU1). */
  readonly clients: Record<string, ClientKey>;
}

/** Where the demo keeps everything: DUEBRIDGE_DATA_DIR, or `.duebridge` (decision 28). */
export const dataDirectory = dataDirectoryOf();
const file = join(dataDirectory, 'demo.json');

/** The settings of an earlier start, or new ones. Throws ConfigurationError when the file cannot be read. */
export async function readSettings(): Promise<Settings> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return JSON.stringify(fresh());
    throw new ConfigurationError(
      `${file} cannot be read (${error.code}): start as the user whom it belongs to, or set DUEBRIDGE_DATA_DIR to a folder of your own`,
    );
  });
  try {
    const { secrets, clients } = JSON.parse(text) as Partial<Settings>;
    if (secrets && clients) return { secrets, clients };
  } catch {
    // Said below.
  }
  throw new ConfigurationError(
    `${file} is damaged, or of an earlier version; remove ${dataDirectory} to start over`,
  );
}

/** Writes the settings atomically. */
export async function keepSettings(settings: Settings): Promise<void> {
  await mkdir(dataDirectory, { recursive: true });
  const draft = `${file}.${process.pid}`;
  await writeFile(draft, `${JSON.stringify(settings, null, 2)}\n`, { mode: 0o600 });
  await keepOwner(draft, dataDirectory);
  await rename(draft, file);
}

function fresh(): Settings {
  const secret = (): string => randomBytes(32).toString('base64url');
  return { secrets: { 'city-services': secret(), 'northwind-gas': secret() }, clients: {} };
}
