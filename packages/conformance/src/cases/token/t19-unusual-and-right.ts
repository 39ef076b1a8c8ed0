import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { fullBody, leastBody, tokenOf, type TokenBody } from '../../check/token-context.ts';

export const t19: TokenCase = {
  id: 'T19',
  title: 'Unusual values that are right',
  clauses: ['TR1', 'TR2', 'TR3'],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with a phone number that is not in E.164, names and streets beyond ASCII, a ZIP code of nine digits, a credit for a balance, and a field that nobody knows yet',
  expects:
    '200 with a token each time: E.164 is recommended and not required, and the rest is right',
  likely_cause: 'A pattern was written for the example in the documentation.',
  async run(t) {
    const least = leastBody();
    const address = fullBody(t.target)['address'] as TokenBody;
    const tries: [string, TokenBody][] = [
      ['phone_number "(512) 555-0100"', { ...least, phone_number: '(512) 555-0100' }],
      ['phone_number "512.555.0100"', { ...least, phone_number: '512.555.0100' }],
      ['first_name "Zoë"', { ...least, first_name: 'Zoë', last_name: 'O’Connor-Núñez' }],
      ['zip "78701-1234"', { ...least, address: { ...address, zip: '78701-1234' } }],
      ['a city beyond ASCII', { ...least, address: { ...address, city: 'Cañon City' } }],
      ['email with a plus', { ...least, email: 'ada+bills@example.co.uk' }],
      ['a balance of nothing', { ...least, balance: { amount_due_in_cents: 0 } }],
      ['a credit', { ...least, balance: { amount_due_in_cents: -2_000 } }],
      ['an empty balance', { ...least, balance: {} }],
      [
        'a time with an offset',
        { ...least, balance: { last_updated_at: '2026-03-01T09:30:00-06:00' } },
      ],
    ];
    for (const [what, body] of tries) {
      const reply = await t.create(body);
      t.must(reply.status === 200 && tokenOf(reply) !== undefined, {
        expected: `200 with a token for ${what}`,
        got: tell(reply),
        at: reply,
      });
    }
    const reply = await t.create({ ...least, a_field_of_tomorrow: 'duebridge' });
    t.strict(reply.status === 200, {
      expected: '200: unknown fields are ignored, so that the interface can grow',
      got: tell(reply),
      clause: 'VE1',
      at: reply,
    });
  },
};
