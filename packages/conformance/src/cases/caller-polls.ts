/** Checks of how often and how long a platform calls (C03, C13, C14): to the end of each payment, and not beyond. */
import { amountOf, idOf, type CallerContext, type CallerPayment } from '../check/caller-context.ts';
import type { CallerCase } from '../check/check.ts';
import { type Behaviour, onRecords } from '../scripted/partner.ts';
import {
  goesOn,
  hasEnded,
  idsSoFar,
  noDouble,
  notEnded,
  notTooFast,
  reportsProcessing,
  sameBytes,
  stopsAtTheEnd,
  untilEnd,
} from './caller-rules.ts';

/** The three terminal statuses, one payment each. */
const ENDS = ['succeeded', 'failed', 'canceled'] as const;

const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  likely_cause: 'The next poll is scheduled too early, or an unusual record is passed over.',
  async run(t) {
    const payments = await t.payAll(
      ENDS.map((status, place) => ({ cents: 3_010 + 10 * place, behaviour: endsAs(status) })),
    );
    for (const payment of payments) await t.accepted(payment);
    await t.until(() => payments.every((payment) => hasEnded(t, payment)));
    await Promise.all(
      payments.map(async (payment) => {
        const isPolled = t.must(
          hasEnded(t, payment),
          'polls until the payment has ended',
          undefined,
          {
            got: `${t.calls(payment).length} calls, none of which got a terminal status`,
            cause: 'The platform treats the response to the PUT as final, or polls the wrong URL.',
          },
        );
        if (isPolled) await stopsAtTheEnd(t, payment);
      }),
    );
    await unusualRecords(t);
    for (const payment of payments) t.atRest.set(payment, t.calls(payment).length);
  },
  async atEnd(t) {
    // One read after the end may be a reconciliation, and one more may follow a restart (C14); the next are polls at a slower pace.
    const most = t.run.options.restart === undefined ? 1 : 2;
    for (const [payment, calls] of t.all.length > 0 ? [] : t.atRest) {
      const later = t.calls(payment).slice(calls);
      t.none(
        later.slice(most),
        `at most ${most} calls for an ended payment while the other checks run`,
        () => `${later.length}`,
        { cause: 'The platform goes on polling at a slower pace.' },
      );
    }
  },
};

/** Valid records of unusual form, which a platform must read like any other. */
const UNUSUAL: readonly Behaviour[] = [
  // PF1: payment_id is a string of any length.
  onRecords((record) => ({
    ...record,
    payment_id: `urn:ledger:${String(record['platform_payment_id'])}`.padEnd(80, '0'),
  })),
  // PF7 and PF8: the partner chooses the time zone.
  onRecords((record) => ({
    ...record,
    initiated_at: atOffset(record['initiated_at'], 330),
    posted_at: atOffset(record['posted_at'], -210),
  })),
  // PF9: further fields, which may have a status of their own.
  onRecords((record) => ({ account: { status: 'failed' }, ...record, fee: { status: 'failed' } })),
];

/** The same instant at an offset in minutes, in whole seconds. */
function atOffset(instant: unknown, minutes: number): unknown {
  if (typeof instant !== 'string') return instant;
  const local = new Date(Date.parse(instant) + minutes * 60_000).toISOString().slice(0, 19);
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const two = (number: number): string => String(number).padStart(2, '0');
  return `${local}${minutes < 0 ? '-' : '+'}${two(hours)}:${two(rest)}`;
}

async function unusualRecords(t: CallerContext): Promise<void> {
  if (t.all.length > 0) return;
  const payments = await t.payAll(
    UNUSUAL.map((behaviour, place) => ({ cents: 3_110 + 10 * place, behaviour })),
  );
  for (const payment of payments) await t.accepted(payment);
  await Promise.all(
    payments.map(async (payment) => {
      const ended = await untilEnd(t, payment);
      // A platform that read another object's status has ended the payment too early.
      if (!ended) await notEnded(t, payment, 'a poll answered with status processing', 'B5');
      await stopsAtTheEnd(t, payment);
    }),
  );
}

