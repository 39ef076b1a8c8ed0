import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import { onRecords } from '../../sandbox/partner.ts';
import { returnedTheEnd } from './calls.ts';

/** Words that are not one of the four statuses, but that a careless parser would map to one of them. */
const WORDS = ['completed', 'SUCCEEDED', 'success', 'declined', 'cancelled', ''];

/** Polls that return the unknown word before the valid status. */
const TIMES = 2;

export const c11: CallerCase = {
  id: 'C11',
  title: 'An unknown status does not end a payment',
  clauses: ['PF4', 'RU4'],
  decisions: [22],
  severity: 'must',
  profile: 'contract',
  sends: `the scripted partner returns the status ${WORDS.map((word) => `"${word}"`).join(', ')} in ${TIMES} polls, then the correct one`,
  expects: 'neither succeeded nor failed while the status is unknown',
  likely_cause:
    'The platform treats every status other than processing as terminal, or compares statuses case-insensitively.',
  async run(t: CallerContext) {
    const words = t.run.driver.at_once > 1 ? WORDS : WORDS.slice(0, 2);
    const polled = words.map(() => 0);
    const payments = await t.payAll(
      words.map((status, place) => ({
        cents: 11_001 + place,
        behaviour: onRecords((record, call) => {
          // A PUT repeated in the meantime must not reveal the end before the polls have returned the unknown word.
          if (call.method !== 'GET') return { ...record, status: 'processing', posted_at: null };
          if ((polled[place] ?? 0) >= TIMES) return record;
          polled[place] = (polled[place] ?? 0) + 1;
          // A posted_at together with an unknown status must not end the payment either.
          const posted_at = status === 'completed' ? (record['initiated_at'] ?? null) : null;
          return { ...record, status, posted_at };
        }),
      })),
    );
    const [first] = payments;
    if (first !== undefined) await t.accepted(first);
    await t.until(() => polled.every((times) => times > 0));
    t.given(
      polled.some((times) => times > 0),
      'the platform never polled a payment after its PUT',
    );
    // The next poll shows that the platform has read the word; a platform that treats it as terminal sends none.
    await t.until(() => polled.every((times) => times >= TIMES), t.run.tokens.pace.quiet_ms);
    for (const [place, payment] of payments.entries()) {
      const status = await payment.status();
      if ((polled[place] ?? 0) === 0 || t.calls(payment).some(returnedTheEnd)) continue;
      const last = t.calls(payment).at(-1);
      t.must(status === undefined || status === 'processing', {
        expected: `still processing, although the response said "${words[place] ?? ''}"`,
        got: `status ${status ?? ''}`,
        ...(last === undefined ? {} : { at: t.cite(last) }),
      });
    }
    const unasked = polled.filter((times) => times === 0).length;
    if (unasked > 0) {
      t.wanting.push(
        `${unasked} of ${words.length} payments were not polled within ${t.run.caller.patience_seconds} s, so their status words were not tried: set caller.patience_seconds to the longest time that the platform waits between two polls`,
      );
    }
    // A platform may put such a payment into manual review and stop polling; that is not a breach.
    const asked = payments.filter((payment) => t.calls(payment).some(returnedTheEnd)).length;
    t.notes.push(
      `${asked} of ${payments.length} payments were polled again after the unknown status.`,
    );
  },
};
