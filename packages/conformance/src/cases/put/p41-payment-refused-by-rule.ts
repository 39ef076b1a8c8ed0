import type { PartnerCase } from '../../check/check.ts';
import { isRefusal, tell } from '../../check/http.ts';
import { sharedAll, type SharedName } from '../../check/planned-payments.ts';
import { statusOf } from '../shared.ts';

const NAMES: readonly SharedName[] = ['inactive', 'above'];

const WORDS: Partial<Record<SharedName, string>> = {
  inactive: 'the payment to the inactive account',
  above: 'the payment above the maximum',
};

export const p41: PartnerCase = {
  id: 'P41',
  title: 'A payment to an inactive account or above the maximum fails with a reason',
  clauses: ['FR1', 'ST3'],
  decisions: [10],
  severity: 'must',
  profile: 'contract',
  sends:
    'PUT payment to the inactive account, and PUT payment of one cent above the declared maximum',
  expects: '200, then status failed with a reason',
  likely_cause:
    'The rule is enforced in the biller’s user interface, not where payments are posted.',
  unfit: (target) =>
    sharedAll(target, NAMES).length === 0
      ? 'the target declares neither an inactive account nor a maximum'
      : undefined,
  creates: (target) => sharedAll(target, NAMES),
  async run(t) {
    for (const name of NAMES) {
      const made = await t.sharedPayment(name);
      if (made === undefined) continue;
      if (isRefusal(made.put)) {
        t.should(false, {
          expected: `${WORDS[name] ?? name}: 200, then status failed with a reason`,
          got: tell(made.put),
          cause:
            'The rule is enforced in request validation. The platform cannot tell such a refusal from an error of its own, so an operator has to investigate each one while the customer waits.',
          at: made.put,
        });
        continue;
      }
      const life = await t.end(made.intent);
      if (
        life.end === undefined &&
        (t.run.endsLater || t.target.terminal_window_seconds === undefined)
      ) {
        throw t.notEnded();
      }
      const record = life.end?.record;
      t.must(record?.['status'] === 'failed', {
        expected: `${WORDS[name] ?? name}: status failed within ${t.run.window_ms / 1_000} s`,
        got:
          record === undefined
            ? `it did not end: ${tell(life.last)}`
            : `status ${statusOf(record)}`,
        at: life.end?.reply ?? life.last,
      });
    }
  },
};
