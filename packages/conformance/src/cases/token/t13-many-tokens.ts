import type { TokenCase } from '../../check/check.ts';
import type { Reply } from '../../check/http.ts';
import { leastBody, tokenOf, type TokenContext } from '../../check/token-context.ts';

/** Concurrent requests: fast, yet far below the burst of any rate limit. */
const AT_ONCE = 10;

/** Shortest token that can carry 128 bits, which nobody can guess (decision 8 gives 256). */
const LEAST_CHARACTERS = 22;

export const t13: TokenCase = {
  id: 'T13',
  title: 'Tokens are unique and unguessable',
  clauses: ['TK1'],
  decisions: [8],
  severity: 'should',
  profile: 'contract',
  sends: 'the same token request many times (token_sample, a thousand by default)',
  expects: 'distinct tokens that cannot be guessed from each other and contain no personal data',
  likely_cause: 'The token is a counter, a timestamp, or an encoded copy of the customer’s data.',
  async run(t: TokenContext) {
    const replies: Reply[] = [];
    const wanted = t.target.token_sample;
    while (replies.length < wanted) {
      const some = Array.from({ length: Math.min(AT_ONCE, wanted - replies.length) }, () =>
        t.create(leastBody()),
      );
      replies.push(...(await Promise.all(some)));
      if (replies.slice(-AT_ONCE).every((reply) => tokenOf(reply) === undefined)) break;
    }
    const tokens = replies.flatMap((reply) => tokenOf(reply) ?? []);
    const last = replies.at(-1);
    const at = last === undefined ? {} : { at: last };
    t.given(tokens.length > 1, 'fewer than two tokens were issued');
    t.should(new Set(tokens).size === tokens.length, {
      expected: `${tokens.length} different tokens`,
      got: `${new Set(tokens).size} different ones`,
      ...at,
    });
    t.should(!tokens.some((token) => hasPersonalData(token)), {
      expected: 'no personal data inside a token',
      got: 'a token contains the customer’s name, email address or phone number, in plain text or encoded',
      ...at,
    });
    const varying = positionsThatVary(tokens);
    t.should(varying >= LEAST_CHARACTERS, {
      expected: `at least ${LEAST_CHARACTERS} characters that differ from token to token`,
      got: `${varying} do`,
      ...at,
    });
  },
};

/** True when the token, or any part of it decoded as base64 or hexadecimal, reveals something about the customer. */
function hasPersonalData(token: string): boolean {
  const readings = [
    token,
    ...token
      .split(/[._~-]/)
      .flatMap((part) => [
        Buffer.from(part, 'base64url').toString('latin1'),
        Buffer.from(part, 'hex').toString('latin1'),
      ]),
  ];
  return readings.some((text) => /ada@example|ada.{0,3}example|5125550100/i.test(text));
}

/** Number of positions at which more than one third of the tokens differ from the most common character. */
function positionsThatVary(tokens: readonly string[]): number {
  const longest = Math.max(...tokens.map((token) => token.length));
  let varying = 0;
  for (let place = 0; place < longest; place += 1) {
    const counts = new Map<string, number>();
    for (const token of tokens) {
      const character = token[place] ?? '';
      counts.set(character, (counts.get(character) ?? 0) + 1);
    }
    if (Math.max(...counts.values()) <= (tokens.length * 2) / 3) varying += 1;
  }
  return varying;
}
