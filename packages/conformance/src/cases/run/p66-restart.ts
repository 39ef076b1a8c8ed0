import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import {
  differences,
  recordOf,
  tellDifferences,
  type Intent,
  type PaymentFields,
} from '../../check/payment-fields.ts';
import { LASTING_FIELDS } from '../shared.ts';

/** Maximum time until the server answers again. */
const BACK_WITHIN_MS = 60_000;

/** Payments that are put and read again. */
const MOST = 10;

export const p66: PartnerCase = {
  id: 'P66',
  title: 'A restart forgets nothing',
  clauses: ['PF2', 'RU5'],
  severity: 'must',
  profile: 'contract',
  stage: 'restart',
  sends: `GET and the same PUT of up to ${MOST} payments, after the server under test was restarted`,
  expects: '200 with the payments as they were: what was acknowledged is on disk',
  likely_cause:
    'Payments or idempotency keys are kept in memory, in a cache, or in a file that is not synchronised.',
  async run(t: PartnerContext) {
    const { restart } = t.run;
    t.given(
      restart !== undefined,
      'the target declares no restart_command, and nobody was asked (--restart)',
    );
    const known: { readonly intent: Intent; readonly before: PaymentFields }[] = [];
    for (const { intent } of t.run.intents
      .filter(({ first }) => first !== undefined)
      .slice(-MOST)) {
      const before = recordOf(await t.read(intent));
      if (before !== undefined) known.push({ intent, before });
    }
    t.given(known.length > 0, 'no payment was accepted (see P20)');
    await restart();
    const deadline = t.run.now() + BACK_WITHIN_MS;
    let back = await t.readAccount();
    while (!isSuccess(back) && t.run.now() < deadline) {
      await t.run.sleep(t.run.pace.poll_first_ms);
      t.run.wire.forgive();
      await t.run.dropAccess();
      back = await t.readAccount();
    }
    t.given(isSuccess(back), `the server did not come back: ${tell(back)}`);
    for (const { intent, before } of known) {
      const read = await t.read(intent);
      const put = await t.put(intent);
      for (const reply of isSuccess(put) ? [read, put] : [read]) {
        const record = recordOf(reply);
        const same = t.must(
          record !== undefined && differences(before, record, LASTING_FIELDS).length === 0,
          {
            expected: `the payment with payment_id ${show(before['payment_id'])}, as before the restart`,
            got: tellDifferences(before, reply, LASTING_FIELDS),
            at: reply,
          },
        );
        if (!same) return;
      }
    }
  },
};
