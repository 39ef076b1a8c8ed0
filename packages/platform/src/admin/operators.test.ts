/** Permissions: roles, keys that are issued and revoked without a restart, and sessions of the console. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import test, { after } from 'node:test';
import {
  platformAdminRoutes,
  Refusal,
  roleCovers,
  type OperatorKeyGrant,
} from '@duebridge/contract';
import { manualClock, until } from '@duebridge/runtime/testing';
import { bearer, startTestPlatform } from '../checkout/testing.ts';
import { openOperators } from './operators.ts';

const platform = await startTestPlatform({ after });

const ask = (headers: Record<string, string>, method: string, path: string, body?: unknown) =>
  platform.admin(method, path, body, headers);

test('each role reaches only its own operations: the route table decides, not the handler', async () => {
  for (const role of ['viewer', 'operator', 'admin'] as const) {
    const { operator_key } = await platform.operator(`role-${role}`, role);
    for (const route of Object.values(platformAdminRoutes)) {
      const path = route.path.replaceAll(/\{[a-z_]+\}/g, 'x');
      // An empty body where one is expected, none elsewhere: an allowed call is then answered, or refused for another reason.
      const body = route.method === 'POST' || route.method === 'PATCH' ? {} : undefined;
      const answer = await ask(bearer(operator_key), route.method, path, body);
      const needed = 'role' in route ? route.role : 'viewer';
      assert.equal(
        answer.text.includes('"INSUFFICIENT_ROLE"'),
        !roleCovers(role, needed),
        `${role} ${route.id} ${answer.status}`,
      );
    }
  }
});

test('an operator has at most two keys, and one that expires ends its session and makes room', async () => {
  const lasting = await platform.operator('ines', 'operator');
  const path = '/admin/v1/operators/ines/keys';
  const issue = () => platform.admin('POST', path, { valid_for_days: 10 });
  const issued = await issue();
  assert.equal(issued.status, 200, issued.text);
  assert.equal((await issue()).status, 409);
  const grant = issued.body as unknown as OperatorKeyGrant;
  const left = Date.parse(grant.expires_at ?? '') - Date.now();
  assert.ok(Math.abs(left - 10 * 86_400_000) < 3_600_000, grant.expires_at ?? 'never');
  const { cookie } = await signIn(grant.operator_key);
  // Ten days later.
  await platform.database.query(
    `UPDATE duebridge_platform.operator_keys SET expires_at = now() WHERE key_id = $1`,
    [grant.key_id],
  );
  for (const headers of [bearer(grant.operator_key), { cookie }]) {
    const isRefused = async () => (await ask(headers, 'GET', '/admin/v1/me')).status === 401;
    await until('it is refused once what was read of it is forgotten', isRefused);
  }
  assert.equal((await ask(bearer(lasting.operator_key), 'GET', '/admin/v1/me')).status, 200);
  assert.equal((await issue()).status, 200);
});

test('disabling an operator or lowering a role takes effect at once, and the audit names who did it', async () => {
  const { operator_key } = await platform.operator('dora', 'operator');
  const path = '/admin/v1/operators/dora';
  await platform.admin('PATCH', path, { role: 'viewer' });
  const unmask = '/admin/v1/payments/x/unmask';
  const refused = await ask(bearer(operator_key), 'POST', unmask, { reason: 'x' });
  assert.equal(refused.body['code'], 'INSUFFICIENT_ROLE');
  await platform.admin('PATCH', path, { disabled: true });
  assert.equal((await ask(bearer(operator_key), 'GET', '/admin/v1/me')).status, 401);
  await platform.admin('PATCH', path, { disabled: false });
  assert.equal((await ask(bearer(operator_key), 'GET', '/admin/v1/me')).status, 200);
  const audit = await platform.admin('GET', '/admin/v1/audit?event=operator_changed');
  const { entries } = audit.body as { entries: { actor: string; detail: object }[] };
  assert.equal(entries.length, 3);
  assert.ok(entries.every(({ actor }) => actor === 'admin-key'));
});

test('no operator can take the audit name of the deployment key, or a name that exists', async () => {
  for (const operator_id of ['admin-key', 'dora']) {
    const person = { operator_id, name: 'x', role: 'admin' };
    assert.equal((await platform.admin('POST', '/admin/v1/operators', person)).status, 409);
  }
});

/** Signs in to the console; returns the headers of its requests. */
async function signIn(key: string): Promise<{ cookie: string; csrf: string }> {
  const answer = await ask({}, 'POST', '/console/sign-in', { key });
  assert.equal(answer.status, 204);
  const set = answer.headers.get('set-cookie') ?? '';
  assert.match(set, /HttpOnly; SameSite=Strict/);
  const cookie = set.split(';')[0] ?? '';
  const self = await ask({ cookie }, 'GET', '/admin/v1/me');
  assert.equal(self.status, 200);
  return { cookie, csrf: String(self.body['csrf']) };
}

