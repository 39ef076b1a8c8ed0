import { isPaymentStatus, parseInstant } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { show, tell } from '../../check/http.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { isTerminalWord, recordOf } from '../../check/payment-fields.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { isReadableReason, statusOf } from '../shared.ts';

/** How many payments of earlier runs are checked. */
const MOST = 50;

export const p50: PartnerCase = {
  id: 'P50',
  title: 'A payment reaches one terminal status within the declared time',
  clauses: ['ST2', 'ST3', 'ST4', 'RU2', 'S4', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends: 'GET payment until it ends (the payment of P20)',
  expects:
    'processing, then succeeded, failed or canceled within the declared time, and no change after that',
  likely_cause:
    'Nothing completes the payment, a status is not one of the four words, or a read is served by a lagging replica.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    if (t.run.recheck) return recheck(t);
    const { subject } = await t.accepted();
    const life = await t.end(subject.intent);
    const odd = life.reads.find(({ record }) => !isPaymentStatus(record['status']));
    if (odd !== undefined) {
      t.must(false, {
        expected: 'status processing, succeeded, failed or canceled in every read',
        got: `status is ${statusOf(odd.record)}`,
        at: odd.reply,
      });
      return;
    }
    if (life.end === undefined) {
      if (t.run.endsLater || t.target.terminal_window_seconds === undefined) throw t.notEnded();
      t.must(false, {
        expected: `a terminal status within ${t.target.terminal_window_seconds} s`,
        got: `after that time: ${tell(life.last)}`,
        at: life.last,
      });
      return;
    }
    const after = await t.read(subject.intent);
    t.must(recordOf(after)?.['status'] === life.end.record['status'], {
      expected: `status ${statusOf(life.end.record)}, unchanged`,
      got: tell(after),
      at: after,
    });
  },
};

/** Payments of earlier runs that had not ended then, but must have ended by now. */
async function recheck(t: PartnerContext): Promise<void> {
  const window_ms = (t.target.terminal_window_seconds ?? 0) * 1_000;
  const open = t.oldEntries(window_ms).filter(({ record }) => !isTerminalWord(record['status']));
  t.given(open.length > 0, 'no payment of an earlier run was left processing');
  for (const { intent, made_at } of open.slice(-MOST)) {
    const reply = await t.read(intent);
    const record = recordOf(reply);
    t.must(record !== undefined && isTerminalWord(record['status']), {
      expected: `a terminal status of the payment created at ${made_at}`,
      got: tell(reply),
      at: reply,
    });
    if (record?.['status'] === 'succeeded') {
      const posted = record['posted_at'];
      t.must(typeof posted === 'string' && parseInstant(posted) !== undefined, {
        expected: 'posted_at such as 2026-03-01T09:30:04.000Z, because it succeeded',
        got: `posted_at is ${show(posted)}`,
        clause: 'PF8',
        at: reply,
      });
    }
    t.must(record?.['status'] !== 'failed' || isReadableReason(record['failure_reason']), {
      expected: 'failure_reason such as "The account is closed.", because it failed',
      got: `failure_reason is ${show(record?.['failure_reason'])}`,
      clause: 'PF5',
      at: reply,
    });
  }
}
