/** The environment of the partner kit's server, as `--help` shows it and config.ts reads it. Loads no server. */
import { SCOPES, type Scope } from '@duebridge/contract';
import {
  integer,
  names,
  oneOf,
  secret,
  secrets,
  serverVariables,
  setting,
  text,
  type Parser,
  type Variable,
} from '@duebridge/runtime/cli';
import type { BillerRules } from './account-system.ts';
import type { OAuthClient } from './auth.ts';

/** Maximum cancel window in seconds: a day. */
const MAX_HOLD_SECONDS = 86_400;

/** A field of an object in JSON: whether a value is right, and what it must be. */
interface Field {
  readonly is: (value: unknown) => boolean;
  readonly what: string;
}

const id: Field = { is: (value) => typeof value === 'string' && value !== '', what: 'text' };
const texts: Field = {
  is: (value) => Array.isArray(value) && value.every((item) => typeof item === 'string'),
  what: 'a list of strings',
};
const scopes: Field = {
  is: (value) => Array.isArray(value) && value.every((item) => SCOPES.includes(item as Scope)),
  what: `a list of ${SCOPES.join(' and ')}`,
};
const count: Field = {
  is: (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  what: 'a whole number',
};

/** A JSON list of objects with these fields. Error messages never quote the text: it may hold secrets. */
function listOf<T extends object>(
  required: Readonly<Record<string, Field>>,
  optional: Readonly<Record<string, Field>>,
): Parser<readonly T[]> {
  const all = { ...required, ...optional };
  return (json) => {
    let list: unknown;
    try {
      list = JSON.parse(json);
    } catch {
      throw new Error('must be JSON');
    }
    if (!Array.isArray(list) || list.length === 0) {
      throw new Error('must be a JSON list, not empty');
    }
    for (const item of list as unknown[]) {
      if (typeof item !== 'object' || item === null) throw new Error('must be a list of objects');
      const given = new Map<string, unknown>(Object.entries(item));
      if ([...given.keys()].some((name) => !(name in all))) {
        throw new Error(`contains a field that is not one of ${Object.keys(all).join(', ')}`);
      }
      for (const [name, { is, what }] of Object.entries(all)) {
        const isLeftOut = name in optional && !given.has(name);
        if (!isLeftOut && !is(given.get(name))) throw new Error(`must give ${name} as ${what}`);
      }
    }
    // Each field was checked above.
    return list as T[];
  };
}

export const variables = {
  ...serverVariables({
    service: 'duebridge-partner',
    port: 4100,
    adminPort: 4101,
    connections: 10,
    // Fewer would let one slow statement hold up everything else.
    leastConnections: 3,
  }),
  auth: setting(
    'DUEBRIDGE_PARTNER_AUTH',
    oneOf('key', 'oauth'),
    'how the operations are protected: key or oauth',
    { default: 'key' },
  ),
  keyHeader: setting('DUEBRIDGE_PARTNER_KEY_HEADER', text, 'header of the static key', {
    default: 'x-api-key',
  }),
  key: setting('DUEBRIDGE_PARTNER_KEY', secrets, 'the static key; during a rotation new,old', {
    secret: true,
  }),
  formerly: setting(
    'DUEBRIDGE_PARTNER_FORMERLY',
    names,
    'OAuth clients that the key’s holder used before, comma-separated',
  ),
  clientId: setting('DUEBRIDGE_PARTNER_CLIENT_ID', text, 'the OAuth client'),
  clientSecret: setting(
    'DUEBRIDGE_PARTNER_CLIENT_SECRET',
    secrets,
    'its secret; during a rotation new,old',
    { secret: true },
  ),
  clients: setting(
    'DUEBRIDGE_PARTNER_CLIENTS',
    listOf<OAuthClient>({ client_id: id, secrets: texts }, { scopes, formerly: texts }),
    'several OAuth clients: [{"client_id": …, "secrets": […], "scopes": ["read", "write"]}]',
    { secret: true },
  ),
  billers: setting(
    'DUEBRIDGE_PARTNER_BILLERS',
    listOf<BillerRules>(
      { biller_id: id },
      { min_amount_in_cents: count, max_amount_in_cents: count, duplicate_window_seconds: count },
    ),
    'billers and rules: [{"biller_id": …, "max_amount_in_cents": …, "duplicate_window_seconds": …}]',
    { otherwise: 'every biller that has accounts, without rules' },
  ),
  accountsUrl: setting(
    'DUEBRIDGE_PARTNER_ACCOUNTS_URL',
    text,
    'address of an account service of your own, https',
    { otherwise: 'accounts in the database' },
  ),
  accountsSecret: setting(
    'DUEBRIDGE_PARTNER_ACCOUNTS_SECRET',
    secret,
    'the secret that signs the requests to it',
    { secret: true },
  ),
  holdSeconds: setting(
    'DUEBRIDGE_PARTNER_HOLD_SECONDS',
    integer(0, MAX_HOLD_SECONDS),
    'seconds in which an accepted payment can be canceled before it is posted',
    { default: 0 },
  ),
} as const satisfies Readonly<Record<string, Variable<unknown>>>;

/** Variables that only other programs of the project read, without their prefix; a shared environment may contain them. */
export const variablesOfOthers = /^(?!PARTNER_)/;
