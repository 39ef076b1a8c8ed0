import type { TokenCase } from '../../check/check.ts';
import { fullBody, leastBody, tokenOf, type TokenContext } from '../../check/token-context.ts';

/** First names and email addresses of customers whom a careless key takes for one. */
const SIMILAR: readonly (readonly [string, string])[] = [
  ['Joan', 'jo.an@example.com'],
  ['Jonathan', 'joan@example.com'],
  ['Joanna', 'joan+home@example.com'],
  ['Jo', 'joan+work@example.com'],
  // Spouses share an address.
  ['John', 'joan@example.com'],
];

/** Concurrent requests: enough to overlap, and far below the burst of any rate limit. */
const AT_ONCE = 10;

export const t17: TokenCase = {
  id: 'T17',
  title: 'Each customer gets a different token',
  clauses: ['TK1', 'S1'],
  severity: 'must',
  profile: 'contract',
  sends: `POST create token for three customers, two of them of the same account; for customers with similar email addresses or with the same one; then for ${AT_ONCE} customers concurrently`,
  expects: 'different tokens: a token starts the flow for the customer for whom it was issued',
  likely_cause:
    'The token is derived from the client, the account or a normalised email address, comes from a cache without a key, or is kept in a variable that concurrent requests share.',
  async run(t: TokenContext) {
    const bodies = [
      fullBody(t.target),
      { ...fullBody(t.target), first_name: 'Grace', email: 'grace@example.com' },
      { ...leastBody(), first_name: 'Alan', last_name: 'Other', email: 'alan@example.com' },
      ...SIMILAR.map(([first_name, email]) => ({ ...leastBody(), first_name, email })),
    ];
    const replies = [];
    for (const body of bodies) replies.push(await t.create(body));
    const crowd = Array.from({ length: AT_ONCE }, (_, place) => ({
      ...leastBody(),
      email: `customer-${place}@example.com`,
    }));
    replies.push(...(await Promise.all(crowd.map((body) => t.create(body)))));
    const tokens = replies.flatMap((reply) => tokenOf(reply) ?? []);
    t.given(tokens.length > 1, 'fewer than two tokens were issued (see T01)');
    const last = replies.at(-1);
    t.must(new Set(tokens).size === tokens.length, {
      expected: `${tokens.length} different tokens for ${tokens.length} customers`,
      got: `${new Set(tokens).size} different ones`,
      ...(last === undefined ? {} : { at: last }),
    });
  },
};
