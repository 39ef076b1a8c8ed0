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

/** Credentials of a partner at the platform's token endpoint; null until they have been issued. */
export interface ClientKey {
  readonly client_id: string;
  readonly api_key: string;
}

/** Kept between starts, readable only by its owner. */
export interface Settings {
  /** Credentials that the aggregator issued to the platform (OA1). */
  readonly oauth_secret: string;
  /** Key that the biller issued to the platform (KY1). */
  readonly static_key: string;
  /** Partners whose accounts have been loaded; loading again would undo what was paid. */
  readonly loaded: readonly string[];
  /** Credentials that the platform issued to each partner (AU1), by partner id. */
  readonly clients: Readonly<Record<string, ClientKey>>;
}

/** Where the demo keeps everything: DUEBRIDGE_DATA_DIR, or `.duebridge` (decision 28). */
export const dataDirectory = dataDirectoryOf();
const file = join(dataDirectory, 'demo.json');

/** The settings of an earlier start, or new ones. Throws ConfigurationError when the file cannot be read. */
export async function readSettings(): Promise<Settings> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return fresh();
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    throw new ConfigurationError(
      code === 'EACCES'
        ? `${file} belongs to another user: start as that user, or set DUEBRIDGE_DATA_DIR to a folder of your own`
        : `${file} cannot be read (${String(code)}): set DUEBRIDGE_DATA_DIR to a folder of your own`,
    );
  }
  try {
    return JSON.parse(text) as Settings;
  } catch {
    throw new ConfigurationError(`${file} is damaged; remove ${dataDirectory} to start over`);
  }
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
  return {
    oauth_secret: randomBytes(32).toString('base64url'),
    static_key: randomBytes(32).toString('base64url'),
    loaded: [],
    clients: {},
  };
}
