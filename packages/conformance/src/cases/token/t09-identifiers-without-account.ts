import type { TokenCase } from '../../check/check.ts';
import { leastBody } from '../../check/token-context.ts';

export const t09: TokenCase = {
  id: 'T09',
  title: 'External identifiers without an account',
  clauses: ['TR4'],
  severity: 'must',
  profile: 'contract',
  sends: 'POST create token whose external_identifiers hold biller_id alone',
  expects: 'a refusal, and no token',
  likely_cause: 'The object is optional, and so its fields are taken to be.',
  async run(t) {
    const reply = await t.create({
      ...leastBody(),
      external_identifiers: { biller_id: t.target.biller_id ?? 'a-biller' },
    });
    t.refused(reply, 'external_identifiers without account_id');
  },
};