test('a console session reads with its cookie alone, and changes nothing without its CSRF value', async () => {
  const { operator_key } = await platform.operator('carl', 'admin');
  const { cookie, csrf } = await signIn(operator_key);
  const person = { operator_id: 'made-by-carl', name: 'x', role: 'viewer' };
  const path = '/admin/v1/operators';
  for (const headers of [{ cookie }, { cookie, 'x-csrf-token': `${csrf.slice(1)}x` }]) {
    const answer = await ask(headers, 'POST', path, person);
    assert.equal(answer.body['code'], 'CSRF_TOKEN_REQUIRED');
  }
  const made = await ask({ cookie, 'x-csrf-token': csrf }, 'POST', path, person);
  assert.equal(made.status, 200);
  assert.equal((await ask({ cookie }, 'POST', '/console/sign-out')).status, 403);
  const out = await ask({ cookie, 'x-csrf-token': csrf }, 'POST', '/console/sign-out');
  assert.equal(out.status, 204);
  assert.equal((await ask({ cookie }, 'GET', '/admin/v1/me')).status, 401);
});

test('a session ends with the key that opened it, and a wrong key opens none', async () => {
  const grant = await platform.operator('wendy', 'viewer');
  const { cookie } = await signIn(grant.operator_key);
  await platform.admin('DELETE', `/admin/v1/operators/wendy/keys/${grant.key_id}`);
  assert.equal((await ask({ cookie }, 'GET', '/admin/v1/me')).status, 401);
  const refused = await ask({}, 'POST', '/console/sign-in', { key: grant.operator_key });
  assert.equal(refused.status, 401);
  assert.equal(refused.headers.get('set-cookie'), null);
  const withDeploymentKey = await signIn(platform.adminKey);
  const self = await ask({ cookie: withDeploymentKey.cookie }, 'GET', '/admin/v1/me');
  assert.equal(self.body['operator_id'], 'admin-key');
});

test('guessing keys from one address is limited', async () => {
  const guesses = Array.from({ length: 110 }, () =>
    ask({}, 'POST', '/console/sign-in', { key: 'guess' }),
  );
  const codes = new Set((await Promise.all(guesses)).map(({ status }) => status));
  assert.deepEqual(codes, new Set([401, 429]));
});

test('guessed operator keys are counted in the audit, at most one line a minute, without the key', async () => {
  const clock = manualClock();
  const { database } = platform;
  const pepper = createSecretKey(Buffer.alloc(32, 3));
  const operators = openOperators({ database, pepper, clock }, 'k'.repeat(40));
  const lines = (): Promise<{ actor: string; keys: number }[]> =>
    database.query(
      `SELECT actor, (detail ->> 'keys')::int AS keys FROM duebridge_platform.audit
        WHERE event = 'operator_key_refused' AND detail ->> 'keys' IN ('41', '43') ORDER BY at`,
    );
  const guess = async (times: number): Promise<void> => {
    for (let tried = 0; tried < times; tried += 1) {
      const key = tried % 2 === 0 ? `wrong-${tried}` : `dbo_${String(tried).padStart(43, 'x')}`;
      await assert.rejects(operators.verifyKey(key), Refusal);
    }
  };
  await guess(41);
  await clock.advance(60_000);
  // The first line, written at once, counts one.
  await guess(1);
  await until('the second line is written', async () => (await lines()).length === 1);
  await guess(42);
  await assert.rejects(operators.verifyKey(undefined), Refusal);
  await clock.advance(59_999);
  assert.equal((await lines()).length, 1);
  await clock.advance(1);
  await guess(1);
  await until('the third line is written', async () => (await lines()).length === 2);
  assert.deepEqual(await lines(), [
    { actor: 'unknown', keys: 41 },
    { actor: 'unknown', keys: 43 },
  ]);
  const audit = await platform.admin('GET', '/admin/v1/audit?event=operator_key_refused');
  assert.doesNotMatch(audit.text, /wrong-|dbo_/);
});

test('no operator key and no session secret is stored in the database', async () => {
  const grant = await platform.operator('nora', 'viewer');
  const { cookie } = await signIn(platform.adminKey).catch(() => ({ cookie: 'none' }));
  const rows = await platform.database.query(
    `SELECT to_jsonb(k)::text AS row FROM duebridge_platform.operator_keys k
     UNION ALL SELECT to_jsonb(s)::text FROM duebridge_platform.operator_sessions s`,
  );
  const text = JSON.stringify(rows);
  assert.ok(rows.length > 1);
  assert.ok(!text.includes(grant.operator_key));
  assert.ok(!text.includes(cookie.split('=')[1] ?? 'none'));
});

test('a session ends with the admin key or the identity that opened it', async () => {
  const pepper = createSecretKey(Buffer.alloc(32, 7));
  const clock = manualClock(Date.now());
  const open = (adminKey: string) =>
    openOperators({ database: platform.database, pepper, clock }, adminKey);
  const refused = (error: unknown) => error instanceof Refusal && error.code === 'UNAUTHORIZED';
  const before = open('first-admin-key');
  const { cookie } = await before.openSession(await before.verifyKey('first-admin-key'));
  assert.equal((await open('first-admin-key').verifySession(cookie)).actor, 'admin-key');
  await assert.rejects(open('second-admin-key').verifySession(cookie), refused);

  await before.add({ operator_id: 'ida', name: 'Ida', role: 'viewer', oidc_subject: 'sub-1' }, 'x');
  const own = await before.openSession({ oidc_subject: 'sub-1' });
  assert.equal((await before.verifySession(own.cookie)).actor, 'ida');
  await before.change('ida', { oidc_subject: null }, 'x');
  await assert.rejects(before.verifySession(own.cookie), refused);
});
