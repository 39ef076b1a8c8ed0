import assert from 'node:assert/strict';
import test from 'node:test';
import {
  partnerAdminRoutes,
  partnerRoutes,
  platformAdminRoutes,
  platformRoutes,
} from '@duebridge/contract';
import { fuzz, judge } from './fuzz.ts';

/** Every test run uses this seed, so that a change is judged by the same inputs as the last one; `npm run fuzz` uses new seeds. */
const SEED = Number(process.env['DUEBRIDGE_SEED'] ?? 20_260_301);

test('no input makes a listener answer 500, hang, reveal internals or stop, in any operation', async (t) => {
  const report = await fuzz({ seed: SEED, rounds: 6 });
  t.diagnostic(
    `seed ${SEED}: ${report.requests} requests to ${report.operations.size} operations, ${report.raw} raw ones`,
  );
  assert.deepEqual(report.findings, []);
  // What was sent did reach the handlers, of every operation there is.
  const { access_token: _oauthOnly, ...shared } = partnerRoutes;
  const expected = [platformRoutes, platformAdminRoutes, partnerRoutes, partnerAdminRoutes, shared];
  const count = expected.reduce((sum, routes) => sum + Object.keys(routes).length, 0);
  assert.equal(report.operations.size, count);
  for (const status of [200, 400, 404])
    assert.ok((report.statuses.get(status) ?? 0) > 20, `${status}`);
});

test('the judge of answers finds a crash, a leak and a wrong form', () => {
  const named = ['200', '400', '404'];
  const refusal = '{"code":"INVALID_REQUEST","message":"x"}';
  assert.deepEqual(judge(200, '', named), {});
  assert.deepEqual(judge(400, refusal, named), {});
  assert.deepEqual(judge(404, '{"error":"invalid_request"}', named), {});
  for (const [status, text] of [
    [500, '{"code":"INTERNAL_ERROR","message":"x"}'],
    [501, refusal],
    [409, refusal],
    [302, ''],
    [400, 'Bad Request'],
    [400, '{"message":"x"}'],
    [400, '{"code":"X","message":"no duebridge_platform.payments"}'],
    [404, '{"code":"X","message":"Error\n    at get (/app/x.js:1:2)"}'],
  ] as const) {
    assert.ok(judge(status, text, named).problem !== undefined, `${status} ${text}`);
  }
});
