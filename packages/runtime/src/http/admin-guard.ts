/**
 * The guard of an admin listener: a bearer key, compared in constant time so that timing reveals neither its length nor its
 * content.
 */
import { Refusal } from '@duebridge/contract';
import type { FastifyRequest } from 'fastify';
import crypto, { timingSafeEqual } from 'node:crypto';
import type { Clock } from '../clock.ts';
import { ConfigurationError } from '../errors.ts';
import { limitCallers } from './caller-limits.ts';

/** Minimum length of an admin key, in characters; a shorter one might be guessed. */
const MIN_KEY_LENGTH = 16;

/**
 * Answers every request without `adminKey` with 401, and too many requests of either kind with 429. Throws ConfigurationError for
 * a key that is too short.
 */
export function adminGuard(
  adminKey: string,
  clock?: Clock,
): (request: FastifyRequest) => Promise<void> {
  if (adminKey.length < MIN_KEY_LENGTH) {
    throw new ConfigurationError(
      `the admin key is too short: give DUEBRIDGE_ADMIN_KEY at least ${MIN_KEY_LENGTH} characters`,
    );
  }
  // Digests have one length, whatever was sent.
  const expected = sha256(adminKey);
  const limit = limitCallers(clock);
  return async (request) => {
    const authenticate = (): string => {
      if (timingSafeEqual(sha256(bearerOf(request) ?? ''), expected)) return 'admin-key';
      throw new Refusal('UNAUTHORIZED', { headers: { 'WWW-Authenticate': 'Bearer' } });
    };
    await limit(request, authenticate, String);
  };
}

/** The credential of `Authorization: Bearer …`, or undefined. The scheme's case does not matter (RFC 9110). */
export function bearerOf(request: FastifyRequest): string | undefined {
  return /^bearer +([\u0021-\u007e]+)$/i.exec(request.headers.authorization ?? '')?.[1];
}

const sha256 = (text: string): Buffer => crypto.hash('sha256', text, 'buffer');
