/** The configuration of a partner server, read from the environment once. */
import { ConfigurationError, readConfig, type Config, type Environment } from '@duebridge/runtime';
import { accountsOverHttp } from './accounts-over-http.ts';
import type { AuthOptions } from './auth.ts';
import type { PartnerConfig } from './server.ts';
import { variables } from './variables.ts';

type Values = Config<typeof variables>;

/** The configuration that an environment describes. Throws ConfigurationError that names every variable that is wrong. */
export function readPartnerConfig(
  env: Environment = process.env,
): PartnerConfig & Pick<Values, 'logLevel'> {
  const values = readConfig(variables, env);
  return {
    ...values,
    auth: authOf(values),
    accounts: accountsOf(values),
    holdMs: values.holdSeconds * 1000,
  };
}

/** Where the accounts are: in the ledger (undefined), or behind an HTTP service. */
function accountsOf({
  accountsUrl: url,
  accountsSecret: secret,
}: Values): PartnerConfig['accounts'] {
  if (url === undefined) return undefined;
  if (secret === undefined) {
    throw new ConfigurationError(
      'requests to the account service are signed: set DUEBRIDGE_PARTNER_ACCOUNTS_SECRET to a secret that it knows too',
    );
  }
  const accounts = accountsOverHttp({ url, secret });
  return () => accounts;
}

/** A static key, or an OAuth client, never both (decision 15). */
function authOf(values: Values): AuthOptions {
  const { key: keys, keyHeader: header, clientId: client_id, clientSecret: secrets } = values;
  const isClient = client_id !== undefined || secrets !== undefined;
  if (keys !== undefined && !isClient) return { method: 'key', header, keys };
  if (keys === undefined && client_id !== undefined && secrets !== undefined) {
    return { method: 'oauth', client_id, secrets };
  }
  throw new ConfigurationError(
    'the operations need one protection: set DUEBRIDGE_PARTNER_KEY, or DUEBRIDGE_PARTNER_CLIENT_ID and DUEBRIDGE_PARTNER_CLIENT_SECRET, and not the other (decision 15)',
  );
}
