import assert from 'node:assert/strict';
import test from 'node:test';
import { ERRORS } from './errors.ts';
import { renderOpenApi } from './openapi.ts';
import { partnerRoutes, platformRoutes } from './routes.ts';

const info = { title: 'x', description: 'x' };

test('every error that an operation may return is in its document [ER3]', () => {
  const document = renderOpenApi(platformRoutes, info) as {
    paths: Record<string, Record<string, { responses: Record<string, unknown> }>>;
  };
  for (const route of Object.values(platformRoutes)) {
    const responses = document.paths[route.path]![route.method.toLowerCase()]!.responses;
    for (const code of route.errors) {
      assert.ok(String(ERRORS[code].status) in responses, `${route.id} ${code}`);
    }
  }
});

test('a partner with a static key is documented with its own header, not with OAuth [KY1 KY2]', () => {
  const text = JSON.stringify(renderOpenApi(partnerRoutes, { ...info, keyHeader: 'X-Biller-Key' }));
  assert.ok(text.includes('"name":"X-Biller-Key"'));
  assert.ok(!text.includes('clientCredentials'));
});

test('a generated client gets one type for a resource, not a nameless copy at each operation', () => {
  const document = renderOpenApi(partnerRoutes, info) as {
    components: { schemas: Record<string, { properties: Record<string, unknown> }> };
  };
  const schemas = document.components.schemas;
  assert.deepEqual(schemas['AccountRecord']!.properties['balance'], {
    $ref: '#/components/schemas/Balance',
  });
  assert.ok('amount_due_in_cents' in schemas['Balance']!.properties);
  const text = JSON.stringify(document);
  for (const [, name = ''] of text.matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)) {
    assert.ok(name in schemas, `${name} is referred to and not there`);
  }
  // The document contains the record once; every operation that returns it refers to it.
  assert.equal(text.split('"initiated_at":{').length, 2);
  assert.ok(!('BatchPage' in schemas), 'a resource of another listener does not belong here');
});
