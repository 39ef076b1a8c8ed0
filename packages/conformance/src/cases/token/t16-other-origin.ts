import type { TokenCase } from '../../check/check.ts';
import { credentials } from '../../check/token-context.ts';

const ORIGIN = 'https://evil.example';

export const t16: TokenCase = {
  id: 'T16',
  title: 'Other origins get no permissive CORS',
  clauses: ['AU1'],
  severity: 'should',
  profile: 'contract',
  sends: `OPTIONS and POST create token with Origin ${ORIGIN}`,
  expects: 'no Access-Control-Allow-Origin: the API key belongs on a server, never in a page',
  likely_cause: 'CORS is enabled for all routes and all origins.',
  async run(t) {
    const asked = await t.send({
      method: 'OPTIONS',
      url: t.run.url,
      headers: {
        origin: ORIGIN,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'x-client-id, x-api-key, content-type',
      },
    });
    const posted = await t.send({
      method: 'POST',
      url: t.run.url,
      headers: credentials(t.target, { origin: ORIGIN }),
      body: '{}',
    });
    for (const reply of [asked, posted]) {
      const allowed = reply.headers['access-control-allow-origin'];
      t.should(allowed !== '*' && allowed !== ORIGIN, {
        expected: 'no Access-Control-Allow-Origin for another site',
        got: `Access-Control-Allow-Origin: ${allowed ?? ''}`,
        at: reply,
      });
    }
  },
};
