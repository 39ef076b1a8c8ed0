import type { PartnerCase } from '../../check/check.ts';
import { own } from '../../check/planned-payments.ts';
import { refusesAll } from './refusal.ts';

export const p01: PartnerCase = {
  id: 'P01',
  title: 'Requests without a credential are refused',
  clauses: ['S3'],
  severity: 'must',
  profile: 'contract',
  sends:
    'every operation without a credential; then GET of the payment that the PUT would have created',
  expects: 'a refusal (401) each time, with no data in the response, and no payment',
  likely_cause:
    'A route is mounted outside the authentication layer, the credential is checked after the request is processed, or a missing header skips the check.',
  creates: (target) => [own(target, 1)],
  run: (t) => refusesAll(t, [['no credential', 'none']], 1),
};
