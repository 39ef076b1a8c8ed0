import type { TokenCase } from '../../check/check.ts';
import { leastBody } from '../../check/token-context.ts';

export const t09: TokenCase = {
  id: 'T09',
  title: 'external_identifiers without account_id is refused',
  clauses: ['TR4'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token with only biller_id in external_identifiers',
  expects: 'a refusal, and no token',
  likely_cause: 'The object is optional, so its fields are treated as optional too.',
  async run(t) {
    const reply = await t.create({
      ...leastBody(),
      external_identifiers: { biller_id: t.target.biller_id ?? 'a-biller' },
    });
    t.refused(reply, 'external_identifiers without account_id');
  },
};
