/** The environment of the platform, as `--help` shows it and config.ts reads it. Loads no server. */
import {
  address,
  flag,
  integer,
  serverVariables,
  text,
  type Variable,
} from '@duebridge/runtime/cli';
import type { StripeMethod } from './funding/stripe.ts';
import { isRoutingNumber, type Payer } from './money/bank-file.ts';

/** 256 bits: what the cipher takes, and as many as the digests that the pepper keys. */
const KEY_BYTES = 32;
const KEY_PROBLEM = 'must be 32 random bytes in base64, such as openssl rand -base64 32 prints';

/** One key, or several with commas between them; throws an Error for what does not decode to 32 bytes each. */
function keyList(value: string): string {
  const sizes = value.split(',').map((key) => Buffer.from(key.trim(), 'base64').length);
  if (sizes.some((size) => size !== KEY_BYTES)) throw new Error(KEY_PROBLEM);
  return value;
}

/** Throws an Error for what does not decode to at least 32 bytes. */
export function pepperText(value: string): string {
  if (Buffer.from(value, 'base64').length < KEY_BYTES) throw new Error(KEY_PROBLEM);
  return value;
}

/** Names with commas between them. */
function list(value: string): readonly string[] {
  const names = value.split(',').map((name) => name.trim());
  if (names.some((name) => name === '')) throw new Error('must be names separated by commas');
  return names;
}

const STRIPE_METHODS: readonly StripeMethod[] = ['card', 'us_bank_account', 'wallet'];

/** `none` offers nothing, and lets the payments that were begun end. */
function stripeMethods(value: string): readonly StripeMethod[] {
  if (value === 'none') return [];
  const methods = list(value).map((name) => {
    const method = STRIPE_METHODS.find((one) => one === name);
    if (method === undefined)
      throw new Error(`must be some of ${STRIPE_METHODS.join(', ')}, separated by commas, or none`);
    return method;
  });
  if (methods.includes('wallet') && !methods.includes('card'))
    throw new Error('must name card beside wallet, for devices without one');
  return methods;
}

/** A text that begins as the given kind of key does: the commonest error is to paste another one. */
function beginning(...starts: string[]): (value: string) => string {
  return (value) => {
    if (!starts.some((start) => value.startsWith(start))) {
      throw new Error(`must begin with ${starts.join(' or ')}`);
    }
    return value;
  };
}

function signingSecrets(value: string): readonly string[] {
  return list(value).map(beginning('whsec_'));
}

/** The account that pays billers. Throws an Error that does not repeat it. */
function payerText(value: string): Payer {
  const wrong = new Error(
    'must be JSON with the texts name, routing_number (nine digits), account_number and company_id (ten characters at most)',
  );
  let given: unknown;
  try {
    given = JSON.parse(value);
  } catch {
    throw wrong;
  }
  const text = (name: keyof Payer): string => {
    const found: unknown =
      typeof given === 'object' && given ? Reflect.get(given, name) : undefined;
    if (typeof found !== 'string' || found.trim() === '') throw wrong;
    return found.trim();
  };
  const payer = {
    name: text('name'),
    routing_number: text('routing_number'),
    account_number: text('account_number'),
    company_id: text('company_id'),
  };
  // A NACHA file has room for ten; a cut id would be that of another company.
  if (!isRoutingNumber(payer.routing_number) || payer.company_id.length > 10) throw wrong;
  return payer;
}

