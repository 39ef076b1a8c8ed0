import assert from 'node:assert/strict';
import test from 'node:test';
import { ERRORS } from './errors.ts';
import { renderOpenApi } from './openapi.ts';
import { partnerRoutes, platformRoutes } from './routes.ts';

const info = {
  title: 'x',
  description: 'x',
  version: '1.0.0',
  servers: [{ url: '/', description: 'here' }],
};

test('every refusal an operation may give stands in its document [ER3]', () => {
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
