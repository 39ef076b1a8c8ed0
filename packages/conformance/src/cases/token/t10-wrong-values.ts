import type { TokenCase } from '../../check/check.ts';
import { fullBody, leastBody, type TokenBody } from '../../check/token-context.ts';

export const t10: TokenCase = {
  id: 'T10',
  title: 'Invalid field values are refused',
  clauses: ['TR2', 'TR3', 'S5', 'LI1'],
  decisions: [11],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with state "Texas", "T1" or "T", a state or a due_date followed by a newline, amount_due_in_cents 12.5, "1250" or true, a due_date that does not exist or has another format, and a last_updated_at that is a number, a word or a date without a time',
  expects: 'a refusal, and no token',
  likely_cause:
    'The framework converts strings to numbers, or checks a date’s format but not that the date exists.',
  async run(t) {
    const least = leastBody();
    const address = fullBody(t.target)['address'] as TokenBody;
    const tries: [string, TokenBody][] = [
      ['state "Texas"', { ...least, address: { ...address, state: 'Texas' } }],
      ['state "T1"', { ...least, address: { ...address, state: 'T1' } }],
      ['state "T"', { ...least, address: { ...address, state: 'T' } }],
      ['amount_due_in_cents 12.5', { ...least, balance: { amount_due_in_cents: 12.5 } }],
      ['amount_due_in_cents "1250"', { ...least, balance: { amount_due_in_cents: '1250' } }],
      ['amount_due_in_cents true', { ...least, balance: { amount_due_in_cents: true } }],
      ['due_date 2026-13-01', { ...least, balance: { due_date: '2026-13-01' } }],
      ['due_date 2026-02-30', { ...least, balance: { due_date: '2026-02-30' } }],
      ['due_date 03/01/2026', { ...least, balance: { due_date: '03/01/2026' } }],
      ['due_date with a time', { ...least, balance: { due_date: '2026-03-01T00:00:00Z' } }],
      ['due_date as a number', { ...least, balance: { due_date: 20_260_301 } }],
      ['last_updated_at "yesterday"', { ...least, balance: { last_updated_at: 'yesterday' } }],
      ['last_updated_at as a number', { ...least, balance: { last_updated_at: 1_772_357_400 } }],
      [
        'last_updated_at with hour 25',
        { ...least, balance: { last_updated_at: '2026-03-01T25:00:00Z' } },
      ],
    ];
    for (const [what, body] of tries) t.refused(await t.create(body), what);
    // A lenient platform may trim white space.
    for (const [what, body] of trailing(least, address)) {
      t.refused(await t.create(body), what, 'should');
    }
    const date = await t.create({ ...least, balance: { last_updated_at: '2026-03-01' } });
    t.refused(date, 'last_updated_at as a date without a time', 'should');
  },
};

/** Values with a newline at their end, which `$` in many regular expressions lets through. */
function trailing(least: TokenBody, address: TokenBody): [string, TokenBody][] {
  return [
    ['state "TX" followed by a newline', { ...least, address: { ...address, state: 'TX\n' } }],
    ['due_date followed by a newline', { ...least, balance: { due_date: '2030-01-31\n' } }],
  ];
}
