import { parseInstant } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { show } from '../../check/http.ts';
import { sharedAll } from '../../check/planned-payments.ts';

/** Maximum time between the posting and the first read that shows it. */
const MOST_LATE_MS = 60_000;

export const p58: PartnerCase = {
  id: 'P58',
  title: 'Reads show a new status within a minute',
  clauses: ['RU3'],
  severity: 'should',
  profile: 'contract',
  sends: 'GET payment until it ends (the payment of P20)',
  expects: 'a read shows succeeded within 60 s of posted_at',
  likely_cause: 'A nightly or hourly job copies the statuses to the API.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    const { subject } = await t.accepted();
    const { reply, record } = await t.ended(subject.intent);
    const posted = record['posted_at'];
    const instant = typeof posted === 'string' ? parseInstant(posted) : undefined;
    t.given(
      record['status'] === 'succeeded' && instant !== undefined,
      'no payment succeeded with a posted_at that can be read',
    );
    // Use the server's own clock where it sends one, so that both times are from the same clock.
    const date = Date.parse(reply.headers['date'] ?? '');
    const shown = Number.isNaN(date) ? reply.came : Math.min(reply.came, date + 1_000);
    // Its ledger may use another clock; initiated_at shows how far that clock is behind.
    const initiated = record['initiated_at'];
    const start = typeof initiated === 'string' ? parseInstant(initiated) : undefined;
    const behind = start === undefined ? 0 : Math.max(0, subject.put.sent - start);
    t.should(shown - behind - instant <= MOST_LATE_MS, {
      expected: `succeeded shown within ${MOST_LATE_MS / 1_000} s of posted_at`,
      got: `posted_at ${show(posted)}, first shown ${new Date(reply.came).toISOString()}`,
      at: reply,
    });
  },
};
