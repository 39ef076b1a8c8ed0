import assert from 'node:assert/strict';
import test from 'node:test';
import { CLAUSES, isClauseId } from './clauses.ts';
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
  const list = Object.values(tables)
    .flatMap((table) => Object.values(table))
    .map((route) => `${route.method} ${route.path}`);
  assert.deepEqual(list, [
    'POST /oauth/token',
    'GET /biller/{biller_id}/account/{account_id}',
    'GET /biller/{biller_id}/account/{account_id}/balance',
    'PUT /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    'GET /biller/{biller_id}/account/{account_id}/payment/{platform_payment_id}',
    'GET /payment/{platform_payment_id}',
    'GET /batch/{platform_batch_id}',
    'POST /v1/sbi/token',
    'POST /v1/flow/session',
    'GET /v1/flow/session',
    'POST /v1/flow/payments',
    'POST /v1/flow/saved-methods',
    'POST /v1/flow/return',
    'GET /v1/flow/payments/{platform_payment_id}',
    'GET /v1/flow/payments/{platform_payment_id}/events',
    'POST /admin/v1/partners',
    'GET /admin/v1/partners',
    'GET /admin/v1/partners/{partner_id}',
    'PATCH /admin/v1/partners/{partner_id}',
    'POST /admin/v1/partners/{partner_id}/keys',
    'GET /admin/v1/partners/{partner_id}/keys',
    'DELETE /admin/v1/partners/{partner_id}/keys/{key_id}',
    'GET /admin/v1/payments',
    'GET /admin/v1/payments/{platform_payment_id}',
    'POST /admin/v1/payments/{platform_payment_id}/resume',
    'POST /admin/v1/payments/{platform_payment_id}/pause',
    'POST /admin/v1/payments/{platform_payment_id}/withdraw',
    'GET /admin/v1/batches',
    'GET /admin/v1/batches/{platform_batch_id}',
    'POST /admin/v1/batches/{platform_batch_id}/reconcile',
    'GET /admin/v1/audit',
    'GET /admin/v1/audit/verification',
    'GET /admin/v1/me',
    'GET /admin/v1/operators',
    'POST /admin/v1/operators',
    'PATCH /admin/v1/operators/{operator_id}',
    'POST /admin/v1/operators/{operator_id}/keys',
    'DELETE /admin/v1/operators/{operator_id}/keys/{key_id}',
    'POST /admin/v1/partners/{partner_id}/domains',
    'POST /admin/v1/partners/{partner_id}/test',
    'GET /admin/v1/partners/{partner_id}/health',
    'GET /admin/v1/partners/{partner_id}/answers',
    'POST /admin/v1/partners/{partner_id}/clients/{client_id}/revoke-access',
    'POST /admin/v1/payments/search',
    'POST /admin/v1/payments/{platform_payment_id}/unmask',
    'POST /admin/v1/payments/{platform_payment_id}/close',
    'POST /admin/v1/payments/{platform_payment_id}/settle',
    'GET /admin/v1/payments/export',
    'POST /admin/v1/batches/{platform_batch_id}/close',
    'POST /admin/v1/batches/{platform_batch_id}/reconcile-file',
    'GET /admin/v1/differences',
    'GET /admin/v1/differences/summary',
    'POST /admin/v1/differences/{difference_id}/resolve',
    'POST /admin/v1/people/show',
    'POST /admin/v1/people/erase',
    'GET /admin/v1/overview',
    'GET /admin/v1/figures',
    'POST /admin/v1/payments/{platform_payment_id}/poll',
    'POST /admin/v1/payments/preview',
    'GET /admin/v1/money',
    'GET /admin/v1/money/check',
    'POST /admin/v1/partners/{partner_id}/payout',
    'GET /admin/v1/partners/{partner_id}/payout',
    'GET /admin/v1/money/remittances',
    'POST /admin/v1/money/remittances',
    'POST /admin/v1/partners/{partner_id}/payout/rest',
    'GET /admin/v1/money/remittances/{remittance_id}/statement',
    'POST /admin/v1/money/remittances/{remittance_id}/end',
    'POST /admin/v1/money/files',
    'GET /admin/v1/money/files/{file_id}',
    'POST /admin/v1/payments/{platform_payment_id}/refund',
    'GET /admin/v1/money/refunds',
    'POST /admin/v1/money/refunds/{refund_id}/decide',
    'GET /admin/v1/money/cases',
    'POST /admin/v1/payments/{platform_payment_id}/cases',
    'POST /admin/v1/money/cases/{case_id}/end',
    'POST /admin/v1/accounts/import',
    'GET /admin/v1/payments',
    'POST /admin/v1/payments/{platform_payment_id}/cancel',
    'GET /admin/v1/audit/verification',
    'GET /admin/v1/payments/{platform_payment_id}',
    'POST /admin/v1/payments/{platform_payment_id}/settle',
    'GET /admin/v1/batches',
    'GET /admin/v1/batches/{platform_batch_id}',
    'GET /admin/v1/batches/{platform_batch_id}/lines',
    'GET /admin/v1/audit',
    'GET /admin/v1/credentials',
    'POST /admin/v1/clients/{client_id}/credentials',
    'POST /admin/v1/credentials/{credential_id}/revoke',
    'POST /admin/v1/clients/{client_id}/revoke-tokens',
  ]);
});

test('every path field has a schema, and every source names an existing rule', () => {
  for (const table of Object.values(tables)) {
    for (const [id, route] of Object.entries(table)) {
      assert.equal(route.id, id);
      assert.deepEqual(Object.keys(route.params?.properties ?? {}), pathFields(route.path));
      for (const word of route.source.match(/\b[A-Z]{1,2}\d\b/g) ?? []) {
        assert.ok(isClauseId(word), `${id} names ${word}`);
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
