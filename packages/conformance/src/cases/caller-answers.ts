/**
 * Checks of what a platform makes of a partner's answers (C07, C08, C10 to C12): an answer that leaves the outcome open must never
 * end a payment, because the money may have moved.
 */
import type { CallerContext } from '../check/caller-context.ts';
import type { Draft, CallerCase } from '../check/check.ts';
import { type Behaviour, type Call, onRecords } from '../sandbox/partner.ts';
import {
  goesOn,
  noDouble,
  notEnded,
  returnedTheEnd,
  sameBytes,
  SILENCE,
  UNCLEAR,
  type UnclearAnswer,
} from './caller-rules.ts';

const ALL = [SILENCE, ...UNCLEAR];

/** Faults used when a person makes the payments by hand, one payment each. */
const BY_HAND_C07 = ['500', '404', '200 with a web page', 'a closed connection', 'no response'];

const c07: Draft<CallerCase> = {
  id: 'C07',
  title: 'An inconclusive response to a PUT never fails a payment',
  clauses: ['ST3', 'RU5'],
  decisions: [21],
  sends: `the scripted partner accepts payments but answers their first PUT with a fault: ${ALL.map(({ name }) => name).join(', ')}`,
  expects: 'the same PUT again, and never failed, because the payment may exist',
  likely_cause: 'The platform records any error of the call as a failed payment.',
  async run(t) {
    const faults = ALL.filter(({ name }) => t.run.driver.at_once > 1 || BY_HAND_C07.includes(name));
    await t.each(faults, async (fault, place) => {
      const payment = await t.pay(7_010 + 10 * place, firstPut(fault));
      await t.arrived(payment);
      const retried = await t.until(() => t.puts(payment).length > 1);
      await notEnded(t, payment, `a PUT answered with ${fault.name}`, 'ST3');
      await goesOn(t, payment, retried || fault.mayStop === true, {
        expected: `after ${fault.name}: the same PUT again within ${t.run.caller.patience_seconds} s`,
        got: `${t.puts(payment).length} PUT`,
        clause: 'S4',
        cause:
          'The platform gives up instead of retrying, and leaves a payment that may exist unresolved.',
      });
      sameBytes(t, payment);
      noDouble(t, payment);
    });
  },
};

/** Answers the first PUT incorrectly although the payment was accepted. */
function firstPut(fault: UnclearAnswer): Behaviour {
  let met = false;
  return {
    answer(call) {
      if (met || call.method !== 'PUT') return undefined;
      met = true;
      return fault.reply;
    },
  };
}

/** Records that contradict the request, by the amount that was asked for, and the answers that carry them. */
const CONTRADICTIONS: readonly {
  readonly in: 'GET' | 'every answer';
  readonly wrong: (cents: number) => Readonly<Record<string, unknown>>;
}[] = [
  { in: 'GET', wrong: (cents) => ({ amount_in_cents: cents + 1 }) },
  {
    in: 'GET',
    wrong: () => ({ platform_payment_id: '00000000-0000-7000-8000-000000000000' }),
  },
  { in: 'GET', wrong: (cents) => ({ amount_in_cents: cents - 1 }) },
  { in: 'every answer', wrong: (cents) => ({ amount_in_cents: cents * 2 }) },
];

const c08: Draft<CallerCase> = {
  id: 'C08',
  title: 'A response with another amount or id freezes the payment',
  clauses: ['PF6', 'PF2'],
  decisions: [9, 22],
  sends:
    'the scripted partner echoes one cent more, one cent less, or another id, with status succeeded, to polls; and twice the amount to everything',
  expects: 'the payment is frozen for manual review: neither succeeded nor failed',
  likely_cause: 'The platform reads the status without comparing the other fields of the response.',
  async run(t: CallerContext) {
    const tries = CONTRADICTIONS.slice(0, t.run.driver.at_once > 1 ? CONTRADICTIONS.length : 2);
    await t.each(tries, async (contradiction, place) => {
      const cents = 8_010 + 10 * place;
      const wrong = contradiction.wrong(cents);
      const isEverywhere = contradiction.in === 'every answer';
      // Else the PUT is answered correctly, so that every platform accepts the payment and starts polling.
      const lies = onRecords((record, call) =>
        call.method === 'GET' || isEverywhere
          ? { ...record, ...wrong, ...(isEverywhere && { status: 'succeeded' }) }
          : { ...record, status: 'processing', posted_at: null },
      );
      const payment = await t.pay(cents, lies);
      await t.accepted(payment);
      const ended = await t.until(() => t.calls(payment).some(returnedTheEnd));
      t.given(ended, 'the platform never polled the payment until its end');
      await t.quiet();
      const status = await payment.status();
      t.given(
        status !== undefined,
        'the kit cannot read the status of a payment from the platform: declare caller.status_command or caller.status_url',
      );
      const [last] = t.calls(payment).filter(returnedTheEnd);
      t.must(
        status === 'processing',
        `still processing, although the response said ${JSON.stringify(wrong)}`,
        t.cite(last),
        { got: `status ${status}` },
      );
    });
  },
};

/** Faults used when a person makes the payments by hand. */
const BY_HAND_C10 = ['500', '404', '200 with a web page'];

