import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { fullBody, tokenOf, type TokenContext } from '../../check/token-context.ts';

export const t08: TokenCase = {
  id: 'T08',
  title: 'A bill aggregator must say which biller, a biller need not',
  clauses: ['TR4'],
  decisions: [20],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token whose external_identifiers hold account_id alone',
  expects: 'a refusal for an aggregator, a token for a biller',
  likely_cause: 'biller_id is required of all, or of none.',
  async run(t: TokenContext) {
    const { account_id, kind } = t.target;
    t.given(account_id !== undefined, 'the target declares no account_id');
    const reply = await t.create({
      ...fullBody(t.target),
      external_identifiers: { account_id },
    });
    if (kind === 'aggregator') {
      t.refused(reply, 'an aggregator that does not say which biller');
      return;
    }
    t.must(reply.status === 200 && tokenOf(reply) !== undefined, {
      expected: '200 with a token: a biller has one biller_id',
      got: tell(reply),
      at: reply,
    });
  },
};
