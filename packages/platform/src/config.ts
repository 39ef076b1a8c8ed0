/**
 * How one platform process is set up: read from the environment once, completed from the data directory.
 *
 * Secrets that nobody gave are made at the first start and kept in the data directory, readable by its owner alone. With a database
 * of one's own that is refused for the two that the data depends on: a second replica would make others.
 */
import { createSecretKey } from 'node:crypto';
import path from 'node:path';
import {
  adminKeyFile,
  ConfigurationError,
  dataDirectory,
  keptSecret,
  readConfig,
  type Clock,
  type DeploymentSecret,
  type Log,
} from '@duebridge/runtime';
import type { OpenIdProvider } from './admin/openid.ts';
import type { FundingConfig } from './funding/configured.ts';
import type { StripeSettings } from './funding/stripe.ts';
import { openSealer } from './partners/seal.ts';
import type { MailTransport } from './checkout/mail.ts';
import { pepperText, variables } from './variables.ts';

/** What the environment says; variables.ts describes each setting, with its default. */
type Environment = ReturnType<typeof readConfig<typeof variables>>;

/**
 * Everything a platform needs to know. What is left out has the default of its variable, but for `databaseWaitSeconds`: a program that
 * starts a platform itself does not wait for its database.
 */
export interface PlatformConfig
  extends
    FundingConfig,
    Partial<
      Omit<
        Environment,
        | 'funding'
        | 'ipRate'
        | 'logLevel'
        | 'mailFrom'
        | 'smtpUrl'
        | `oidc${string}`
        | `stripe${string}`
      >
    > {
  /** Whether to apply missing migrations at the start; default true. */
  readonly migrate?: boolean;
  /** How long a request waits for a connection to the database, in milliseconds; default 5,000. For tests, which a busy machine keeps waiting. */
  readonly databaseAcquireMs?: number;
  /** Tokens a second for each client, and in one burst; default 25 and 50 (decision 16). */
  readonly clientRate?: Rate;
  /** Calls a second for each address, before anything is looked at; default 200 and 400; undefined: no limit, as behind a proxy. */
  readonly ipRate?: Rate | undefined;
  /** OpenID Connect provider that signs operators in to the console; default none. */
  readonly openId?: OpenIdProvider | undefined;
  /** The server that takes mails to customers; default none, and no mail is sent. */
  readonly mail?: MailTransport | undefined;
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

/** Reads the environment. Throws ConfigurationError naming every variable that is wrong. */
export function readPlatformConfig(
  env: Readonly<Record<string, string | undefined>> = process.env,
): PlatformConfig & Omit<Environment, 'ipRate'> {
  const read = readConfig(variables, env);
  const openId: OpenIdProvider | undefined = allOrNone('OpenID Connect', read, {
    issuer: 'oidcIssuer',
    clientId: 'oidcClientId',
    clientSecret: 'oidcClientSecret',
    redirectUrl: 'oidcRedirectUrl',
  });
  const mail: MailTransport | undefined = allOrNone('Mail', read, {
    url: 'smtpUrl',
    from: 'mailFrom',
  });
  const keys: Omit<StripeSettings, 'methods' | 'bankMaxCents'> | undefined = allOrNone(
    'Stripe',
    read,
    {
      secretKey: 'stripeSecretKey',
      publishableKey: 'stripePublishableKey',
      webhookSecrets: 'stripeWebhookSecret',
    },
  );
  if (keys !== undefined && isLive(keys.secretKey) !== isLive(keys.publishableKey)) {
    throw new ConfigurationError(
      'one of the Stripe keys is for test mode and the other is live: take both from the same mode',
    );
  }
  const { ipRate, stripeMethods: methods, stripeBankMaxCents: bankMaxCents } = read;
  return {
    ...read,
    openId,
    mail,
    stripe: keys && { ...keys, methods, bankMaxCents },
    ipRate: ipRate === 0 ? undefined : { perSecond: ipRate, burst: 2 * ipRate },
  };
}

/** Where the build of @duebridge/web writes, in the workspace and in an installed package. */
const builtPages = new URL('./dist/', import.meta.resolve('@duebridge/web/package.json'));

/** A configuration with the default of everything that is left out or undefined; of rates, an undefined `ipRate` means none. */
export function settled(config: PlatformConfig) {
  const clientRate = { perSecond: 25, burst: 50 };
  const given = Object.entries(config).filter(
    ([name, value]) => value !== undefined || name === 'ipRate',
  );
  return {
    ...readPlatformConfig({}),
    databaseWaitSeconds: 0,
    clientRate,
    webDist: builtPages,
    ...(Object.fromEntries(given) as PlatformConfig),
  };
}
export type PlatformSettings = ReturnType<typeof settled>;

/**
 * The secrets of a configuration; those not given are read from the data directory, and made there at the first start. Throws
 * ConfigurationError when one that the data depends on is missing beside a database of one's own, or cannot be used.
 */
export async function readSecrets(config: PlatformConfig) {
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
  const given = config.keyPepper ?? (await kept('platform-key-pepper', 'DUEBRIDGE_KEY_PEPPER'));
  const adminKey = config.adminKey ?? (await keptSecret(adminKeyFile(directory, 'platform')));
  // As a key: from a Buffer, Node 24 would import it at every digest, which takes six times as long as the digest.
  const pepper = createSecretKey(Buffer.from(pepperText(given), 'base64'));
  /** Those that the data depends on, as the database remembers them. */
  const checked: readonly DeploymentSecret[] = [
    {
      variable: 'DUEBRIDGE_SEAL_KEY',
      keys: sealKey.split(',').map((key) => createSecretKey(Buffer.from(key.trim(), 'base64'))),
    },
    { variable: 'DUEBRIDGE_KEY_PEPPER', keys: [pepper] },
  ];
  return { checked, sealKey, pepper, adminKey };
}

/** The settings if all of them are given, undefined if none is. Throws ConfigurationError for some of them. */
function allOrNone<const Keys extends Readonly<Record<string, keyof Environment>>>(
  what: string,
  read: Environment,
  keys: Keys,
): { [Name in keyof Keys]: NonNullable<Environment[Keys[Name]]> } | undefined {
  const given = Object.entries(keys).filter(([, key]) => read[key] !== undefined);
  if (given.length === 0) return undefined;
  const names = Object.values(keys).map((key) => variables[key].name);
  if (given.length === names.length) {
    return Object.fromEntries(given.map(([name, key]) => [name, read[key]])) as never;
  }
  throw new ConfigurationError(
    `${what} is only partly configured: set ${names.slice(0, -1).join(', ')} and ${names.at(-1)}, or none of them`,
  );
}

/** Whether a Stripe key moves real money. */
function isLive(key: string): boolean {
  return /^[a-z]+_live_/.test(key);
}
