import type { TokenCase } from '../../check/check.ts';
import { fullBody, leastBody } from '../../check/token-context.ts';

export const t18: TokenCase = {
  id: 'T18',
  title: 'A body that is not a token request is refused',
  clauses: ['TR1', 'A1', 'ER3'],
  severity: 'must',
  profile: 'contract',
  sends:
    'POST create token with a truncated body, an empty one, an array, a string, a number, null, deeply nested brackets, and each field with a wrong type',
  expects: 'a refusal (4xx), and no token; not 5xx, because the error is the caller’s',
  likely_cause: 'The parser’s exception is not caught, or fields are read without a type check.',
  async run(t) {
    const least = JSON.stringify(leastBody());
    const full = fullBody(t.target);
    const tries: [string, string][] = [
      ['a truncated body', least.slice(0, least.length / 2)],
      ['an empty body', ''],
      ['an array', `[${least}]`],
      ['a string', JSON.stringify(least)],
      ['a number', '7'],
      ['null', 'null'],
      ['deeply nested brackets', '['.repeat(5_000)],
      ['an object without fields', '{}'],
    ];
    const types: [string, unknown][] = [
      ['first_name', 7],
      ['last_name', {}],
      ['email', null],
      ['phone_number', 15_125_550_100],
      ['address', '1 Main Street'],
      ['address', []],
      ['balance', 'nothing'],
      ['balance', []],
      ['external_identifiers', 'A-1'],
      [
        'external_identifiers',
        { ...(full['external_identifiers'] as object | undefined), account_id: 17 },
      ],
    ];
    for (const [name, value] of types) {
      tries.push([
        `${name} as ${JSON.stringify(value)}`,
        JSON.stringify({ ...full, [name]: value }),
      ]);
    }
    for (const [what, body] of tries) {
      const reply = await t.create(body);
      if (!t.refused(reply, what)) continue;
      t.should(reply.status !== undefined && reply.status < 500, {
        expected: `a refusal (4xx) of ${what}`,
        got: `${reply.status ?? 'no answer'}`,
        clause: 'ER3',
        at: reply,
      });
    }
  },
};
