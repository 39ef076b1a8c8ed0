import type { CallerCase } from '../../check/check.ts';
import { bodyOf } from './calls.ts';

export const c01: CallerCase = {
  id: 'C01',
  title: 'Every payment that the platform puts belongs to a batch',
  clauses: ['PF3'],
  severity: 'must',
  profile: 'contract',
  sends: 'nothing: the platform is made to pay three times, and its PUTs are read',
  expects: 'platform_batch_id, a text, in every PUT',
  likely_cause: 'The batch is decided later, by a job that runs after the PUT.',
  async run(t) {
    const payments = [await t.pay(1_001), await t.pay(1_002), await t.pay(1_003)];
    for (const payment of payments) {
      const came = await t.until(() => t.puts(payment).length > 0);
      t.must(came, { expected: 'a PUT for each payment', got: 'none came' });
      for (const put of t.puts(payment)) {
        const batch = bodyOf(put)?.['platform_batch_id'];
        t.must(typeof batch === 'string' && batch !== '', {
          expected: 'platform_batch_id, a text',
          got: `the body ${put.body.slice(0, 200)}`,
          at: t.cite(put),
        });
      }
    }
  },
};
