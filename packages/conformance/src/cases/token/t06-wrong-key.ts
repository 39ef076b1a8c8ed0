import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';

export const t06: TokenCase = {
  id: 'T06',
  title: 'A known client with a wrong key is refused',
  clauses: ['AU1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with the right X-Client-Id and a wrong X-Api-Key: a made-up one, and the right one truncated, lengthened, in another case, or with one character changed',
  expects: 'no token (401)',
  likely_cause: 'The server looks up the client but does not compare its whole key.',
  async run(t) {
    const { api_key } = t.target;
    const upper = api_key.toUpperCase();
    const middle = Math.floor(api_key.length / 2);
    const tries = [
      'wrong-key-duebridge',
      `${api_key}x`,
      api_key.slice(0, -1),
      upper === api_key ? api_key.toLowerCase() : upper,
      `${api_key.slice(0, middle)}${api_key[middle] === 'A' ? 'B' : 'A'}${api_key.slice(middle + 1)}`,
    ];
    for (const key of tries.filter((key) => key !== '' && key !== api_key)) {
      const reply = await t.create(undefined, { 'x-api-key': key });
      if (!t.refused(reply, 'a wrong key')) return;
      t.strict(reply.status === 401, { expected: '401', got: tell(reply), at: reply });
    }
  },
};
