import { parseInstant } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import { show } from '../../check/http.ts';
import { sharedAll } from '../../check/planned-payments.ts';

/** Allowed difference between two clocks (decision 12). */
const SKEW_MS = 5 * 60_000;

export const p22: PartnerCase = {
  id: 'P22',
  title: 'initiated_at has a time zone',
  clauses: ['PF7'],
  decisions: [12],
  severity: 'must',
  profile: 'contract',
  sends: 'PUT payment with a new id (the payment of P20)',
  expects: 'initiated_at in ISO 8601 with a time zone, within five minutes of now',
  likely_cause: 'The time is local time without an offset, or seconds since 1970.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t) {
    const { subject, record } = await t.accepted();
    const text = record['initiated_at'];
    const instant = typeof text === 'string' ? parseInstant(text) : undefined;
    const read = t.must(instant !== undefined, {
      expected: 'initiated_at such as 2026-03-01T09:30:00.000Z',
      got: `initiated_at is ${show(text)}`,
      at: subject.put,
    });
    if (!read || instant === undefined) return;
    t.should(Math.abs(instant - subject.put.sent) <= SKEW_MS, {
      expected: `within five minutes of ${new Date(subject.put.sent).toISOString()}`,
      got: `initiated_at is ${show(text)}`,
      at: subject.put,
    });
  },
};
