import type { TokenCase } from '../../check/check.ts';
import { fullBody, leastBody, type TokenBody } from '../../check/token-context.ts';

export const t10: TokenCase = {
  id: 'T10',
  title: 'Values that are not what the field is for',
  clauses: ['TR2', 'TR3', 'S5', 'LI1'],
  decisions: [11],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with state "Texas" or "T1", amount_due_in_cents 12.5 or "1250", due_date 2026-13-01',
  expects: 'a refusal, and no token',
  likely_cause:
    'The framework turns texts into numbers, or checks that a date has digits, not that it exists.',
  async run(t) {
    const least = leastBody();
    const address = fullBody(t.target)['address'] as TokenBody;
    const tries: [string, TokenBody][] = [
      ['state "Texas"', { ...least, address: { ...address, state: 'Texas' } }],
      ['state "T1"', { ...least, address: { ...address, state: 'T1' } }],
      ['amount_due_in_cents 12.5', { ...least, balance: { amount_due_in_cents: 12.5 } }],
      ['amount_due_in_cents "1250"', { ...least, balance: { amount_due_in_cents: '1250' } }],
      ['due_date 2026-13-01', { ...least, balance: { due_date: '2026-13-01' } }],
      ['last_updated_at "yesterday"', { ...least, balance: { last_updated_at: 'yesterday' } }],
    ];
    for (const [what, body] of tries) t.refused(await t.create(body), what);
  },
};
