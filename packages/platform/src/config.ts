/**
 * How one platform process is set up: read from the environment once, completed from the data directory.
 *
 * Secrets that nobody gave are made at the first start and kept in the data directory, readable by its owner alone. With a database
 * of one's own that is refused for the two that the data depends on: a second replica would make others.
 */
import { createSecretKey, type KeyObject } from 'node:crypto';
import path from 'node:path';
import {
  address,
  adminKeyFile,
  ConfigurationError,
  dataDirectory,
  flag,
  integer,
  keptSecret,
  oneOf,
  readConfig,
  secret,
  text,
  type Clock,
  type Log,
} from '@duebridge/runtime';
import { openSealer } from './partners/seal.ts';

/** Everything a platform needs to know. Fields left out have the defaults of the environment's variables. */
export interface PlatformConfig {
  /** Address of the public listener; default 127.0.0.1. */
  readonly host?: string;
  /** Port of the public listener; default 4000 (decision 29), 0 for any free one. */
  readonly port?: number;
  /** Address of the admin listener; default 127.0.0.1, whatever `host` is. */
  readonly adminHost?: string;
  /** Port of the admin listener; default 4001 (decision 29), 0 for any free one. */
  readonly adminPort?: number;
  /** PostgreSQL to use; without it the embedded one in `dataDirectory` (decision 28). */
  readonly databaseUrl?: string | undefined;
  /** Connections at most, those of the engine and its heartbeat among them; default 20, at least 6. */
  readonly databaseConnections?: number;
  /** Where the embedded database and generated secrets lie; default DUEBRIDGE_DATA_DIR or `.duebridge`. */
  readonly dataDirectory?: string;
  /** Seals partner credentials and personal data; see seal.ts. */
  readonly sealKey?: string | undefined;
  /** Keys the digests of API keys and the names of customers: 32 bytes or more in base64. */
  readonly keyPepper?: string | undefined;
  /** Bearer key of the admin API. */
  readonly adminKey?: string | undefined;
  /** Admits http and private addresses of partners (decision 30); default false. */
  readonly allowPrivateAddresses?: boolean;
  /** Tokens a second for each client, and in one burst; default 25 and 50 (decision 16). */
  readonly clientRate?: Rate;
  /** Calls a second for each address, before anything is looked at; default 200 and 400; undefined: no limit, as behind a proxy. */
  readonly ipRate?: Rate | undefined;
  /** Days that the personal data of a customer who paid is kept; default 90. */
  readonly paidRetentionDays?: number;
  /** Closing a review of more than this needs a second person, in cents; default 100,000 (decision 38). */
  readonly secondPersonAboveCents?: number;
  readonly log?: Log;
  readonly clock?: Clock;
  /** Folder of the built pages, with a slash at its end; default that of packages/web. */
  readonly webDist?: URL;
}

/** A rate limit. */
export interface Rate {
  readonly perSecond: number;
  readonly burst: number;
}

/** The three secrets of a platform. */
export interface PlatformSecrets {
  readonly sealKey: string;
  /** As a key: from a Buffer, Node 24 would import it at every digest, which takes six times as long as the digest. */
  readonly keyPepper: KeyObject;
  readonly adminKey: string;
}

/** What a pepper must hold: as many bits as the digest it keys. */
const pepperBytes = 32;

/** Throws an Error for what does not decode to 32 bytes; for `readConfig`. */
function pepperText(value: string): string {
  if (Buffer.from(value, 'base64').length < pepperBytes) {
    throw new Error('must be 32 random bytes in base64, such as openssl rand -base64 32 prints');
  }
  return value;
}

