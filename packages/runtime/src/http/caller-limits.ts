/** Rate limits of a listener for operators: guesses of keys are limited by address, and a runaway program by its own key. */
import { Refusal } from '@duebridge/contract';
import type { FastifyRequest } from 'fastify';
import { systemClock, type Clock } from '../clock.ts';
import { rateLimiter } from './rate-limiter.ts';

/**
 * Wrong keys from one address: ten a minute, with a burst that a handful of misconfigured scripts may send before somebody
 * notices.
 */
const failures = { perSecond: 10 / 60, burst: 100 };
/** Calls with one valid key: far above what people and their scripts need, and what our database can answer beside payments. */
const calls = { perSecond: 200, burst: 1_000 };
/** Addresses and callers remembered. */
const MAX_KEYS = 10_000;

/**
 * Creates the limits of one listener: a function that wraps an authentication. A refused key counts against its address; beyond the
 * limit the answer is 429 instead of 401. A valid key is accepted whatever others behind the same proxy do. Throws Refusal
 * TOO_MANY_REQUESTS with Retry-After.
 */
export function limitCallers(clock: Clock = systemClock) {
  const failed = rateLimiter({ ...failures, maxKeys: MAX_KEYS, clock });
  const called = rateLimiter({ ...calls, maxKeys: MAX_KEYS, clock });
  return async <Caller>(
    request: FastifyRequest,
    authenticate: () => Caller | Promise<Caller>,
    nameOf: (caller: Caller) => string,
  ): Promise<Caller> => {
    let caller: Caller;
    try {
      caller = await authenticate();
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'UNAUTHORIZED') throw error;
      throw failed.take(request.ip) ?? error;
    }
    const refusal = called.take(nameOf(caller));
    if (refusal) throw refusal;
    return caller;
  };
}
