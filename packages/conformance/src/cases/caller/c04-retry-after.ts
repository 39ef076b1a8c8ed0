import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { recordOf, type Behaviour, type Call } from '../../sandbox/partner.ts';
import { notTooFast, returnedTheEnd } from './calls.ts';

/** The Retry-After that the scripted partner sends. */
const WAIT_SECONDS = 2;

/** Tolerance for an early call, because timers and clocks are not exact. */
const TOLERANCE_MS = 100;

/** How long the payment can be polled after that. */
const POLLED_MS = 1_200;

/** Maximum number of calls per second for one payment that a partner should have to handle. */
const MOST_A_SECOND = 10;

export const c04: CallerCase = {
  id: 'C04',
  title: 'The platform obeys Retry-After',
  clauses: ['RU4', 'LI1'],
  decisions: [23, 25],
  severity: 'should',
  profile: 'contract',
  sends: `the scripted partner answers the PUT of one payment and a poll of another with 429 and a Retry-After, in seconds and as a date`,
  expects: `no earlier call for that payment, and never more than ${MOST_A_SECOND} polls for it per second`,
  likely_cause: 'Retry-After is read only on 503, only for polls, only in seconds, or not at all.',
  async run(t: CallerContext) {
    await t.each(['PUT', 'GET'] as const, async (method, place) => {
      const payment = await t.pay(
        4_001 + place,
        asksToWait((call) => call.method === method),
      );
      await (method === 'PUT' ? t.arrived(payment) : t.accepted(payment));
      waited(t, payment, method, await t.until(() => calls(t, payment, method).length > 1));
      if (method === 'PUT') return;
      await t.until(() => t.calls(payment).some(returnedTheEnd));
      notTooFast(t, payment, 'GET', MOST_A_SECOND);
    });
    t.notes.push(
      'The kit cannot test whether a restart keeps the poll budget; the platform’s own tests must.',
    );
  },
};

function calls(t: CallerContext, payment: CallerPayment, method: string) {
  return t.calls(payment).filter((call) => call.method === method);
}

function waited(t: CallerContext, payment: CallerPayment, method: string, again: boolean): void {
  const [first, second] = calls(t, payment, method);
  t.given(
    again && first !== undefined && second !== undefined,
    `the platform sent no second ${method}`,
  );
  const ms = second.at_ms - first.at_ms;
  t.should(ms >= WAIT_SECONDS * 1_000 - TOLERANCE_MS, {
    expected: `the next ${method} ${WAIT_SECONDS} s after the 429`,
    got: `after ${ms} ms`,
    at: t.cite(second),
  });
}

/** The same wait as a date, the other form that HTTP has for it; dates are whole seconds, so it may be one more. */
function inDate(now: number): string {
  return new Date(Math.ceil(now / 1_000 + WAIT_SECONDS) * 1_000).toUTCString();
}

/** Answers the first call of this kind with 429, then keeps the payment processing for a while. */
function asksToWait(kind: (call: Call) => boolean): Behaviour {
  let asked: number | undefined;
  return {
    receive(call, partner) {
      if (!kind(call) || asked !== undefined) return undefined;
      asked = partner.now();
      return {
        status: 429,
        headers: { 'Retry-After': call.method === 'PUT' ? String(WAIT_SECONDS) : inDate(asked) },
        body: { code: 'TOO_MANY_REQUESTS', message: 'Too many requests' },
      };
    },
    // The payment stays processing so that there is something to poll. Reply immediately, like a partner without waiting reads.
    answer(call, answer, partner) {
      const record = call.method === 'GET' ? recordOf(answer) : undefined;
      return record === undefined ||
        asked === undefined ||
        partner.now() - asked > WAIT_SECONDS * 1_000 + POLLED_MS
        ? undefined
        : { status: 200, body: { ...record, status: 'processing', posted_at: null } };
    },
  };
}