const common = serverVariables({
  service: 'duebridge-platform',
  port: 4000,
  adminPort: 4001,
  connections: 20,
  // Two each for the heartbeat, the engine and requests.
  leastConnections: 6,
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
  sealKey: {
    name: 'DUEBRIDGE_SEAL_KEY',
    parse: keyList,
    default: undefined,
    description:
      'key that encrypts credentials and personal data: 32 bytes in base64; during a rotation new,old',
    otherwise: 'kept in the data directory, required with DATABASE_URL',
    secret: true,
  },
  keyPepper: {
    name: 'DUEBRIDGE_KEY_PEPPER',
    parse: pepperText,
    default: undefined,
    description: 'key of the digests of API keys: 32 bytes in base64',
    otherwise: 'kept in the data directory, required with DATABASE_URL',
    secret: true,
  },
  adminKey: common.adminKey,
  allowPrivateAddresses: {
    name: 'DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES',
    parse: flag,
    default: false,
    description: '1 allows partners at http and private addresses',
    otherwise: '0',
  },
  ipRate: {
    name: 'DUEBRIDGE_IP_RATE',
    parse: integer(0, 100_000),
    default: 200,
    description: 'requests per second from one address, pages included; 0 for no limit',
  },
  paidRetentionDays: {
    name: 'DUEBRIDGE_RETENTION_DAYS',
    parse: integer(1, 3650),
    default: 90,
    description: 'days for which the personal data of customers who paid is kept',
  },
  smtpUrl: {
    name: 'DUEBRIDGE_SMTP_URL',
    parse: address('smtp:', 'smtps:'),
    default: undefined,
    otherwise: 'no mail is sent',
    description: 'server for mails to customers, such as smtps://user:password@host',
    secret: true,
  },
  mailFrom: {
    name: 'DUEBRIDGE_MAIL_FROM',
    parse: text,
    default: undefined,
    otherwise: 'required with DUEBRIDGE_SMTP_URL',
    description: 'sender of mails to customers, such as Payments <pay@example.com>',
  },
  oidcIssuer: {
    name: 'DUEBRIDGE_OIDC_ISSUER',
    parse: address('https:', 'http:'),
    default: undefined,
    description: 'OpenID Connect provider that signs operators in to the console',
  },
  oidcClientId: {
    name: 'DUEBRIDGE_OIDC_CLIENT_ID',
    parse: text,
    default: undefined,
    description: 'client id of the console at that provider',
  },
  oidcClientSecret: {
    name: 'DUEBRIDGE_OIDC_CLIENT_SECRET',
    parse: text,
    default: undefined,
    description: 'client secret of the console at that provider',
    secret: true,
  },
  oidcRedirectUrl: {
    name: 'DUEBRIDGE_OIDC_REDIRECT_URL',
    parse: address('https:', 'http:'),
    default: undefined,
    description: 'address of the console with /console/oidc/callback at its end',
  },
  secondPersonAboveCents: {
    name: 'DUEBRIDGE_SECOND_PERSON_ABOVE_CENTS',
    parse: integer(0, 99_999_999_999),
    default: 100_000,
    description: 'closing a review of more than this needs a second person',
  },
  payer: {
    name: 'DUEBRIDGE_PAYER',
    parse: payerText,
    default: undefined,
    otherwise: 'no file for a bank can be made',
    description:
      'the account that pays billers, as JSON: name, routing_number, account_number, company_id',
    secret: true,
  },
  tracesEndpoint: common.tracesEndpoint,
  tracesRatio: common.tracesRatio,
  tracesService: common.tracesService,
  funding: {
    name: 'DUEBRIDGE_FUNDING',
    parse: list,
    default: ['sandbox'],
    description:
      'funding adapters, comma-separated: sandbox, stripe, or a module such as ./processor.ts',
    otherwise: 'sandbox',
  },
  publicUrl: {
    name: 'DUEBRIDGE_PUBLIC_URL',
    parse: address('https:', 'http:'),
    default: undefined,
    description: 'the platform’s address as browsers reach it, for returns from a processor’s page',
  },
  stripeSecretKey: {
    name: 'DUEBRIDGE_STRIPE_SECRET_KEY',
    parse: beginning('sk_', 'rk_'),
    default: undefined,
    description: 'secret or restricted key of the Stripe account',
    secret: true,
  },
  stripePublishableKey: {
    name: 'DUEBRIDGE_STRIPE_PUBLISHABLE_KEY',
    parse: beginning('pk_'),
    default: undefined,
    description: 'publishable key of the same account and mode',
  },
  stripeWebhookSecret: {
    name: 'DUEBRIDGE_STRIPE_WEBHOOK_SECRET',
    parse: signingSecrets,
    default: undefined,
    description: 'signing secret of the webhook endpoint; during a rotation new,old',
    secret: true,
  },
  stripeMethods: {
    name: 'DUEBRIDGE_STRIPE_METHODS',
    parse: stripeMethods,
    default: ['card', 'us_bank_account'],
    description: 'what Stripe offers: card, us_bank_account, wallet; none to stop',
    otherwise: 'both',
  },
  stripeBankMaxCents: {
    name: 'DUEBRIDGE_STRIPE_BANK_MAX_CENTS',
    parse: integer(50, 99_999_999),
    default: 250_000,
    description: 'largest bank debit, in cents: a debit may come back unpaid',
  },
  logLevel: common.logLevel,
} as const satisfies Readonly<Record<string, Variable<unknown>>>;

/** Variables that only the partner's server reads, without their prefix; a shared environment may contain them. */
export const variablesOfOthers = /^PARTNER_/;
