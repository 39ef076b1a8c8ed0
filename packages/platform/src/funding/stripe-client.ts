/**
 * How Stripe is called, whatever for: the library's client, idempotency keys, and which errors are refusals.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import { openNameLookup } from '@duebridge/runtime';
import { Stripe } from 'stripe';

/** The Stripe account, and how it is reached. */
export interface StripeAccess {
  readonly secretKey: string;
  /** Base URL of Stripe's API; default https://api.stripe.com. */
  readonly apiUrl?: string | undefined;
}

/** The deadline of one call; the engine's own deadline covers the two or three calls of an act. */
const CALL_MS = 8_000;
/**
 * When the stored answer of a key is an error, the next key is used, so many times and for so long in one call. Four replicas that ask once an
 * hour use fewer keys in a day, after which Stripe forgets them; a stored answer comes at once.
 */
const [MAX_KEYS, WALK_MS] = [100, 10_000];

/** Whether no money moves by this secret key: its prefix says that it is one of Stripe's test mode. */
export const isTestKey = (secretKey: string): boolean => /^[a-z]+_test_/.test(secretKey);

/** Opens a client without calling Stripe. */
export function openStripeClient({ secretKey, apiUrl }: StripeAccess): Stripe {
  const api = new URL(apiUrl ?? 'https://api.stripe.com');
  const isPlain = api.protocol === 'http:';
  const connections = { keepAlive: true, lookup: openNameLookup() };
  return new Stripe(secretKey, {
    httpClient: Stripe.createNodeHttpClient(
      isPlain ? new HttpAgent(connections) : new HttpsAgent(connections),
    ),
    host: api.hostname,
    port: api.port === '' ? (isPlain ? 80 : 443) : api.port,
    protocol: isPlain ? 'http' : 'https',
    timeout: CALL_MS,
    // Whoever calls retries, with delays of its own.
    maxNetworkRetries: 0,
    telemetry: false,
  });
}

/** The options of a call under an idempotency key. */
export interface Key {
  readonly idempotencyKey: string;
}

/**
 * Runs an act under its idempotency key. Stripe also stores errors with the key, server errors included, and would repeat them
 * for a day whatever happened since. Such an answer is recognized by its header, and the next key is used. The object's state,
 * not the key, ensures that the act happens only once.
 */
export async function keyed<T>(key: string, call: (key: Key) => Promise<T>): Promise<T> {
  const until = performance.now() + WALK_MS;
  for (let turn = 1; ; turn += 1) {
    try {
      return await call({ idempotencyKey: turn === 1 ? key : `${key}:${turn}` });
    } catch (error) {
      const replayed =
        error instanceof Stripe.errors.StripeError &&
        error.headers?.['idempotent-replayed'] === 'true';
      if (!replayed || turn >= MAX_KEYS || performance.now() > until) throw error;
    }
  }
}

/** Stripe understood the request and refused it: the card was declined, or the object's state does not allow it. */
export function isRefusal(error: unknown): error is Stripe.errors.StripeError {
  return (
    error instanceof Stripe.errors.StripeCardError ||
    error instanceof Stripe.errors.StripeInvalidRequestError
  );
}
