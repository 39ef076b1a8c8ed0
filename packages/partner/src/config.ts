/** The environment of `duebridge partner`, read once, and the commands that need all of a server. */
import { SCOPES } from '@duebridge/contract';
import {
  address,
  ConfigurationError,
  createLogger,
  integer,
  oneOf,
  readConfig,
  runService,
  secret,
  text,
  type Config,
  type Parser,
} from '@duebridge/runtime';
import type { BillerRules } from './account-system.ts';
import type { AuthOptions, OAuthClient } from './auth.ts';
import {
  knownAdminKey,
  migratePartner,
  openPartnerDatabase,
  startPartner,
  type PartnerConfig,
} from './server.ts';

/** Longest time to cancel in, in seconds: a day. */
const maxHoldSeconds = 86_400;

const variables = {
  host: { name: 'HOST', parse: text, default: '127.0.0.1', description: 'address to listen at' },
  port: { name: 'PORT', parse: integer(0, 65_535), default: 4100, description: 'public port' },
  adminHost: {
    name: 'ADMIN_HOST',
    parse: text,
    default: '127.0.0.1',
    description: 'address of the admin listener',
  },
  adminPort: {
    name: 'ADMIN_PORT',
    parse: integer(0, 65_535),
    default: 4101,
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
    parse: integer(3, 500),
    default: 10,
    description: 'database connections at most',
  },
  auth: {
    name: 'DUEBRIDGE_PARTNER_AUTH',
    parse: oneOf('key', 'oauth'),
    default: 'key',
    description: 'how the operations are protected',
  },
  keyHeader: {
    name: 'DUEBRIDGE_PARTNER_KEY_HEADER',
    parse: text,
    default: 'x-api-key',
    description: 'header of the static key',
  },
  key: {
    name: 'DUEBRIDGE_PARTNER_KEY',
    parse: secret,
    default: undefined,
    description: 'the static key',
  },
  key2: {
    name: 'DUEBRIDGE_PARTNER_KEY_2',
    parse: secret,
    default: undefined,
    description: 'a second static key while rotating',
  },
  clientId: {
    name: 'DUEBRIDGE_PARTNER_CLIENT_ID',
    parse: text,
    default: undefined,
    description: 'the OAuth client',
  },
  clientSecret: {
    name: 'DUEBRIDGE_PARTNER_CLIENT_SECRET',
    parse: secret,
    default: undefined,
    description: 'its secret',
  },
  clientSecret2: {
    name: 'DUEBRIDGE_PARTNER_CLIENT_SECRET_2',
    parse: secret,
    default: undefined,
    description: 'its second secret while rotating',
  },
  clients: {
    name: 'DUEBRIDGE_PARTNER_CLIENTS',
    parse: listOf(oauthClient),
    default: undefined,
    description: 'several OAuth clients, as JSON',
  },
  formerly: {
    name: 'DUEBRIDGE_PARTNER_FORMERLY',
    parse: (value: string): readonly string[] => value.split(',').map((id) => id.trim()),
    default: undefined,
    description: 'client ids whose payments belong to the holder of the key or the one client',
  },
  billers: {
    name: 'DUEBRIDGE_PARTNER_BILLERS',
    parse: listOf(billerRules),
    default: undefined,
    description: 'the billers served and their rules, as JSON',
  },
  holdSeconds: {
    name: 'DUEBRIDGE_PARTNER_HOLD_SECONDS',
    parse: integer(0, maxHoldSeconds),
    default: 0,
    description: 'time to cancel in before a payment is posted',
  },
  adminKey: {
    name: 'DUEBRIDGE_ADMIN_KEY',
    parse: secret,
    default: undefined,
    description: 'bearer key of the admin API',
  },
  logLevel: {
    name: 'LOG_LEVEL',
    parse: oneOf('debug', 'info', 'warn', 'error', 'silent'),
    default: 'info',
    description: 'least level that is logged',
  },
} as const;

type Variables = Config<typeof variables>;
type Environment = Readonly<Record<string, string | undefined>>;

/** Variables that only other programs of the project read; a shared environment may hold them. */
const ofOthers = [
  'DUEBRIDGE_SEAL_KEY',
  'DUEBRIDGE_KEY_PEPPER',
  'DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES',
  'DUEBRIDGE_IP_RATE',
  'DUEBRIDGE_RETENTION_DAYS',
];

function readVariables(env: Environment): Variables {
  return readConfig(variables, env, { alsoKnown: ofOthers });
}

/** The configuration that an environment describes. Throws ConfigurationError that names every variable that is wrong. */
export function readPartnerConfig(env: Environment = process.env): PartnerConfig {
  const values = readVariables(env);
  return {
    auth: authOf(values),
    billers: values.billers,
    holdMs: values.holdSeconds * 1000,
    host: values.host,
    port: values.port,
    adminHost: values.adminHost,
    adminPort: values.adminPort,
    databaseUrl: values.databaseUrl,
    databaseConnections: values.databaseConnections,
    adminKey: values.adminKey,
  };
}

