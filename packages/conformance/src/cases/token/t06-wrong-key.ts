import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import type { TokenContext } from '../../check/token-context.ts';

export const t06: TokenCase = {
  id: 'T06',
  title: 'A known client with a wrong key is refused',
  clauses: ['AU1'],
  decisions: [6],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with the right X-Client-Id and a wrong X-Api-Key: a made-up one, and the right one truncated, lengthened, in another case, or with one character changed; a wrong one with an invalid body; and (with other_client) the valid key of another client',
  expects: 'no token (401)',
  likely_cause: 'The server looks up the client but does not compare its whole key.',
  async run(t) {
    const { api_key } = t.target;
    const upper = api_key.toUpperCase();
    const middle = Math.floor(api_key.length / 2);
    const tries = [
      // Twice: a refused key may be cached, and the cache read as a list of valid ones.
      'wrong-key-duebridge',
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
    const broken = await t.create('{', { 'x-api-key': 'wrong-key-duebridge' });
    t.strict(broken.status === 401, {
      expected: '401 for a wrong key, whatever the body',
      got: tell(broken),
      cause: 'The body is validated before the caller is authenticated.',
      at: broken,
    });
    await otherClient(t);
  },
};

/** A valid key must not be accepted with the id of another client. */
async function otherClient(t: TokenContext): Promise<void> {
  const { other_client, client_id, api_key } = t.target;
  if (other_client === undefined) {
    t.notes.push('Keys of other clients were not tried: the target declares no other_client.');
    return;
  }
  const crossed = [
    { 'x-client-id': client_id, 'x-api-key': other_client.api_key },
    { 'x-client-id': other_client.client_id, 'x-api-key': api_key },
  ];
  for (const headers of crossed) {
    const reply = await t.create(undefined, headers);
    if (!t.refused(reply, 'the valid key of another client')) return;
  }
}
