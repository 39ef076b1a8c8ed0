import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, tell } from '../../check/http.ts';

export const p02: PartnerCase = {
  id: 'P02',
  title: 'A caller with a wrong credential reads an account',
  clauses: ['S3', 'OA4', 'KY1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'GET account with a wrong key, the right key with one letter more, or a made-up bearer token',
  expects: 'a refusal (401) each time',
  likely_cause:
    'Only the presence of the header is checked, or the value is compared by prefix instead of as a whole.',
  async run(t) {
    const { authentication } = t.target;
    const wrong: Record<string, string>[] =
      authentication.method === 'key'
        ? [
            { [authentication.header]: 'wrong-key-duebridge' },
            { [authentication.header]: `${authentication.key}x` },
          ]
        : [
            { authorization: 'Bearer not-a-token-duebridge' },
            { authorization: 'Bearer' },
            { authorization: 'Basic ZHVlYnJpZGdlOndyb25n' },
          ];
    for (const proof of wrong) {
      const reply = await t.readAccount(undefined, { proof });
      const refused = t.must(isRefusal(reply), {
        expected: 'a refusal, such as 401',
        got: tell(reply),
        at: reply,
      });
      if (!refused) return;
      t.strict(reply.status === 401, { expected: '401', got: tell(reply), at: reply });
    }
  },
};
