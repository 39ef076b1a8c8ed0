/**
 * What the authenticator answers from memory: for how long it relies on a look at the table, how much it keeps, and how many
 * attempts and tokens it allows. The table is in memory, and time moves only with the test.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import type { Database } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { openAuthenticator, type OAuthClient } from './auth.ts';

const platform: OAuthClient = { client_id: 'platform', secrets: ['a-secret-of-the-platform'] };

/** The tables that the authenticator reads and writes. `looks` counts the lookups of tokens. */
function memory(clients: readonly OAuthClient[] = [platform]) {
  const clock = manualClock();
  const tokens = new Map<string, { client_id: string; scope: string; expiresAt: number }>();
  const state = { looks: 0 };
  const database = {
    query: (statement: { name: string }, values: readonly unknown[]) => {
      const key = Buffer.isBuffer(values?.[0]) ? values[0].toString('hex') : '';
      const now = clock.monotonic();
      if (statement.name === 'kit_issue_token') {
        const [, client_id, scope, seconds] = values as [Buffer, string, string, number];
        tokens.set(key, { client_id, scope, expiresAt: now + seconds * 1_000 });
      }
      if (statement.name !== 'kit_find_token') return Promise.resolve([]);
      state.looks += 1;
      const found = tokens.get(key);
      return Promise.resolve(
        found && found.expiresAt > now
          ? [{ ...found, seconds_left: (found.expiresAt - now) / 1_000 }]
          : [],
      );
    },
  } as unknown as Database;
  const authenticator = openAuthenticator({
    auth: { method: 'oauth', clients },
    database,
    clock,
  });
  const issue = async (client = platform, client_secret = client.secrets[0], scope?: string) => {
    const { client_id } = client;
    const form = {
      grant_type: 'client_credentials',
      client_id,
      client_secret: client_secret ?? '',
    };
    return authenticator.issue!({ ...form, ...(scope === undefined ? {} : { scope }) }, undefined);
  };
  const outcome = async (token: string): Promise<string> => {
    try {
      const caller = await authenticator.authenticate({ authorization: `Bearer ${token}` }, 'read');
      return caller.client_id;
    } catch (error) {
      return String((error as { code?: unknown }).code);
    }
  };
  return { clock, tokens, state, authenticator, issue, outcome };
}

/** Tokens of the right form that nobody issued. */
const invented = (index: number): string => `dbp_${String(index).padStart(43, '0')}`;

test('a token is looked up again after four seconds, known or not, and never sooner [OA4]', async () => {
  const { clock, state, issue, outcome } = memory();
  await clock.advance(100_000);
  const { access_token, token_type } = await issue();
  assert.equal(token_type, 'Bearer');
  for (const [token, answer] of [
    [access_token, 'platform'],
    [invented(1), 'UNAUTHORIZED'],
  ] as const) {
    state.looks = 0;
    assert.equal(await outcome(token), answer);
    await clock.advance(3_999);
    assert.equal(await outcome(token), answer);
    assert.equal(state.looks, 1, `${answer}: a query for each call`);
    await clock.advance(1);
    assert.equal(await outcome(token), answer);
    assert.equal(state.looks, 2, `${answer}: a revocation elsewhere would not be seen`);
  }
});

test('a token ends to the millisecond, also between two lookups [OA3 LI1]', async () => {
  const { clock, state, issue, outcome } = memory();
  const { access_token, expires_in } = await issue();
  assert.equal(expires_in, 3_600);
  await clock.advance(3_598_000);
  assert.equal(await outcome(access_token), 'platform');
  await clock.advance(1_999);
  assert.equal(await outcome(access_token), 'platform');
  await clock.advance(1);
  assert.equal(await outcome(access_token), 'UNAUTHORIZED');
  assert.equal(state.looks, 1, 'all of it from memory');
});

test('a client that is no longer configured is refused with its tokens that have not expired [S3 OA1]', async () => {
  const { tokens, issue, outcome } = memory();
  const { access_token } = await issue();
  for (const token of tokens.values()) token.client_id = 'removed';
  assert.equal(await outcome(access_token), 'UNAUTHORIZED');
});