/** Ends the payment with this status when the partner ends it. */
function endsAs(status: (typeof ENDS)[number]): Behaviour {
  return onRecords((record) =>
    record['status'] !== 'succeeded' || status === 'succeeded'
      ? record
      : {
          ...record,
          status,
          posted_at: null,
          ...(status === 'failed' ? { failure_reason: 'The account is closed.' } : {}),
        },
  );
}

/** PUTs after which a platform with a retry limit would have given up. */
const MOST_TRIES = 5;

/** Maximum number of PUTs per second for one payment that a partner should have to handle. */
const MOST_A_SECOND = 5;

const c13: CallerCase = {
  id: 'C13',
  title: 'The platform neither floods a failing partner nor gives up on it',
  clauses: ['RU4', 'RU5', 'ST3', 'S4'],
  likely_cause: 'Retries come at once and without a limit, or end after a number of attempts.',
  async run(t: CallerContext) {
    let isOver = false;
    const payment = await t.pay(13_020, {
      receive: ({ method }) => (method === 'PUT' && !isOver ? BROKEN : undefined),
    });
    await t.arrived(payment);
    await t.run.sleep(t.run.pace.quiet_ms);
    await t.until(() => t.puts(payment).length > MOST_TRIES);
    const what = `${t.puts(payment).length} PUTs answered with 500`;
    await notEnded(t, payment, what, 'ST3');
    isOver = true;
    notTooFast(t, payment, 'PUT', MOST_A_SECOND);
    const ended = await untilEnd(t, payment);
    await goesOn(t, payment, ended, { expected: `after ${what}: ${t.untilTheEnd}`, clause: 'S4' });
    sameBytes(t, payment);
    noDouble(t, payment);
  },
};

const BROKEN = {
  status: 500,
  body: { code: 'INTERNAL_ERROR', message: 'An unexpected error occurred' },
};

const c14: CallerCase = {
  id: 'C14',
  title: 'Open payments survive a restart of the platform',
  clauses: ['RU5', 'S4', 'ST3'],
  stage: 'last',
  likely_cause: 'Open payments are only in memory, or an id is stored after the response.',
  async run(t: CallerContext) {
    const { restart } = t.run.options;
    t.given(restart !== undefined, 'the target declares no caller.restart_command');
    let restarted = false;
    const polled = await t.pay(
      14_010,
      reportsProcessing(() => restarted),
    );
    await t.accepted(polled);
    // Accepts the payment, but sends no response to a PUT before the restart.
    const unanswered = await t.pay(14_020, {
      answer: ({ method }) => (method === 'PUT' && !restarted ? () => undefined : undefined),
    });
    await t.arrived(unanswered);
    await restart();
    restarted = true;
    await goesOnFor(t, polled, 'a payment that was processing');
    await goesOnFor(t, unanswered, 'a payment whose PUT had no response');
    await newIds(t);
  },
};

/** A payment made after the restart must not get an id that another payment has (PF2). */
async function newIds(t: CallerContext): Promise<void> {
  const known = idsSoFar(t);
  await t.pay(14_030);
  const put = () => t.puts().find(({ text }) => amountOf(text) === 14_030);
  await t.until(() => put() !== undefined);
  const first = put();
  if (first === undefined) return;
  const expected = 'a new platform_payment_id for a payment made after the restart';
  t.must(!known.has(idOf(first)), expected, first, {
    got: first.path,
    clause: 'PF2',
    cause: 'Ids are numbered by a counter in memory.',
  });
}

async function goesOnFor(t: CallerContext, payment: CallerPayment, what: string): Promise<void> {
  const ended = await untilEnd(t, payment);
  noDouble(t, payment);
  sameBytes(t, payment);
  if (ended || t.all.length > 0) return;
  await notEnded(t, payment, 'a restart', 'ST3');
  const expected = `${what}: ${t.untilTheEnd} of the restart`;
  await goesOn(t, payment, ended, { expected, clause: 'S4' });
}

export const CALLER_POLLS = [c03, c13, c14];
