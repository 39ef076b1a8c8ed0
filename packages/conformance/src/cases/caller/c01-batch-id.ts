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
    for (const payment of await t.payAll([{ cents: 1_001 }, { cents: 1_002 }, { cents: 1_003 }])) {
      await t.arrived(payment);
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
