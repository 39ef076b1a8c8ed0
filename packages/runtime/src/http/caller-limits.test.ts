import assert from 'node:assert/strict';
import test from 'node:test';
import { Refusal } from '@duebridge/contract';
import type { FastifyRequest } from 'fastify';
import { manualClock } from '../../test/testing.ts';
import { adminGuard } from './admin-guard.ts';
import { limitCallers } from './caller-limits.ts';

const from = (ip: string, authorization?: string): FastifyRequest =>
  ({ ip, headers: { authorization } }) as unknown as FastifyRequest;

/** The code of each refusal, or `ok`. */
async function outcome(asked: Promise<unknown>): Promise<string> {
  return asked.then(
    () => 'ok',
    (error: unknown) => (error instanceof Refusal ? error.code : String(error)),
  );
}

test('guessing admin keys gets 429 after a hundred tries, while a valid key still works', async () => {
  const clock = manualClock();
  const guard = adminGuard('the-admin-key-of-the-test', clock);
  const wrong = (ip: string): Promise<string> => outcome(guard(from(ip, 'Bearer guess')));
  for (let guess = 0; guess < 100; guess += 1)
    assert.equal(await wrong('10.0.0.1'), 'UNAUTHORIZED');
  assert.equal(await wrong('10.0.0.1'), 'TOO_MANY_REQUESTS');
  const good = from('10.0.0.1', 'Bearer the-admin-key-of-the-test');
  assert.equal(
    await outcome(guard(good)),
    'ok',
    'an operator behind the same proxy is not locked out',
  );
  assert.equal(await wrong('10.0.0.2'), 'UNAUTHORIZED', 'nor does anybody else pay for it');
  await clock.advance(6_000);
  assert.equal(await wrong('10.0.0.1'), 'UNAUTHORIZED', 'ten in a minute');
  assert.equal(await wrong('10.0.0.1'), 'TOO_MANY_REQUESTS');
});

test('a runaway program with a valid key gets Retry-After, and other keys are not affected', async () => {
  const clock = manualClock();
  const limit = limitCallers(clock);
  const call = (name: string): Promise<string> =>
    outcome(
      limit(
        from('10.0.0.1'),
        () => name,
        (one) => one,
      ),
    );
  const done = await Promise.all(Array.from({ length: 1_001 }, () => call('ada')));
  assert.equal(done.filter((code) => code === 'ok').length, 1_000);
  assert.equal(await call('bob'), 'ok');
  await assert.rejects(
    limit(
      from('10.0.0.1'),
      () => 'ada',
      (one) => one,
    ),
    (error) => error instanceof Refusal && Number(error.headers['Retry-After']) >= 1,
  );
  await clock.advance(1_000);
  assert.equal(await call('ada'), 'ok');
});
