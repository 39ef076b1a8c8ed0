import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { tell } from '../../check/http.ts';
import {
  differences,
  isTerminalWord,
  recordOf,
  tellDifferences,
} from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { ENDED_FIELDS, isAnswer } from '../shared.ts';

/** Why no payment was read again. */
const NOTHING_OLD = 'no ended payment of a run against this server is 24 hours old yet';

/** Number of polls after the end, and of payments of earlier runs that are read again. */
const POLLS = 10;

export const p54: PartnerCase = {
  id: 'P54',
  title: 'A terminal payment never changes',
  clauses: ['RU2'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends: `GET payment ${POLLS} times after it has ended, and GET of the payments of a run at least 24 hours old`,
  expects: 'the same record each time',
  likely_cause: 'A later job rewrites the status, or archived payments are no longer found.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    if (!t.run.recheck) {
      const { subject } = await t.accepted();
      const { record } = await t.ended(subject.intent);
      await t.run.sleep(t.run.pace.after_end_ms);
      // Each over its own connection: behind a balancer, one replica of three may lag.
      const replies = await t.paced(POLLS, t.run.pace.after_end_ms, () =>
        t.read(subject.intent, { fresh: true }),
      );
      for (const reply of replies) {
        if (!isAnswer(t, reply)) return;
        const now = recordOf(reply);
        const same = t.must(
          now !== undefined && differences(record, now, ENDED_FIELDS).length === 0,
          {
            expected: 'the terminal payment, unchanged',
            got: tellDifferences(record, reply, ENDED_FIELDS),
            at: reply,
          },
        );
        if (!same) return;
      }
    }
    const old = t.oldEntries().filter((entry) => isTerminalWord(entry.record['status']));
    t.given(!t.run.recheck || old.length > 0, NOTHING_OLD);
    for (const entry of old.slice(0, POLLS)) {
      const reply = await t.read(entry.intent);
      const now = recordOf(reply);
      const same = t.must(
        now !== undefined && differences(entry.record, now, ENDED_FIELDS).length === 0,
        {
          expected: `the payment of ${entry.made_at}, unchanged`,
          got: now === undefined ? tell(reply) : tellDifferences(entry.record, reply, ENDED_FIELDS),
          at: reply,
        },
      );
      if (!same) return;
    }
  },
};
