import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';

export const t06: TokenCase = {
  id: 'T06',
  title: 'A known client with a wrong key',
  clauses: ['AU1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with the right X-Client-Id and a wrong X-Api-Key',
  expects: 'no token (401)',
  likely_cause: 'The client is looked up, its key is not compared.',
  async run(t) {
    for (const key of ['wrong-key-duebridge', `${t.target.api_key}x`]) {
      const reply = await t.create(undefined, { 'x-api-key': key });
      if (!t.refused(reply, 'a wrong key')) return;
      t.strict(reply.status === 401, { expected: '401', got: tell(reply), at: reply });
    }
  },
};