test('invented tokens take bounded memory, and push no token out that is in use [OA4 LI1]', async () => {
  const { clock, state, issue, outcome } = memory();
  const { access_token } = await issue();
  assert.equal(await outcome(access_token), 'platform');
  for (let index = 0; index < 10_000; index += 1) await outcome(invented(index));
  const looked = state.looks;
  assert.equal(await outcome(access_token), 'platform');
  assert.equal(await outcome(invented(0)), 'UNAUTHORIZED');
  assert.equal(state.looks, looked, 'ten thousand are kept');
  await clock.advance(3_000);
  await outcome(invented(10_000));
  assert.equal(await outcome(invented(1)), 'UNAUTHORIZED');
  assert.equal(state.looks, looked + 1, 'only the oldest one left');
  assert.equal(await outcome(invented(0)), 'UNAUTHORIZED');
  assert.equal(state.looks, looked + 2, 'the oldest one left');
});

test('ten thousand tokens are kept, and the one that was looked up longest ago leaves first [LI1]', async () => {
  const { clock, tokens, state, outcome } = memory();
  const valid = { client_id: 'platform', scope: 'read', expiresAt: 3_600_000 };
  for (let index = 0; index <= 10_000; index += 1) {
    tokens.set(createHash('sha256').update(invented(index)).digest('hex'), valid);
  }
  await outcome(invented(0));
  await outcome(invented(1));
  await clock.advance(4_000);
  // Both are looked up again, in the other order.
  await outcome(invented(1));
  await outcome(invented(0));
  for (let index = 2; index < 10_000; index += 1) await outcome(invented(index));
  const looked = state.looks;
  for (const kept of [0, 1, 9_999]) assert.equal(await outcome(invented(kept)), 'platform');
  assert.equal(state.looks, looked, 'ten thousand are kept');
  await outcome(invented(10_000));
  await outcome(invented(0));
  assert.equal(state.looks, looked + 1);
  await outcome(invented(1));
  assert.equal(state.looks, looked + 2, 'the one that was looked up longest ago left');
});

test('twenty wrong secrets, then one a second; the right one and other clients are not held up [OA1 LI1]', async () => {
  const other: OAuthClient = { client_id: 'other', secrets: ['a-secret-of-the-other'] };
  const { clock, issue } = memory([platform, other]);
  const wrong = async (client = platform): Promise<string> =>
    issue(client, 'a-wrong-secret-here').then(
      () => 'a token',
      (error: { error?: string; code?: string }) => error.error ?? error.code ?? '',
    );
  for (let tried = 0; tried < 20; tried += 1) assert.equal(await wrong(), 'invalid_client');
  const refusal = issue(platform, 'a-wrong-secret-here');
  await assert.rejects(refusal, { code: 'TOO_MANY_REQUESTS', headers: { 'Retry-After': '1' } });
  assert.equal(await wrong(other), 'invalid_client');
  assert.ok((await issue()).access_token);
  await clock.advance(1_000);
  assert.deepEqual([await wrong(), await wrong()], ['invalid_client', 'TOO_MANY_REQUESTS']);
});

test('two hundred tokens at once, then ten a second, for each client [OA2 LI1]', async () => {
  const other: OAuthClient = { client_id: 'other', secrets: ['a-secret-of-the-other'] };
  const { clock, issue } = memory([platform, other]);
  for (let asked = 0; asked < 200; asked += 1) await issue();
  await assert.rejects(issue(), { code: 'TOO_MANY_REQUESTS' });
  await issue(other);
  await clock.advance(1_000);
  for (let asked = 0; asked < 10; asked += 1) await issue();
  await assert.rejects(issue(), { code: 'TOO_MANY_REQUESTS' });
});

test('a scope of spaces asks for nothing in particular, like none at all [OA2 SC1]', async () => {
  const { issue } = memory();
  for (const scope of [undefined, '', ' ', '  ']) {
    assert.equal((await issue(platform, platform.secrets[0], scope)).scope, 'read write');
  }
  assert.equal((await issue(platform, platform.secrets[0], ' write ')).scope, 'write');
});
