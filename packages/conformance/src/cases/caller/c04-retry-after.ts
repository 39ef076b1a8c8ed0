import type { CallerCase } from '../../check/check.ts';
import type { CallerContext } from '../../check/caller-context.ts';
import { recordOf } from '../../sandbox/partner.ts';
import { toldTheEnd } from './calls.ts';

/** What the scripted partner asks to wait. */
const WAIT_SECONDS = 2;

/** How much earlier than asked still counts: timers and clocks are not exact. */
const TOLERANCE_MS = 100;

/** How long the payment can be polled after that. */
const POLLED_MS = 1_200;

/** Most polls of one payment in one second that any partner should have to bear. */
const MOST_A_SECOND = 10;

export const c04: CallerCase = {
  id: 'C04',
  title: 'The platform waits as long as it is asked to',
  clauses: ['RU4', 'LI1'],
  decisions: [23, 25],
  severity: 'should',
  profile: 'contract',
  sends: `the scripted partner answers a poll 429 with Retry-After: ${WAIT_SECONDS}`,
  expects: `no call for that payment sooner; never more than ${MOST_A_SECOND} polls of it in a second`,
  likely_cause: 'Retry-After is read on 503 alone, or not at all.',
  async run(t: CallerContext) {
    const asked = new Map<string, number>();
    t.script({
      receive(call, partner) {
        if (call.operation !== 'get_account_payment' || asked.has(call.path)) return undefined;
        asked.set(call.path, partner.now());
        return {
          status: 429,
          headers: { 'Retry-After': String(WAIT_SECONDS) },
          body: { code: 'TOO_MANY_REQUESTS', message: 'Too many requests' },
        };
      },
      // For a while after that the payment goes on processing, so that there is something to poll for;
      // it is told at once, as by a partner that knows no waiting reads.
      answer(call, answer, partner) {
        const first = asked.get(call.path);
        const record = call.method === 'GET' ? recordOf(answer) : undefined;
        return record === undefined ||
          first === undefined ||
          partner.now() - first > WAIT_SECONDS * 1_000 + POLLED_MS
          ? undefined
          : { status: 200, body: { ...record, status: 'processing', posted_at: null } };
      },
    });
    const payment = await t.pay(4_001);
    const polls = (): ReturnType<typeof t.calls> =>
      t.calls(payment).filter(({ method }) => method === 'GET');
    const again = await t.until(() => polls().length > 1);
    t.given(again, 'the platform did not poll twice');
    const [first, second] = polls();
    if (first === undefined || second === undefined) return;
    const waited = second.at_ms - first.at_ms;
    t.should(waited >= WAIT_SECONDS * 1_000 - TOLERANCE_MS, {
      expected: `the next poll ${WAIT_SECONDS} s after the 429`,
      got: `after ${waited} ms`,
      at: t.cite(second),
    });
    await t.until(() => t.calls(payment).some(toldTheEnd));
    t.notes.push(
      'Whether a restart keeps the budget is for the platform to show by its own tests.',
    );
    const times = polls().map(({ at_ms }) => at_ms);
    const crowded = times.some(
      (time, index) => (times[index + MOST_A_SECOND] ?? Infinity) - time < 1_000,
    );
    t.should(!crowded, {
      expected: `at most ${MOST_A_SECOND} polls in a second`,
      got: `${times.length} polls in ${(times.at(-1) ?? 0) - (times[0] ?? 0)} ms`,
      at: t.cite(second),
    });
  },
};
