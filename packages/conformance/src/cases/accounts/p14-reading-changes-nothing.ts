import type { PartnerCase } from '../../check/check.ts';
import { asObject, show } from '../../check/http.ts';

/** Reads in a row. */
const READS = 20;

export const p14: PartnerCase = {
  id: 'P14',
  title: 'Reading changes nothing',
  clauses: ['B1', 'B2'],
  severity: 'must',
  profile: 'contract',
  stage: 'quiet',
  sends: `GET account and GET balance, ${READS} times`,
  expects: 'the same status and the same amount due each time',
  likely_cause:
    'A read posts, accrues or rounds something, or two replicas hold different balances.',
  async run(t) {
    let first: string | undefined;
    for (let read = 0; read < READS; read += 1) {
      const account = await t.readAccount();
      const balance = t.target.paths.get_balance === null ? undefined : await t.readBalance();
      const shown = {
        status: asObject(account.json)?.['status'],
        due: asObject(asObject(account.json)?.['balance'])?.['amount_due_in_cents'],
        balance:
          balance === undefined ? undefined : asObject(balance.json)?.['amount_due_in_cents'],
      };
      const now = `status ${show(shown.status)}, amount due ${show(shown.due ?? shown.balance)} / ${show(shown.balance)}`;
      first ??= now;
      const same = t.must(now === first, {
        expected: `as at first: ${first}`,
        got: `read ${read + 1}: ${now}`,
        at: balance ?? account,
      });
      if (!same) return;
    }
  },
};
