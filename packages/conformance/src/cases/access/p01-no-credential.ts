import type { PartnerCase } from '../../check/check.ts';
import { own } from '../../check/planned-payments.ts';
import { refusesAll } from './refusal.ts';

export const p01: PartnerCase = {
  id: 'P01',
  title: 'A caller without a credential reads and pays',
  clauses: ['S3'],
  severity: 'must',
  profile: 'contract',
  sends: 'every operation with no credential at all; then GET of the payment that was to be made',
  expects: 'a refusal (401) each time, with no data in it, and no payment',
  likely_cause:
    'A route is mounted outside the authentication layer, the check runs after the work, or a missing header means "no check needed".',
  creates: (target) => [own(target, 1)],
  run: (t) => refusesAll(t, [['no credential', 'none']], 1),
};
