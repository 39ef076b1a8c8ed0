import { parseInstant } from '@duebridge/contract';
import type { PartnerCase } from '../../check/check.ts';
import type { PartnerContext } from '../../check/partner-context.ts';
import { Skipped } from '../../check/findings.ts';
import { show } from '../../check/http.ts';
import { sharedAll } from '../../check/planned-payments.ts';
import { statusOf } from '../shared.ts';

/** Allowed difference between two clocks (decision 12), plus rounding to a second. */
const SKEW_MS = 5 * 60_000;
const ROUNDING_MS = 1_000;

export const p51: PartnerCase = {
  id: 'P51',
  title: 'A succeeded payment has posted_at',
  clauses: ['PF8', 'ST2'],
  severity: 'must',
  profile: 'contract',
  sends: 'GET payment once it has succeeded (the payment of P20)',
  expects: 'posted_at in ISO 8601 with a time zone, neither before initiated_at nor in the future',
  likely_cause:
    'posted_at is a date without a time, is local time without an offset, or is set by a later job.',
  creates: (target) => sharedAll(target, ['first']),
  async run(t: PartnerContext) {
    const { subject } = await t.accepted();
    const { reply, record } = await t.ended(subject.intent);
    if (record['status'] !== 'succeeded') {
      // Allowed by the interface, but then the check has seen no payment that succeeds.
      throw new Skipped(
        `a payment of ${subject.intent.amount_in_cents} cents to accounts.payable ended as ${statusOf(record)}: declare an account that can be paid`,
        'wanting',
      );
    }
    t.strict(record['failure_reason'] === undefined, {
      expected: 'no failure_reason, because the payment did not fail',
      got: `failure_reason is ${show(record['failure_reason'])}`,
      clause: 'PF5',
      at: reply,
    });
    const posted = record['posted_at'];
    const instant = typeof posted === 'string' ? parseInstant(posted) : undefined;
    const read = t.must(instant !== undefined, {
      expected: 'posted_at such as 2026-03-01T09:30:04.000Z',
      got: `posted_at is ${show(posted)}`,
      at: reply,
    });
    const initiated = record['initiated_at'];
    const start = typeof initiated === 'string' ? parseInstant(initiated) : undefined;
    if (!read || instant === undefined || start === undefined) return;
    const early = start - instant;
    t.must(early <= SKEW_MS, {
      expected: `posted_at not before initiated_at ${show(initiated)}`,
      got: `posted_at is ${show(posted)}`,
      at: reply,
    });
    // P22 reports a server whose clock is ahead. Here the check takes the server's clock as given.
    const ahead = instant - reply.came - Math.max(0, start - subject.put.came);
    t.must(ahead <= SKEW_MS, {
      expected: `posted_at not after ${new Date(reply.came).toISOString()}, when it was read`,
      got: `posted_at is ${show(posted)}`,
      cause: 'posted_at is the effective date of the posting, not the time at which it was made.',
      at: reply,
    });
    // Two clocks may differ, and one may show whole seconds only: report a remark, not a finding.
    if (early > ROUNDING_MS || ahead > ROUNDING_MS) {
      t.notes.push(
        `posted_at ${show(posted)} is inconsistent with initiated_at ${show(initiated)}: the clocks differ.`,
      );
    }
  },
};
