import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';

export const t04: TokenCase = {
  id: 'T04',
  title: 'A token request without a client id or a key is refused',
  clauses: ['AU1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token without X-Client-Id, then without X-Api-Key',
  expects: 'a refusal, and no token',
  likely_cause: 'The server treats a request without the header as an internal call.',
  async run(t) {
    for (const header of ['x-client-id', 'x-api-key']) {
      const reply = await t.create(undefined, { [header]: undefined });
      if (!t.refused(reply, `a request without ${header}`)) continue;
      t.strict(reply.status === 401, { expected: '401', got: tell(reply), at: reply });
    }
  },
};