const variables = {
  host: { name: 'HOST', parse: text, default: '127.0.0.1', description: 'address to listen at' },
  port: { name: 'PORT', parse: integer(0, 65_535), default: 4000, description: 'public port' },
  adminHost: {
    name: 'ADMIN_HOST',
    parse: text,
    default: '127.0.0.1',
    description: 'address of the admin listener',
  },
  adminPort: {
    name: 'ADMIN_PORT',
    parse: integer(0, 65_535),
    default: 4001,
    description: 'port of the admin listener',
  },
  databaseUrl: {
    name: 'DATABASE_URL',
    parse: address('postgres:', 'postgresql:'),
    default: undefined,
    description: 'PostgreSQL to use instead of the embedded one',
  },
  databaseConnections: {
    name: 'DUEBRIDGE_DATABASE_CONNECTIONS',
    parse: integer(6, 500),
    default: 20,
    description: 'database connections at most',
  },
  sealKey: {
    name: 'DUEBRIDGE_SEAL_KEY',
    parse: text,
    default: undefined,
    description: 'seals credentials and personal data: 32 bytes in base64',
  },
  keyPepper: {
    name: 'DUEBRIDGE_KEY_PEPPER',
    parse: pepperText,
    default: undefined,
    description: 'keys the digests of API keys: 32 bytes in base64',
  },
  adminKey: {
    name: 'DUEBRIDGE_ADMIN_KEY',
    parse: secret,
    default: undefined,
    description: 'bearer key of the admin API',
  },
  allowPrivateAddresses: {
    name: 'DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES',
    parse: flag,
    default: false,
    description: 'admits partners at http and private addresses',
  },
  clientRate: {
    name: 'DUEBRIDGE_CLIENT_RATE',
    parse: integer(1, 100_000),
    default: 25,
    description: 'tokens a second for each client; twice as many in one burst',
  },
  ipRate: {
    name: 'DUEBRIDGE_IP_RATE',
    parse: integer(0, 100_000),
    default: 200,
    description: 'calls a second from one address; 0 for no limit, as behind a proxy',
  },
  paidRetentionDays: {
    name: 'DUEBRIDGE_RETENTION_DAYS',
    parse: integer(1, 3650),
    default: 90,
    description: 'days that personal data of customers who paid is kept',
  },
  secondPersonAboveCents: {
    name: 'DUEBRIDGE_SECOND_PERSON_ABOVE_CENTS',
    parse: integer(0, 99_999_999_999),
    default: 100_000,
    description: 'closing a review of more than this needs a second person',
  },
  logLevel: {
    name: 'LOG_LEVEL',
    parse: oneOf('debug', 'info', 'warn', 'error', 'silent'),
    default: 'info',
    description: 'least level that is logged',
  },
} as const;

/** Reads the environment. Throws ConfigurationError naming every variable that is wrong. */
export function readPlatformConfig(
  env: Readonly<Record<string, string | undefined>> = process.env,
): PlatformConfig & { readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent' } {
  const { clientRate, ipRate, ...read } = readConfig(variables, env, {
    alsoKnown: ['DUEBRIDGE_ADMIN_URL'],
  });
  return {
    ...read,
    clientRate: { perSecond: clientRate, burst: 2 * clientRate },
    ipRate: ipRate === 0 ? undefined : { perSecond: ipRate, burst: 2 * ipRate },
    dataDirectory: dataDirectory(env),
  };
}

/**
 * The secrets of a configuration; those not given are read from the data directory, and made there at the first start. Throws
 * ConfigurationError when one that the data depends on is missing beside a database of one's own, or cannot be used.
 */
export async function readSecrets(config: PlatformConfig): Promise<PlatformSecrets> {
  const directory = config.dataDirectory ?? dataDirectory();
  const ownDatabase = config.databaseUrl !== undefined;
  const kept = (name: string, variable: string): Promise<string> => {
    if (!ownDatabase) return keptSecret(path.join(directory, name));
    throw new ConfigurationError(
      `${variable} is not set: with DATABASE_URL every replica needs the same one, so give it 32 random bytes in base64, such as openssl rand -base64 32 prints`,
    );
  };
  const sealKey = config.sealKey ?? (await kept('platform-seal-key', 'DUEBRIDGE_SEAL_KEY'));
  openSealer(sealKey);
  const pepper = config.keyPepper ?? (await kept('platform-key-pepper', 'DUEBRIDGE_KEY_PEPPER'));
  const adminKey = config.adminKey ?? (await keptSecret(adminKeyFile(directory, 'platform')));
  const keyPepper = createSecretKey(Buffer.from(pepperText(pepper), 'base64'));
  return { sealKey, keyPepper, adminKey };
}
