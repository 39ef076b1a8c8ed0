import assert from 'node:assert/strict';
import test from 'node:test';
import { CLAUSES } from './clauses.ts';
import { fillPath, partnerRoutes, pathFields, platformRoutes, type Route } from './routes.ts';
import { platformAdminRoutes } from './admin-routes.ts';
import { partnerAdminRoutes } from './kit-admin.ts';

const tables: Readonly<Record<string, Readonly<Record<string, Route>>>> = {
  partnerRoutes,
  platformRoutes,
  platformAdminRoutes,
  partnerAdminRoutes,
};

test('the tables list every operation of both sides', () => {
  const list = [partnerRoutes, platformRoutes]
    .flatMap((table) => Object.values<Route>(table))
    .map((route) => `${route.method} ${route.path} ${route.auth}`);
  assert.deepEqual(list, [
    'POST /oauth/token none',
    'GET /biller/{biller_id}/account/{account_id} partner',
    'GET /biller/{biller_id}/account/{account_id}/balance partner',
    'PUT /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id} partner',
    'GET /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id} partner',
    'GET /payment/{platform_payment_id} partner',
    'GET /batch/{platform_batch_id} partner',
    'POST /v1/sbi/token client_key',
    'POST /v1/flow/session token',
    'GET /v1/flow/session session',
    'POST /v1/flow/payments session',
    'POST /v1/flow/saved-methods session',
    'POST /v1/flow/return session',
    'GET /v1/flow/payments/{platform_payment_id} session',
  ]);
  for (const route of [platformAdminRoutes, partnerAdminRoutes].flatMap((table) =>
    Object.values<Route>(table),
  )) {
    assert.equal(route.auth, 'admin', route.id);
    assert.match(route.path, /^\/admin\/v1\//);
  }
});

test('every path field has a schema, and every source names an existing rule', () => {
  for (const table of Object.values(tables)) {
    for (const [id, route] of Object.entries(table)) {
      assert.equal(route.id, id);
      assert.deepEqual(Object.keys(route.params?.properties ?? {}), pathFields(route.path));
      for (const word of route.source.match(/\b[A-Z]{1,2}\d\b/g) ?? []) {
        assert.ok(word in CLAUSES, `${id} names ${word}`);
      }
      assert.match(route.source, /\b[A-Z]{1,2}\d\b|decision/);
    }
  }
  assert.equal(Object.keys(CLAUSES).length, 52);
});

test('a value cannot change the rest of a path', () => {
  const template = '/biller/{biller_id}/account/{account_id}';
  assert.equal(
    fillPath(template, { biller_id: '../x', account_id: 'a/b?c#d' }),
    '/biller/..%2Fx/account/a%2Fb%3Fc%23d',
  );
  for (const biller_id of ['', '.', '..']) {
    assert.throws(() => fillPath(template, { biller_id, account_id: 'a' }), RangeError);
  }
  assert.throws(() => fillPath(template, { account_id: 'a' }), RangeError);
});