function authOf(values: Variables): AuthOptions {
  const { key, key2, clients, clientId, clientSecret, clientSecret2 } = values;
  const formerly = values.formerly === undefined ? {} : { formerly: values.formerly };
  switch (values.auth) {
    case 'key':
      if (clients !== undefined || clientId !== undefined) {
        throw new ConfigurationError(
          'an OAuth client is given: set DUEBRIDGE_PARTNER_AUTH=oauth, or give a key only (decision 15)',
        );
      }
      if (key === undefined) {
        throw new ConfigurationError(
          'the operations need protection: set DUEBRIDGE_PARTNER_KEY, or DUEBRIDGE_PARTNER_AUTH=oauth and a client',
        );
      }
      return {
        method: 'key',
        header: values.keyHeader,
        keys: [key, ...(key2 === undefined ? [] : [key2])],
        ...formerly,
      };
    case 'oauth': {
      if (key !== undefined) {
        throw new ConfigurationError(
          'a static key is given: OAuth and a key exclude each other (decision 15)',
        );
      }
      if (clients !== undefined) return { method: 'oauth', clients };
      if (clientId === undefined || clientSecret === undefined) {
        throw new ConfigurationError(
          'OAuth needs a client: set DUEBRIDGE_PARTNER_CLIENT_ID and DUEBRIDGE_PARTNER_CLIENT_SECRET',
        );
      }
      const secrets = [clientSecret, ...(clientSecret2 === undefined ? [] : [clientSecret2])];
      return { method: 'oauth', clients: [{ client_id: clientId, secrets, ...formerly }] };
    }
  }
}

// JSON in variables --------------------------------------------------------------------------------------------------------

type Fields = Readonly<Record<string, unknown>>;

/** A JSON list of objects. Error messages never quote the text: it may hold secrets. */
function listOf<T>(read: (fields: Fields) => T): Parser<readonly T[]> {
  return (json) => {
    let list: unknown;
    try {
      list = JSON.parse(json);
    } catch {
      throw new Error('must be JSON');
    }
    if (!Array.isArray(list) || list.length === 0)
      throw new Error('must be a JSON list, not empty');
    return list.map((item: unknown) => {
      if (typeof item !== 'object' || item === null) throw new Error('must be a list of objects');
      return read({ ...item });
    });
  };
}

function onlyFields(fields: Fields, ...names: string[]): void {
  const unknown = Object.keys(fields).filter((name) => !names.includes(name));
  if (unknown.length > 0) throw new Error(`holds a field that is not one of ${names.join(', ')}`);
}

function textField(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== 'string' || value === '') throw new Error(`must give ${name} as a text`);
  return value;
}

function textsField(fields: Fields, name: string): readonly string[] {
  const value: unknown = fields[name];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
    throw new Error(`must give ${name} as a list of texts`);
  }
  return value;
}

function countField(fields: Fields, name: string): number | undefined {
  const value = fields[name];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new Error(`must give ${name} as a whole number`);
  }
  return value;
}

function oauthClient(fields: Fields): OAuthClient {
  onlyFields(fields, 'client_id', 'secrets', 'scopes', 'formerly');
  const scopes =
    fields['scopes'] === undefined
      ? SCOPES
      : textsField(fields, 'scopes').map((word) => {
          const scope = SCOPES.find((known) => known === word);
          if (scope === undefined) throw new Error(`must give scopes of ${SCOPES.join(' and ')}`);
          return scope;
        });
  return {
    client_id: textField(fields, 'client_id'),
    secrets: textsField(fields, 'secrets'),
    scopes,
    ...(fields['formerly'] === undefined ? {} : { formerly: textsField(fields, 'formerly') }),
  };
}

function billerRules(fields: Fields): BillerRules {
  onlyFields(fields, 'biller_id', 'max_amount_in_cents', 'duplicate_window_seconds');
  const max_amount_in_cents = countField(fields, 'max_amount_in_cents');
  const duplicate_window_seconds = countField(fields, 'duplicate_window_seconds');
  return {
    biller_id: textField(fields, 'biller_id'),
    ...(max_amount_in_cents === undefined ? {} : { max_amount_in_cents }),
    ...(duplicate_window_seconds === undefined ? {} : { duplicate_window_seconds }),
  };
}

// Commands -----------------------------------------------------------------------------------------------------------------

/** Serves until a signal ends it; ends the process (exit codes of runService). */
export async function serve(env: Environment = process.env): Promise<void> {
  // Before the log: a configuration that cannot be read is one sentence for a person.
  const config = readPartnerConfig(env);
  const { logLevel } = readVariables(env);
  const log = createLogger({
    name: 'duebridge partner',
    level: logLevel,
    privateKeys: config.auth.method === 'key' ? [config.auth.header] : [],
  });
  readConfig(variables, env, { log, alsoKnown: ofOthers });
  await runService({ log, start: () => startPartner({ ...config, log }) });
}

/** Applies the migrations and gives the names of those applied now. */
export async function migrateOnly(env: Environment = process.env): Promise<string[]> {
  const { databaseUrl } = readVariables(env);
  const opened = await openPartnerDatabase({ databaseUrl });
  try {
    return await migratePartner(opened.database);
  } finally {
    await opened.close();
  }
}

/** Where the admin API is and the key to it, for the commands that speak to it. */
export async function adminAccess(
  url: string | undefined,
  env: Environment = process.env,
): Promise<{ url: string; adminKey: string }> {
  const { adminPort, adminKey } = readVariables(env);
  const base = url ?? `http://127.0.0.1:${adminPort}`;
  if (!URL.canParse(base)) throw new ConfigurationError('--url must be an address');
  return { url: base.replace(/\/+$/, ''), adminKey: await knownAdminKey(adminKey) };
}
