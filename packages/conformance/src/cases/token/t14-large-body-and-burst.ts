import type { TokenCase } from '../../check/check.ts';
import { tell, type Reply } from '../../check/http.ts';
import type { PlatformTarget } from '../../check/target.ts';
import { leastBody, type TokenContext } from '../../check/token-context.ts';

/** Maximum number of bursts sent to exceed a limit, and the margin by which a count must exceed it to prove anything. */
const MOST_BURSTS = 4;
const SLACK = 0.1;

export const t14: TokenCase = {
  id: 'T14',
  title: 'A large body and a burst of requests are limited',
  clauses: ['LI1'],
  decisions: [16],
  severity: 'should',
  profile: 'contract',
  sends: 'POST create token with a body of 1 MiB; then many concurrent requests (burst)',
  expects: '413 for the body; 429 with Retry-After for requests beyond the declared rate; no 5xx',
  likely_cause:
    'No limit is configured, or the server closes connections instead of answering 429.',
  async run(t: TokenContext) {
    const large = await t.create({ ...leastBody(), last_name: 'x'.repeat(1_048_576) });
    // A server may answer 413 and close the connection while the body is still being sent.
    t.should(large.status === 413, { expected: '413', got: tell(large), at: large });
    const replies: Reply[] = [];
    const started = t.run.clock.elapsed();
    let seconds = 0;
    // On a slow machine a single burst may be no faster than the limit; several may exceed it.
    for (
      let burst = 0;
      burst < MOST_BURSTS && !tooMuch(t.target, replies.length, seconds);
      burst += 1
    ) {
      if (replies.some(({ status }) => status !== 200)) break;
      const some = Array.from({ length: t.target.burst }, () =>
        t.create(leastBody(), {}, { raw: true }),
      );
      replies.push(...(await Promise.all(some)));
      seconds = (t.run.clock.elapsed() - started) / 1_000;
    }
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
    const taken = replies.filter(({ status }) => status === 200).length;
    const { requests_per_second, burst } = t.target.rate;
    const reached = `${taken} tokens in ${seconds.toFixed(2)} s`;
    const isReached = taken < replies.length || tooMuch(t.target, taken, seconds);
    t.given(
      isReached,
      `the limit could not be reached: ${reached}, while ${burst} at once and ${requests_per_second} per second are allowed; run the kit on a faster machine, or declare a larger burst`,
    );
    t.strict(!tooMuch(t.target, taken, seconds), {
      expected: `429 beyond ${burst} requests at once and ${requests_per_second} per second`,
      got: reached,
      ...(replies[0] === undefined ? {} : { at: replies[0] }),
    });
  },
};

/** True when this many requests in this time exceed what the declared limit allows. */
function tooMuch(target: PlatformTarget, requests: number, seconds: number): boolean {
  const { requests_per_second, burst } = target.rate;
  return requests > (burst + requests_per_second * seconds) * (1 + SLACK);
}
