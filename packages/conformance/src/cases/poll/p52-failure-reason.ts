import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import { recordOf } from '../../check/payment-fields.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { sharedAll, type SharedName } from '../../check/planned-payments.ts';
import { isReadableReason } from '../shared.ts';

const NAMES: readonly SharedName[] = ['unknown', 'inactive', 'above'];

export const p52: PartnerCase = {
  id: 'P52',
  title: 'A failed payment has a readable failure_reason',
  clauses: ['PF5', 'ST3'],
  severity: 'must',
  profile: 'contract',
  stage: 'last',
  sends: 'GET of every payment of this run that failed',
  expects: 'failure_reason in words; not missing, not a code, not a stack trace',
  likely_cause: 'The server returns an exception message or an internal code as the reason.',
  creates: (target) => sharedAll(target, NAMES),
  async run(t: PartnerContext) {
    for (const name of NAMES) {
      const made = await t.sharedPayment(name);
      if (made !== undefined && recordOf(made.put) !== undefined) await t.end(made.intent);
    }
    const failed = (await t.run.lives()).filter(
      ({ life }) => life.end?.record['status'] === 'failed',
    );
    t.given(failed.length > 0, 'no payment of this run failed');
    for (const { life } of failed) {
      const reason = life.end?.record['failure_reason'];
      const readable = t.must(isReadableReason(reason), {
        expected: 'failure_reason such as "The account is closed."',
        got: `failure_reason is ${show(reason)}`,
        ...(life.end === undefined ? {} : { at: life.end.reply }),
      });
      if (!readable) return;
    }
  },
};
