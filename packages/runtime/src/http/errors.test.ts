import assert from 'node:assert/strict';
import test from 'node:test';
import { partnerRoutes, Refusal } from '@duebridge/contract';
import { DatabaseUnavailable } from '../errors.ts';
import { OAuthRefusal } from './errors.ts';
import { mount } from './mount.ts';
import { createServer } from './server.ts';

test('an error thrown by a handler is answered from the catalogue, without internals', async (t) => {
  const thrown: [unknown, number, string, string | null][] = [
    [
      new Refusal('TOO_MANY_REQUESTS', { headers: { 'Retry-After': '7' } }),
      429,
      'TOO_MANY_REQUESTS',
      '7',
    ],
    [new DatabaseUnavailable('secret host', 'unknown'), 503, 'SERVICE_UNAVAILABLE', '2'],
    [new Error('secret host'), 500, 'INTERNAL_ERROR', null],
    [Object.assign(new Error('secret host'), { statusCode: 400 }), 500, 'INTERNAL_ERROR', null],
    ['secret host', 500, 'INTERNAL_ERROR', null],
  ];
  for (const [error, status, code, retryAfter] of thrown) {
    const app = createServer();
    t.after(() => app.close());
    mount(app, partnerRoutes.get_payment, () => {
      throw error;
    });
    const response = await app.inject('/payment/p1');
    assert.equal(response.statusCode, status);
    assert.equal(response.json<{ code: string }>().code, code);
    assert.equal(response.headers['retry-after'] ?? null, retryAfter);
    assert.doesNotMatch(response.body, /secret/);
  }
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.get_payment, () => {
    throw new Error('x');
  });
  const response = await app.inject('/payment/p1');
  assert.deepEqual(response.json(), {
    code: 'INTERNAL_ERROR',
    message: 'An unexpected error occurred',
  });
});

test('the token endpoint takes a form, refuses an ambiguous one, and returns errors as in RFC 6749', async (t) => {
  const app = createServer();
  t.after(() => app.close());
  mount(app, partnerRoutes.access_token, ({ body }) => {
    if (body.grant_type === 'x') throw new OAuthRefusal('unsupported_grant_type', 'no');
    assert.equal(body.client_secret, 'a+b%c&é');
    return { access_token: 't', token_type: 'Bearer' as const, expires_in: 1, scope: 'read' };
  });
  const ask = (payload: string, type = 'application/x-www-form-urlencoded') =>
    app.inject({ method: 'POST', url: '/oauth/token', payload, headers: { 'content-type': type } });
  const secret = encodeURIComponent('a+b%c&é');
  const good = await ask(`grant_type=client_credentials&client_secret=${secret}&scope=`);
  assert.equal(good.statusCode, 200);
  const cases: [Awaited<ReturnType<typeof ask>>, number, string][] = [
    [await ask('grant_type=x'), 400, 'unsupported_grant_type'],
    [await ask('grant_type=a&grant_type=b'), 400, 'invalid_request'],
    [await ask('scope=read'), 400, 'invalid_request'],
    [await ask('grant_type=%ff'), 400, 'invalid_request'],
    [await ask('{"grant_type":"x"}', 'application/json'), 415, 'invalid_request'],
  ];
  for (const [response, status, error] of cases) {
    const body = response.json<{ error: string; error_description: string }>();
    assert.equal(response.statusCode, status);
    assert.equal(body.error, error);
    // RFC 6749 section 5.2: printable ASCII without double quotes and backslashes.
    assert.match(body.error_description, /^[\u0020-\u0021\u0023-\u005b\u005d-\u007e]+$/);
  }
  const { error_description } = cases[2]![0].json<{ error_description: string }>();
  assert.ok(error_description.includes('body.grant_type is required'), error_description);
});
