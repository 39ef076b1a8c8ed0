import type { PartnerCase } from '../../check/check.ts';
import { differences, tellDifferences, recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { LASTING_FIELDS } from '../shared.ts';
import { tell } from '../../check/http.ts';

/** How many payments of earlier runs are put again. */
const MOST_REPEATS = 10;

export const p35: PartnerCase = {
  id: 'P35',
  title: 'A PUT repeated the next day returns the original payment',
  clauses: ['PF2', 'RU5'],
  severity: 'must',
  profile: 'contract',
  sends: `up to ${MOST_REPEATS} PUTs of a run at least 24 hours old, byte for byte`,
  expects: '200 with the original payments: ids are kept forever',
  likely_cause: 'Idempotency keys are kept in a cache or table whose entries expire after a day.',
  async run(t: PartnerContext) {
    const old = t.oldEntries().slice(0, MOST_REPEATS);
    t.given(
      old.length > 0,
      'no run against this server is 24 hours old yet: run again tomorrow with --recheck',
    );
    for (const entry of old) {
      const reply = await t.repeatOld(entry);
      const record = recordOf(reply);
      const same = t.must(
        reply.status === 200 &&
          record !== undefined &&
          differences(entry.record, record, LASTING_FIELDS).length === 0,
        {
          expected: `the payment created at ${entry.made_at}`,
          got:
            record === undefined
              ? tell(reply)
              : tellDifferences(entry.record, reply, LASTING_FIELDS),
          at: reply,
        },
      );
      if (!same) return;
    }
  },
};
