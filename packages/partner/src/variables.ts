/** The environment of the partner kit's server, as `--help` shows it and config.ts reads it. Loads no server. */
import { compileCheck } from '@duebridge/contract';
import {
  integer,
  secret,
  secrets,
  serverVariables,
  setting,
  text,
  type Parser,
  type Variable,
} from '@duebridge/runtime/cli';
import type { BillerRules } from './account-system.ts';

/** Maximum cancel window in seconds: a day. */
const MAX_HOLD_SECONDS = 86_400;

const whole = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
const billersCheck = compileCheck({
  type: 'array',
  minItems: 1,
  items: {
    type: 'object',
    required: ['biller_id'],
    properties: {
      biller_id: { type: 'string', minLength: 1 },
      min_amount_in_cents: whole,
      max_amount_in_cents: whole,
      duplicate_window_seconds: whole,
    },
    additionalProperties: false,
  },
});

/** Billers as a JSON list. Errors name fields and never quote the text. */
const billerRules: Parser<readonly BillerRules[]> = (json) => {
  let list: unknown;
  try {
    list = JSON.parse(json);
  } catch {
    throw new Error('must be JSON');
  }
  const problems = billersCheck.problems(list, 'the list');
  if (problems.length > 0) {
    throw new Error(problems.map(({ path, problem }) => `${path} ${problem}`).join('; '));
  }
  // Checked against its schema.
  return list as BillerRules[];
};

export const variables = {
  ...serverVariables({
    port: 4100,
    adminPort: 4101,
    connections: 10,
    // Fewer would let one slow statement hold up everything else.
    leastConnections: 3,
  }),
  keyHeader: setting('DUEBRIDGE_PARTNER_KEY_HEADER', text, 'header of the static key', {
    default: 'x-api-key',
  }),
  key: setting('DUEBRIDGE_PARTNER_KEY', secrets, 'the static key; during a rotation new,old', {
    secret: true,
  }),
  clientId: setting('DUEBRIDGE_PARTNER_CLIENT_ID', text, 'the OAuth client'),
  clientSecret: setting(
    'DUEBRIDGE_PARTNER_CLIENT_SECRET',
    secrets,
    'its secret; during a rotation new,old',
    { secret: true },
  ),
  billers: setting(
    'DUEBRIDGE_PARTNER_BILLERS',
    billerRules,
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
