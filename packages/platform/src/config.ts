/**
 * How one platform process is set up: read from the environment once, completed from the data directory.
 *
 * Secrets that nobody gave are made at the first start and kept in the data directory, readable by its owner alone. With a database
 * of one's own that is refused for the two that the data depends on: a second replica would make others.
 */
import { createSecretKey, type KeyObject } from 'node:crypto';
import path from 'node:path';
import {
  adminKeyFile,
  ConfigurationError,
  dataDirectory,
  keptSecret,
  readConfig,
  tracingOf,
  type Clock,
  type DeploymentSecret,
  type Log,
  type Tracing,
} from '@duebridge/runtime';
import type { OpenIdProvider } from './admin/openid.ts';
import type { FundingConfig } from './funding/configured.ts';
import type { StripeSettings } from './funding/stripe.ts';
import type { Payer } from './money/bank-file.ts';
import { openSealer } from './partners/seal.ts';
import { pepperText, variables } from './variables.ts';

/** Everything a platform needs to know. Fields left out have the defaults of the environment's variables. */
export interface PlatformConfig extends FundingConfig {
  /** Address of the public listener; default 127.0.0.1. */
  readonly host?: string;
  /** Port of the public listener; default 4000 (decision 27), 0 for any free one. */
  readonly port?: number;
  /** Address of the admin listener; default 127.0.0.1, whatever `host` is. */
  readonly adminHost?: string;
  /** Names by which the admin listener may be asked, besides addresses; default: localhost alone on this machine, any name elsewhere. */
  readonly adminHosts?: readonly string[] | undefined;
  /** Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, as addresses or networks; default: those of this machine. */
  readonly trustedProxies?: readonly string[] | undefined;
  /** Port of the admin listener; default 4001 (decision 27), 0 for any free one. */
  readonly adminPort?: number;
  /** Whether to apply missing migrations at the start; default true. */
  readonly migrate?: boolean;
  /** PostgreSQL to use; without it the embedded one in `dataDirectory` (decision 28). */
  readonly databaseUrl?: string | undefined;
  /** Seconds for which the start waits for a database that does not answer; default 0. */
  readonly databaseWaitSeconds?: number;
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
  /** The account that pays billers, for files to the bank; default none, and no file. */
  readonly payer?: Payer | undefined;
  /** SMTP server for receipts to customers; default none, and no mail. */
  readonly smtpUrl?: string | undefined;
  /** Sender of those mails; required with `smtpUrl`. */
  readonly mailFrom?: string | undefined;
  /** OpenID Connect provider that signs operators in to the console; default none. */
  readonly openId?: OpenIdProvider | undefined;
  /** Opens the traces of this server; default none. */
  readonly tracing?: (() => Promise<Tracing>) | undefined;
  /** The public listener as browsers reach it, such as https://pay.example.com; for returns from a processor's page. */
  readonly publicUrl?: string | undefined;
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

/** The secrets of a platform. */
export interface PlatformSecrets {
  /** Those that the data depends on, as the database remembers them. */
  readonly checked: readonly DeploymentSecret[];
  readonly sealKey: string;
  /** As a key: from a Buffer, Node 24 would import it at every digest, which takes six times as long as the digest. */
  readonly keyPepper: KeyObject;
  readonly adminKey: string;
}

/** Reads the environment. Throws ConfigurationError naming every variable that is wrong. */
export function readPlatformConfig(
  env: Readonly<Record<string, string | undefined>> = process.env,
): PlatformConfig & { readonly logLevel: 'debug' | 'info' | 'warn' | 'error' | 'silent' } {
  const {
    ipRate,
    oidcIssuer,
    oidcClientId,
    oidcClientSecret,
    oidcRedirectUrl,
    tracesEndpoint,
    tracesRatio,
    tracesService,
    stripeSecretKey,
    stripePublishableKey,
    stripeWebhookSecret,
    stripeMethods,
    stripeBankMaxCents,
    ...read
  } = readConfig(variables, env);
  return {
    ...read,
    tracing: tracingOf({ tracesEndpoint, tracesRatio, tracesService }),
    stripe: stripeOf(
      {
        secretKey: stripeSecretKey,
        publishableKey: stripePublishableKey,
        webhookSecrets: stripeWebhookSecret,
      },
      { methods: stripeMethods, bankMaxCents: stripeBankMaxCents },
    ),
    openId: allOrNone<OpenIdProvider>(
      'OpenID Connect',
      ['ISSUER', 'CLIENT_ID', 'CLIENT_SECRET', 'REDIRECT_URL'].map((n) => `DUEBRIDGE_OIDC_${n}`),
      {
        issuer: oidcIssuer,
        clientId: oidcClientId,
        clientSecret: oidcClientSecret,
        redirectUrl: oidcRedirectUrl,
      },
    ),
    ipRate: ipRate === 0 ? undefined : { perSecond: ipRate, burst: 2 * ipRate },
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
  const checked = [
    {
      variable: 'DUEBRIDGE_SEAL_KEY',
      keys: sealKey.split(',').map((key) => createSecretKey(Buffer.from(key.trim(), 'base64'))),
    },
    { variable: 'DUEBRIDGE_KEY_PEPPER', keys: [keyPepper] },
  ];
  return { checked, sealKey, keyPepper, adminKey };
}

/** The settings if all of them are given, undefined if none is. Throws ConfigurationError for some of them. */
function allOrNone<Settings extends object>(
  what: string,
  names: readonly string[],
  read: { readonly [Name in keyof Settings]: Settings[Name] | undefined },
): Settings | undefined {
  const given = Object.values(read).filter((value) => value !== undefined);
  if (given.length === 0) return undefined;
  if (given.length === names.length) return read as Settings;
  throw new ConfigurationError(
    `${what} is only partly configured: set ${names.slice(0, -1).join(', ')} and ${names.at(-1)}, or none of them`,
  );
}

/** Stripe's account: its three secrets or none of them. Throws ConfigurationError. */
function stripeOf(
  secrets: { readonly [Name in StripeSecret]: StripeSettings[Name] | undefined },
  more: Omit<StripeSettings, StripeSecret>,
): StripeSettings | undefined {
  const names = ['SECRET_KEY', 'PUBLISHABLE_KEY', 'WEBHOOK_SECRET'];
  const whole = allOrNone<Pick<StripeSettings, StripeSecret>>(
    'Stripe',
    names.map((name) => `DUEBRIDGE_STRIPE_${name}`),
    secrets,
  );
  if (whole === undefined) return undefined;
  if (isLive(whole.secretKey) !== isLive(whole.publishableKey)) {
    throw new ConfigurationError(
      'one of the Stripe keys is for test mode and the other is live: take both from the same mode',
    );
  }
  return { ...more, ...whole };
}
type StripeSecret = 'secretKey' | 'publishableKey' | 'webhookSecrets';

/** Whether a Stripe key moves real money. */
function isLive(key: string): boolean {
  return /^[a-z]+_live_/.test(key);
}
