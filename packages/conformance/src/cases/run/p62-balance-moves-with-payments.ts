import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import {
  CONTROLS,
  fellByWhatFailed,
  followsAtOnce,
  measureBalances,
  rose,
} from '../balance-effect.ts';

export const p62: PartnerCase = {
  id: 'P62',
  title: 'The amount due falls by exactly the succeeded payments',
  clauses: ['ST2', 'RU5', 'ST3', 'ST4'],
  severity: 'must',
  profile: 'contract',
  stage: 'final',
  sends: 'GET balance of every account before the first payment and after the last one has ended',
  expects:
    'no account is credited with more than its succeeded payments, and nothing for refused, failed, canceled or repeated ones; nor with less, if the amount due changes immediately with each payment',
  likely_cause:
    'The server posts to the ledger at acceptance without reversing it when the payment fails, or posts once per request.',
  creates: (target) => sharedAll(target, CONTROLS),
  async run(t: PartnerContext) {
    const verdict = await measureBalances(t);
    t.given(verdict.unmeasured === undefined, `not measured: ${verdict.unmeasured ?? ''}`);
    for (const effect of verdict.effects) {
      const { account_id, fell, expected, reply } = effect;
      if (rose(effect)) {
        t.must(false, {
          expected: `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          got: `it rose by ${expected} cents`,
          cause: 'The payment is added to the amount due instead of subtracted from it.',
          at: reply,
        });
        continue;
      }
      if (fellByWhatFailed(effect)) {
        t.must(false, {
          expected: `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          got: `it fell by ${fell} cents, the sum of its payments that failed or were canceled`,
          clause: 'ST3',
          at: reply,
        });
        continue;
      }
      t.must(fell <= expected, {
        expected: `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
        got: `it fell by ${fell} cents`,
        at: reply,
      });
      if (fell < expected) {
        const lost = fell > 0 && (await followsAtOnce(t));
        t.should(!lost, {
          expected: `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`,
          got: `it fell by ${fell} cents, although a single payment changes it immediately`,
          cause:
            'Concurrent postings overwrite each other’s balance, because the server reads, subtracts and writes it without a lock.',
          at: reply,
        });
        t.notes.push(
          `The amount due of ${account_id} fell by ${fell} cents, not yet by ${expected}.`,
        );
      }
    }
  },
};
