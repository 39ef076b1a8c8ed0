/** The environment of the partner kit's server, as `--help` shows it and config.ts reads it. Loads no server. */
import { SCOPES } from '@duebridge/contract';
import {
  integer,
  oneOf,
  secret,
  secrets,
  serverVariables,
  text,
  type Parser,
  type Variable,
} from '@duebridge/runtime/cli';
import type { BillerRules } from './account-system.ts';
import type { OAuthClient } from './auth.ts';

/** Maximum cancel window in seconds: a day. */
const MAX_HOLD_SECONDS = 86_400;

const common = serverVariables({
  service: 'duebridge-partner',
  port: 4100,
  adminPort: 4101,
  connections: 10,
  // Fewer would let one slow statement hold up everything else.
  leastConnections: 3,
});

export const variables = {
  host: common.host,
  port: common.port,
  adminHost: common.adminHost,
  adminPort: common.adminPort,
  adminHosts: common.adminHosts,
  trustedProxies: common.trustedProxies,
  databaseUrl: common.databaseUrl,
  databaseWaitSeconds: common.databaseWaitSeconds,
  databaseConnections: common.databaseConnections,
  dataDirectory: common.dataDirectory,
  auth: {
    name: 'DUEBRIDGE_PARTNER_AUTH',
    parse: oneOf('key', 'oauth'),
    default: 'key',
    description: 'how the operations are protected: key or oauth',
  },
  keyHeader: {
    name: 'DUEBRIDGE_PARTNER_KEY_HEADER',
    parse: text,
    default: 'x-api-key',
    description: 'header of the static key',
  },
  key: {
    name: 'DUEBRIDGE_PARTNER_KEY',
    parse: secrets,
    default: undefined,
    description: 'the static key; during a rotation new,old',
    secret: true,
  },
  formerly: {
    name: 'DUEBRIDGE_PARTNER_FORMERLY',
    parse: (ids: string): readonly string[] => ids.split(',').map((id) => id.trim()),
    default: undefined,
    description: 'OAuth clients that the key’s holder used before, comma-separated',
  },
  clientId: {
    name: 'DUEBRIDGE_PARTNER_CLIENT_ID',
    parse: text,
    default: undefined,
    description: 'the OAuth client',
  },
  clientSecret: {
    name: 'DUEBRIDGE_PARTNER_CLIENT_SECRET',
    parse: secrets,
    default: undefined,
    description: 'its secret; during a rotation new,old',
    secret: true,
  },
  clients: {
    name: 'DUEBRIDGE_PARTNER_CLIENTS',
    parse: listOf(oauthClient),
    default: undefined,
    description:
      'several OAuth clients: [{"client_id": …, "secrets": […], "scopes": ["read", "write"]}]',
    secret: true,
  },
  billers: {
    name: 'DUEBRIDGE_PARTNER_BILLERS',
    parse: listOf(billerRules),
    default: undefined,
    description:
      'billers and rules: [{"biller_id": …, "max_amount_in_cents": …, "duplicate_window_seconds": …}]',
    otherwise: 'every biller that has accounts, without rules',
  },
  accountsUrl: {
    name: 'DUEBRIDGE_PARTNER_ACCOUNTS_URL',
    parse: text,
    default: undefined,
    description: 'address of an account service of your own, https',
    otherwise: 'accounts in the database',
  },
  accountsSecret: {
    name: 'DUEBRIDGE_PARTNER_ACCOUNTS_SECRET',
    parse: secret,
    default: undefined,
    description: 'the secret that signs the requests to it',
    secret: true,
  },
  accountsSql: {
    name: 'DUEBRIDGE_PARTNER_ACCOUNTS_SQL',
    parse: text,
    default: undefined,
    description: 'file of three SQL statements on your own tables in the database',
  },
  holdSeconds: {
    name: 'DUEBRIDGE_PARTNER_HOLD_SECONDS',
    parse: integer(0, MAX_HOLD_SECONDS),
    default: 0,
    description: 'seconds in which an accepted payment can be canceled before it is posted',
  },
  adminKey: common.adminKey,
  tracesEndpoint: common.tracesEndpoint,
  tracesRatio: common.tracesRatio,
  tracesService: common.tracesService,
  logLevel: common.logLevel,
} as const satisfies Readonly<Record<string, Variable<unknown>>>;

/** Variables that only other programs of the project read, without their prefix; a shared environment may contain them. */
export const variablesOfOthers = /^(?!PARTNER_)/;

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
  if (unknown.length > 0)
    throw new Error(`contains a field that is not one of ${names.join(', ')}`);
}

function textField(fields: Fields, name: string): string {
  const value = fields[name];
  if (typeof value !== 'string' || value === '') throw new Error(`must give ${name} as text`);
  return value;
}

function textsField(fields: Fields, name: string): readonly string[] {
  const value: unknown = fields[name];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string')) {
    throw new Error(`must give ${name} as a list of strings`);
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
  onlyFields(
    fields,
    'biller_id',
    'min_amount_in_cents',
    'max_amount_in_cents',
    'duplicate_window_seconds',
  );
  const min_amount_in_cents = countField(fields, 'min_amount_in_cents');
  const max_amount_in_cents = countField(fields, 'max_amount_in_cents');
  const duplicate_window_seconds = countField(fields, 'duplicate_window_seconds');
  return {
    biller_id: textField(fields, 'biller_id'),
    ...(min_amount_in_cents === undefined ? {} : { min_amount_in_cents }),
    ...(max_amount_in_cents === undefined ? {} : { max_amount_in_cents }),
    ...(duplicate_window_seconds === undefined ? {} : { duplicate_window_seconds }),
  };
}
