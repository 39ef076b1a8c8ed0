import type { PartnerCase } from '../../check/check.ts';
import { isSuccess, show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import {
  differences,
  recordOf,
  tellDifferences,
  isTerminalWord,
  type Intent,
  type PaymentFields,
} from '../../check/payment-fields.ts';
import { own } from '../../check/planned-payments.ts';
import { ENDED_FIELDS, LASTING_FIELDS } from '../shared.ts';

/** Maximum time until the server answers again. */
const BACK_WITHIN_MS = 60_000;

/** Payments that are put and read again. */
const MOST = 10;

export const p66: PartnerCase = {
  id: 'P66',
  title: 'Payments survive a restart',
  clauses: ['PF2', 'RU5', 'RU3', 'PF1'],
  severity: 'must',
  profile: 'contract',
  stage: 'restart',
  sends: `PUT payment; then, after a restart of the server under test, GET and the identical PUT of up to ${MOST} payments, GET of the first one until it ends, and PUT of two new payments`,
  expects:
    '200 with unchanged payments: acknowledged payments are on disk, processing ones still end, and new ones get a distinct payment_id',
  likely_cause:
    'Payments, idempotency keys, the posting queue or the last number issued are kept in memory, in a cache, or in a file that is not synced to disk.',
  creates: (target) =>
    target.restart_command === undefined ? [] : [own(target, 67), own(target, 68), own(target, 69)],
  async run(t: PartnerContext) {
    const { restart } = t.run;
    t.given(
      restart !== undefined,
      'the target declares no restart_command, and --restart was not given',
    );
    const known: { readonly intent: Intent; readonly before: PaymentFields }[] = [];
    for (const { intent } of t.run.intents
      .filter(({ first }) => first !== undefined)
      .slice(-MOST)) {
      const before = recordOf(await t.read(intent));
      if (before !== undefined) known.push({ intent, before });
    }
    t.given(known.length > 0, 'no payment was accepted (see P20)');
    const open = t.intend(own(t.target, 67));
    const taken = recordOf(await t.put(open)) !== undefined;
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
      const fields = isTerminalWord(before['status']) ? ENDED_FIELDS : LASTING_FIELDS;
      const read = await t.read(intent);
      const put = await t.put(intent);
      for (const reply of isSuccess(put) ? [read, put] : [read]) {
        const record = recordOf(reply);
        const same = t.must(
          record !== undefined && differences(before, record, fields).length === 0,
          {
            expected: `the payment with payment_id ${show(before['payment_id'])}, as before the restart`,
            got: tellDifferences(before, reply, fields),
            at: reply,
          },
        );
        if (!same) return;
      }
    }
    // P60 compares the payment_ids of all payments of the run, and P62 the balance.
    for (const offset of [68, 69]) await t.put(t.intend(own(t.target, offset)));
    if (taken) await stillEnds(t, open);
  },
};

/** A payment accepted just before the restart must end as if there had been none. */
async function stillEnds(t: PartnerContext, intent: Intent): Promise<void> {
  const { run, target } = t;
  if (run.endsLater || target.terminal_window_seconds === undefined) return;
  const deadline = run.now() + run.window_ms;
  for (;;) {
    const read = await t.read(intent);
    if (isTerminalWord(recordOf(read)?.['status'])) return;
    if (run.now() >= deadline) {
      t.must(false, {
        expected: `a terminal status within ${target.terminal_window_seconds} s for the payment accepted before the restart`,
        got: tell(read),
        clause: 'RU3',
        cause: 'The posting queue is in memory, and the server does not rebuild it at startup.',
        at: read,
      });
      return;
    }
    await run.sleep(run.pace.poll_first_ms);
  }
}
