/** The environment of the platform, as `--help` shows it and config.ts reads it. Loads no server. */
import {
  address,
  flag,
  integer,
  names,
  serverVariables,
  setting,
  text,
  type Variable,
} from '@duebridge/runtime/cli';
import type { StripeMethod } from './funding/stripe.ts';
import { isRoutingNumber, type Payer } from './money/bank-file.ts';
import { parsedJson } from './plain-text.ts';

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

const STRIPE_METHODS: readonly StripeMethod[] = ['card', 'us_bank_account', 'wallet'];

/** `none` offers nothing, and lets the payments that were begun end. */
function stripeMethods(value: string): readonly StripeMethod[] {
  if (value === 'none') return [];
  const methods = names(value).map((name) => {
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

/** The account that pays billers. Throws an Error that does not repeat it. */
function payerText(value: string): Payer {
  const wrong = new Error(
    'must be JSON with the texts name, routing_number (nine digits), account_number and company_id (ten characters at most)',
  );
  const given = parsedJson(value);
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

export const variables = {
  ...serverVariables({
    port: 4000,
    adminPort: 4001,
    connections: 20,
    // Two each for the heartbeat, the engine and requests.
    leastConnections: 6,
  }),
  sealKey: setting(
    'DUEBRIDGE_SEAL_KEY',
    keyList,
    'key that encrypts credentials and personal data: 32 bytes in base64; during a rotation new,old',
    { otherwise: 'kept in the data directory, required with DATABASE_URL', secret: true },
  ),
  keyPepper: setting(
    'DUEBRIDGE_KEY_PEPPER',
    pepperText,
    'key of the digests of API keys: 32 bytes in base64',
    { otherwise: 'kept in the data directory, required with DATABASE_URL', secret: true },
  ),
  allowPrivateAddresses: setting(
    'DUEBRIDGE_ALLOW_PRIVATE_ADDRESSES',
    flag,
    '1 allows partners at http and private addresses',
    { default: false, otherwise: '0' },
  ),
  ipRate: setting(
    'DUEBRIDGE_IP_RATE',
    integer(0, 100_000),
    'requests per second from one address, pages included; 0 for no limit',
    { default: 200 },
  ),
  paidRetentionDays: setting(
    'DUEBRIDGE_RETENTION_DAYS',
    integer(1, 3650),
    'days for which the personal data of customers who paid is kept',
    { default: 90 },
  ),
  smtpUrl: setting(
    'DUEBRIDGE_SMTP_URL',
    address('smtp:', 'smtps:'),
    'server for mails to customers, such as smtps://user:password@host',
    { otherwise: 'no mail is sent', secret: true },
  ),
  mailFrom: setting(
    'DUEBRIDGE_MAIL_FROM',
    text,
    'sender of mails to customers, such as Payments <pay@example.com>',
    { otherwise: 'required with DUEBRIDGE_SMTP_URL' },
  ),
  oidcIssuer: setting(
    'DUEBRIDGE_OIDC_ISSUER',
    address('https:', 'http:'),
    'OpenID Connect provider that signs operators in to the console',
  ),
  oidcClientId: setting(
    'DUEBRIDGE_OIDC_CLIENT_ID',
    text,
    'client id of the console at that provider',
  ),
  oidcClientSecret: setting(
    'DUEBRIDGE_OIDC_CLIENT_SECRET',
    text,
    'client secret of the console at that provider',
    { secret: true },
  ),
  oidcRedirectUrl: setting(
    'DUEBRIDGE_OIDC_REDIRECT_URL',
    address('https:', 'http:'),
    'address of the console with /console/oidc/callback at its end',
  ),
  secondPersonAboveCents: setting(
    'DUEBRIDGE_SECOND_PERSON_ABOVE_CENTS',
    integer(0, 99_999_999_999),
    'above this, two persons close a payment, refund it, end a case, or say that a paid transfer came back',
    { default: 100_000 },
  ),
  payer: setting(
    'DUEBRIDGE_PAYER',
    payerText,
    'the account that pays billers, as JSON: name, routing_number, account_number, company_id',
    { otherwise: 'no file for a bank can be made', secret: true },
  ),
  funding: setting(
    'DUEBRIDGE_FUNDING',
    names,
    'funding adapters, comma-separated: sandbox, stripe, or a module such as ./processor.ts',
    { default: ['sandbox'], otherwise: 'sandbox' },
  ),
  publicUrl: setting(
    'DUEBRIDGE_PUBLIC_URL',
    address('https:', 'http:'),
    'the platform’s address as browsers reach it, for returns from a processor’s page',
  ),
  stripeSecretKey: setting(
    'DUEBRIDGE_STRIPE_SECRET_KEY',
    beginning('sk_', 'rk_'),
    'secret or restricted key of the Stripe account',
    { secret: true },
  ),
  stripePublishableKey: setting(
    'DUEBRIDGE_STRIPE_PUBLISHABLE_KEY',
    beginning('pk_'),
    'publishable key of the same account and mode',
  ),
  stripeWebhookSecret: setting(
    'DUEBRIDGE_STRIPE_WEBHOOK_SECRET',
    (value): readonly string[] => names(value).map(beginning('whsec_')),
    'signing secret of the webhook endpoint; during a rotation new,old',
    { secret: true },
  ),
  stripeMethods: setting(
    'DUEBRIDGE_STRIPE_METHODS',
    stripeMethods,
    'what Stripe offers: card, us_bank_account, wallet; none to stop',
    { default: ['card', 'us_bank_account'], otherwise: 'both' },
  ),
  stripeBankMaxCents: setting(
    'DUEBRIDGE_STRIPE_BANK_MAX_CENTS',
    integer(50, 99_999_999),
    'largest bank debit, in cents: a debit may come back unpaid',
    { default: 250_000 },
  ),
} as const satisfies Readonly<Record<string, Variable<unknown>>>;

/** Variables that only the partner's server reads, without their prefix; a shared environment may contain them. */
export const variablesOfOthers = /^PARTNER_/;