const c10: Draft<CallerCase> = {
  id: 'C10',
  title: 'An inconclusive poll response ends neither the payment nor the polling',
  clauses: ['RU4', 'ST3'],
  decisions: [22],
  sends: `the scripted partner answers the first poll of each payment with a fault: ${UNCLEAR.map(({ name }) => name).join(', ')}`,
  expects:
    'further calls for that payment until it gets a terminal status; never failed before that',
  likely_cause: 'A poll that throws ends the polling loop, or is recorded as a failed payment.',
  async run(t: CallerContext) {
    const faults = UNCLEAR.filter(
      ({ name }) => t.run.driver.at_once > 1 || BY_HAND_C10.includes(name),
    );
    let judged = 0;
    await t.each(faults, async (fault, place) => {
      const poll = firstPoll(fault);
      const payment = await t.pay(10_010 + 10 * place, poll.behaviour);
      await t.accepted(payment);
      if (!(await t.until(poll.met))) return;
      judged += 1;
      await notEnded(t, payment, `a poll answered with ${fault.name}`, 'ST3');
      const ended = (): boolean => t.calls(payment).some(returnedTheEnd);
      await goesOn(t, payment, (await t.until(ended)) || fault.mayStop === true, {
        expected: `after a poll answered with ${fault.name}: polls until a terminal status, within ${t.run.caller.patience_seconds} s`,
        got: 'the platform stopped polling',
        clause: 'RU4',
      });
      noDouble(t, payment);
    });
    t.given(judged > 0, 'the platform never polled a payment after its PUT');
  },
};

/** Answers the first poll incorrectly. The payment is processing at that time and ends a little later. */
function firstPoll(fault: UnclearAnswer): { behaviour: Behaviour; met: () => boolean } {
  let met = false;
  return {
    met: () => met,
    behaviour: {
      answer(call) {
        if (met || call.method !== 'GET' || !call.path.includes('/payment/')) return undefined;
        met = true;
        return fault.reply;
      },
    },
  };
}

/** Words that are not one of the four statuses, but that a careless parser would map to one of them. */
const WORDS = ['completed', 'SUCCEEDED', 'success', 'declined', 'cancelled', ''];

/** Polls that return the unknown word before the valid status. */
const TIMES = 2;

const c11: Draft<CallerCase> = {
  id: 'C11',
  title: 'An unknown status does not end a payment',
  clauses: ['PF4', 'RU4'],
  decisions: [22],
  sends: `the scripted partner returns the status ${WORDS.map((word) => `"${word}"`).join(', ')} in ${TIMES} polls, then the correct one`,
  expects: 'neither succeeded nor failed while the status is unknown',
  likely_cause:
    'The platform treats every status other than processing as terminal, or compares statuses case-insensitively.',
  async run(t: CallerContext) {
    const words = t.run.driver.at_once > 1 ? WORDS : WORDS.slice(0, 2);
    const polled = words.map(() => 0);
    const payments = await t.payAll(
      words.map((status, place) => ({
        cents: 11_010 + 10 * place,
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
      t.must(
        status === undefined || status === 'processing',
        `still processing, although the response said "${words[place] ?? ''}"`,
        t.cite(last),
        { got: `status ${status ?? ''}` },
      );
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

const STATUSES = [301, 302, 303, 307, 308];

const c12: Draft<CallerCase> = {
  id: 'C12',
  title: 'A redirect is never followed',
  clauses: ['S3', 'RU5'],
  decisions: [21],
  sends: `the scripted partner redirects a PUT to another host with ${STATUSES.join(', ')}, and a poll with 302`,
  expects:
    'no request to that host, which would receive the credential; and the payment is not failed',
  likely_cause: 'The HTTP library follows redirects by default.',
  async run(t) {
    const stray = t.run.partner.stray_url;
    const statuses = t.run.driver.at_once > 1 ? STATUSES : STATUSES.slice(-2);
    const orders = [
      ...statuses.map((status) => ({
        what: `a PUT answered with ${status}`,
        behaviour: once((call) => call.method === 'PUT', status, stray),
      })),
      { what: 'a poll answered with 302', behaviour: once(isPoll, 302, stray) },
    ];
    await t.each(orders, async ({ what, behaviour }, place) => {
      const payment = await t.pay(12_010 + 10 * place, behaviour);
      await t.arrived(payment);
      await t.until(() => t.calls(payment).length > 1 || t.strays() > 0);
      await notEnded(t, payment, what, 'ST3');
      noDouble(t, payment);
    });
    t.must(t.strays() === 0, 'no request to the redirect’s target host', undefined, {
      got: `${t.strays()} requests`,
    });
  },
};

function isPoll(call: Call): boolean {
  return call.method === 'GET' && call.path.includes('/payment/');
}

/** Answers the first call of this kind with a redirect. */
function once(kind: (call: Call) => boolean, status: number, to: string): Behaviour {
  let met = false;
  return {
    receive(call) {
      if (met || !kind(call)) return undefined;
      met = true;
      return { status, headers: { Location: `${to}${call.path}` }, body: '' };
    },
  };
}

export const CALLER_ANSWERS: readonly Draft<CallerCase>[] = [c07, c08, c10, c11, c12];
