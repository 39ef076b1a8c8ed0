import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { sharedAll } from '../../check/planned-payments.ts';

export const p57: PartnerCase = {
  id: 'P57',
  title: 'Ten polls per second do not overload the server',
  clauses: ['RU4'],
  severity: 'should',
  profile: 'contract',
  stage: 'last',
  sends: 'GET payment ten times per second for ten seconds',
  expects: '200 each time, or 429 with Retry-After; no 5xx',
  likely_cause:
    'A rate limit in the gateway answers 503 or closes connections instead of answering 429.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject } = await t.accepted();
    const { burst_per_second, burst_seconds } = t.run.pace;
    const replies = await t.paced(burst_per_second * burst_seconds, 1_000 / burst_per_second, () =>
      t.read(subject.intent, { burst: true }),
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
  },
};
