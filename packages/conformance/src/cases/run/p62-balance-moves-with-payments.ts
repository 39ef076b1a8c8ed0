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
  title: 'The amount due falls by what succeeded, and by nothing else',
  clauses: ['ST2', 'RU5', 'ST3', 'ST4'],
  severity: 'must',
  profile: 'contract',
  stage: 'final',
  sends: 'GET balance of every account before the first payment and after the last has ended',
  expects:
    'no account is credited with more than its payments that succeeded: not for refused, failed, canceled or repeated ones; nor with less, where the amount due follows each payment at once',
  likely_cause:
    'The ledger is written at acceptance and not undone when the payment fails, or once for each request.',
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
          cause: 'The payment is added to what is owed instead of taken from it.',
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
          got: `it fell by ${fell} cents, although it follows a single payment at once`,
          cause:
            'Payments posted at the same moment overwrite each other’s balance: read, subtract, write without a lock.',
          at: reply,
        });
        t.notes.push(
          `The amount due of ${account_id} fell by ${fell} cents, not yet by ${expected}.`,
        );
      }
    }
  },
};
