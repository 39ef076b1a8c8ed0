import { pause, type Clock } from '../../clock.ts';
import type { CallerCase } from '../../check/check.ts';
import type { CallerContext, CallerPayment } from '../../check/caller-context.ts';
import { onRecords, recordOf, type Behaviour } from '../../sandbox/partner.ts';
import { notEnded, stopsAtTheEnd, returnedTheEnd } from './calls.ts';

/** The three terminal statuses, one payment each. */
const ENDS = ['succeeded', 'failed', 'canceled'] as const;

export const c03: CallerCase = {
  id: 'C03',
  title: 'Polling stops once the payment has ended',
  clauses: ['RU4', 'B5', 'EV1'],
  severity: 'must',
  profile: 'contract',
  sends:
    'the scripted partner ends one payment as succeeded, one as failed and one as canceled; others have a long payment_id, times with offsets, objects that have a status of their own, or a poll whose response arrives after that to a later one',
  expects:
    'the customer sees the same status, and the platform makes no further call for that payment, then or later in the run',
  likely_cause:
    'The next poll is scheduled before the response is examined; or a valid record of unusual form is passed over.',
  async run(t) {
    const payments = await t.payAll(
      ENDS.map((status, place) => ({ cents: 3_001 + place, behaviour: endsAs(status) })),
    );
    for (const payment of payments) await t.accepted(payment);
    await t.until(() => payments.every((payment) => t.calls(payment).some(returnedTheEnd)));
    await Promise.all(
      payments.map(async (payment) => {
        const calls = t.calls(payment);
        const polled = t.must(calls.some(returnedTheEnd), {
          expected: 'polls until the payment has ended',
          got: `${calls.length} calls, none of which got a terminal status`,
          cause: 'The platform treats the response to the PUT as final, or polls the wrong URL.',
        });
        if (polled) await stopsAtTheEnd(t, payment);
      }),
    );
    await unusualRecords(t);
    CALLS.set(
      t,
      payments.map((payment) => ({ payment, calls: t.calls(payment).length })),
    );
  },
  async atEnd(t) {
    // One read after the end may be a reconciliation, and one more may follow a restart (C14); the next are polls at a slower pace.
    const most = t.run.restart === undefined ? 1 : 2;
    for (const { payment, calls } of t.all.length > 0 ? [] : (CALLS.get(t) ?? [])) {
      const later = t.calls(payment).slice(calls);
      const next = later[most];
      t.must(next === undefined, {
        expected: `at most ${most} calls for an ended payment while the other checks run`,
        got: `${later.length}`,
        cause: 'The platform goes on polling at a slower pace.',
        ...(next === undefined ? {} : { at: t.cite(next) }),
      });
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
  if (t.run.driver.at_once === 1) {
    t.notes.push('Records of unusual form were not tried, because a person makes the payments.');
    return;
  }
  const payments = await t.payAll(
    [...UNUSUAL, lateAnswer(t.run.tokens.clock)].map((behaviour, place) => ({
      cents: 3_011 + place,
      behaviour,
    })),
  );
  for (const payment of payments) await t.accepted(payment);
  await Promise.all(
    payments.map(async (payment) => {
      const ended = await t.until(() => t.calls(payment).some(returnedTheEnd));
      // A platform that read another object's status has ended the payment too early.
      if (!ended) await notEnded(t, payment, 'a poll answered with status processing', 'B5');
      await stopsAtTheEnd(t, payment);
    }),
  );
}

/** How long the first poll is held for a platform that sends another one meanwhile; shorter than usual timeouts. */
const HELD_MS = 1_500;

/** How long after the end was sent the held response follows it. */
const LATER_MS = 100;

/** Holds the first poll's response, which says processing, until a later poll has been told the end. */
function lateAnswer(clock: Clock): Behaviour {
  let polls = 0;
  let told: () => void = () => undefined;
  const end = new Promise<void>((resolve) => {
    told = resolve;
  });
  return {
    async answer(call, answer) {
      const record = recordOf(answer);
      if (call.method !== 'GET' || record === undefined) return undefined;
      polls += 1;
      if (polls > 1) {
        if (record['status'] !== 'processing') clock.after(LATER_MS, told);
        return undefined;
      }
      const processing = { ...record, status: 'processing', posted_at: null };
      await Promise.race([end, pause(clock, HELD_MS)]);
      return { status: 200, body: processing };
    },
  };
}

/** The payments of a run, each with the number of its calls when it was seen to rest. */
const CALLS = new WeakMap<
  CallerContext,
  readonly { readonly payment: CallerPayment; readonly calls: number }[]
>();

/** Ends the payment with this status when the sandbox ends it. */
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
