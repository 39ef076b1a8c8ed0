import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { isRefusal, isSuccess, tell } from '../../check/http.ts';

export const p08: PartnerCase = {
  id: 'P08',
  title: 'The key is accepted in the declared header and in no other',
  clauses: ['KY1', 'KY2'],
  decisions: [15],
  severity: 'must',
  profile: 'contract',
  sends:
    'GET account with the key in the declared header, with its name in upper and lower case; then with the key in another header',
  expects: 'accepted in the declared header, refused in another header',
  likely_cause:
    'The header name is compared case-sensitively, an authentication scheme is expected before the key, or the server reads several headers.',
  unfit: (target) =>
    target.authentication.method === 'key' ? undefined : 'the target uses OAuth, not a static key',
  async run(t: PartnerContext) {
    const { authentication } = t.target;
    t.given(authentication.method === 'key', 'the target uses OAuth, not a static key');
    const { header, key } = authentication;
    for (const name of [header, header.toLowerCase(), header.toUpperCase()]) {
      const reply = await t.readAccount(undefined, { proof: { [name]: key } });
      const accepted = t.must(isSuccess(reply), {
        expected: `the plain key is accepted in ${name}: header names are case-insensitive`,
        got: tell(reply),
        at: reply,
      });
      if (!accepted) return;
    }
    const other = header.toLowerCase() === 'authorization' ? 'x-api-key' : 'authorization';
    const reply = await t.readAccount(undefined, { proof: { [other]: key } });
    t.should(isRefusal(reply), {
      expected: `a refusal of the key in ${other}`,
      got: tell(reply),
      at: reply,
    });
  },
};
