import type { TokenCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { leastBody } from '../../check/token-context.ts';

export const t14: TokenCase = {
  id: 'T14',
  title: 'A body of a megabyte, and a burst',
  clauses: ['LI1'],
  decisions: [16],
  severity: 'should',
  profile: 'contract',
  sends: 'POST create token with 1 MiB; then many requests at the same moment (burst)',
  expects: '413; 429 with Retry-After for what is too much; no 5xx',
  likely_cause: 'No limit is set, or the limit closes connections instead of saying 429.',
  async run(t) {
    const large = await t.create({ ...leastBody(), last_name: 'x'.repeat(1_048_576) });
    // A server may answer 413 and close while the body is still on its way.
    t.should(large.status === 413, { expected: '413', got: tell(large), at: large });
    const replies = await Promise.all(
      Array.from({ length: t.target.burst }, () => t.create(leastBody(), {}, { raw: true })),
    );
    const bad = replies.find(
      (reply) =>
        reply.status !== 200 &&
        !(reply.status === 429 && reply.headers['retry-after'] !== undefined),
    );
    t.should(bad === undefined, {
      expected: '200, or 429 with Retry-After',
      got: bad === undefined ? '' : tell(bad),
      ...(bad === undefined ? {} : { at: bad }),
    });
    t.strict(
      replies.some(({ status }) => status === 429),
      {
        expected: `429 among ${t.target.burst} requests at once`,
        got: 'none',
      },
    );
  },
};
