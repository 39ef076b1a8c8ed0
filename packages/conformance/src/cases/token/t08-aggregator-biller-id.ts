import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { fullBody, tokenOf, type TokenContext } from '../../check/token-context.ts';

export const t08: TokenCase = {
  id: 'T08',
  title: 'biller_id is required from an aggregator and optional for a biller',
  clauses: ['TR4'],
  decisions: [20],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with only account_id in external_identifiers',
  expects: 'a refusal for an aggregator, a token for a biller',
  likely_cause: 'biller_id is required from every client, or from none.',
  async run(t: TokenContext) {
    const { account_id, kind } = t.target;
    t.given(account_id !== undefined, 'the target declares no account_id');
    const reply = await t.create({
      ...fullBody(t.target),
      external_identifiers: { account_id },
    });
    if (kind === 'aggregator') {
      t.refused(reply, 'an aggregator’s request without biller_id');
      return;
    }
    t.must(reply.status === 200 && tokenOf(reply) !== undefined, {
      expected: '200 with a token: a biller has one biller_id',
      got: tell(reply),
      at: reply,
    });
  },
};
