import { isPaymentStatus } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { tell } from '../../check/http.ts';
import { recordOf } from '../../check/partner-context.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { statusOf } from '../shared.ts';

export const p50: PartnerCase = {
  id: 'P50',
  title: 'A payment is polled until it ends',
  clauses: ['ST2', 'ST3', 'ST4', 'RU2', 'S4', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends: 'GET payment until it ends (the payment of P20)',
  expects:
    'processing, then once and for all succeeded, failed or canceled, inside the declared window',
  likely_cause:
    'Nothing finishes the payment, a status has another word, or a read comes from a replica that lags.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
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
    const ended = t.must(life.end !== undefined, {
      expected: `an end within ${t.target.terminal_window_seconds} s`,
      got: `after that time: ${tell(life.last)}`,
      at: life.last,
    });
    if (!ended || life.end === undefined) return;
    const after = await t.read(subject.intent);
    t.must(recordOf(after)?.['status'] === life.end.record['status'], {
      expected: `status ${statusOf(life.end.record)} for ever after`,
      got: tell(after),
      at: after,
    });
  },
};
