/**
 * Checks of PUTs that meet each other, a cut connection, another replica or a restart (P27, P30, P34, P63, P66): the places where
 * code that works one request at a time makes a second payment, or loses one.
 */
import type { PartnerCase } from '../check/check.ts';
import { isOut, isSuccess, show, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  holdsPayment,
  isTerminalWord,
  recordOf,
  type Intent,
  type PaymentFields,
  NO_BILLER,
  own,
  uses,
} from '../check/payment-fields.ts';
import { ENDED_FIELDS, isAnswer, LASTING_FIELDS, unchanged } from './shared.ts';

/** Concurrent PUTs of one id, and then of as many ids. */
const IDENTICAL = 100;
const DIFFERENT = 20;

const p27: PartnerCase = {
  id: 'P27',
  title: 'A hundred concurrent identical PUTs create one payment',
  clauses: ['RU5', 'PF2'],
  likely_cause: 'The id is looked up and then inserted, without a unique constraint.',
  creates: (target) => [
    own(target, 27),
    ...Array.from({ length: DIFFERENT }, (_, place) => own(target, 200 + place)),
  ],
  async run(t) {
    const intent = t.intend(27);
    // P60 reports an answer that is about another of them.
    const others = Array.from({ length: DIFFERENT }, (_, place) => t.intend(200 + place));
    for (const one of [intent, ...others]) t.run.spend(one);
    const puts = (some: readonly Intent[]) =>
      t.burst(some.map((one) => () => t.put(one, { burst: true })));
    const replies = await puts(Array.from({ length: IDENTICAL }, () => intent));
    // After those, because a server may take no more connections than that.
    await puts(others);
    const silent = replies.filter(({ exchange }) => isOut(exchange));
    t.none(
      silent,
      'a response to each request',
      (one, count) => `${count} of ${IDENTICAL} got none, such as ${tell(one)}`,
      { level: 'should', cause: 'The server, or a proxy before it, accepts fewer connections.' },
    );
    t.none(
      replies.filter((reply) => (reply.status ?? 0) >= 500 && !silent.includes(reply)),
      'no 5xx',
      (one, count) => `${count} of ${IDENTICAL}, such as ${tell(one)}`,
      { cause: 'Those that lose the race violate the constraint, and nobody handles that.' },
    );
    const taken = replies.filter(isSuccess);
    t.must(taken.length > 0, 'at least one 200', replies[0], {
      got: replies.map((reply) => reply.status ?? 'none').join(', '),
    });
    const ids = taken.map((reply) => show(recordOf(reply)?.['payment_id']));
    t.none(
      taken.filter((_, place) => ids[place] !== ids[0]),
      'one payment_id in all responses',
      () => `${new Set(ids).size} payment_ids in ${taken.length} responses`,
    );
  },
};

/** The fields that say whose payment it is. */
const OWNER_FIELDS = ['platform_payment_id', 'biller_id', 'account_id', 'amount_in_cents'] as const;

const p30: PartnerCase = {
  id: 'P30',
  title: 'A known id under another account or biller creates no second payment',
  clauses: ['PF2'],
  likely_cause: 'The unique constraint is on the account and the id instead of on the id.',
  creates: uses(30),
  async run(t) {
    const { intent, record: first } = await t.accept(30);
    const { payment_id } = first;
    const { other, unknown } = t.target.accounts;
    const account_id = other ?? unknown;
    const put = await t.put(intent, { account_id });
    const under = await t.read(intent, { account_id });
    const hasBiller = t.target.paths.put_account_payment?.includes('{biller_id}') === true;
    const elsewhere = hasBiller
      ? [await t.repeat(intent, { biller_id: NO_BILLER, burst: true })]
      : [];
    for (const reply of [put, under, ...elsewhere].filter(holdsPayment)) {
      if (!t.equals(reply, 'payment_id', payment_id, { note: ', or a refusal' })) return;
    }
    if (recordOf(put) !== undefined) {
      const expected = `the stored payment, with account_id ${show(first['account_id'])}`;
      unchanged(t, first, put, OWNER_FIELDS, expected, { clause: 'RU5' });
    }
    t.strict(under.status === 404, '404: a payment is found only under its own account', under);
    const read = await t.read(intent);
    t.equals(read, 'payment_id', payment_id, { note: ' under its own account' });
  },
};

/** Delay between sending the request and cutting the connection: none, and while the server works on the request. */
const CUTS_MS = [0, 30];

const p34: PartnerCase = {
  id: 'P34',
  title: 'A retry after a lost response creates no second payment',
  clauses: ['RU5', 'S4'],
  likely_cause: 'The id is stored only after the response has been sent.',
  creates: uses(34),
  async run(t: PartnerContext) {
    const intent = t.intend(34);
    for (const cut_ms of CUTS_MS) await t.put(intent, { cut_ms });
    const between = recordOf(await t.read(intent));
    const reply = await t.put(intent);
    const isTaken = t.must(recordOf(reply) !== undefined, '200 with the payment', reply);
    if (!isTaken || between === undefined) return;
    const note = ', as read after the lost response';
    t.equals(reply, 'payment_id', between['payment_id'], { note });
  },
};

/** Connections over which the payment is put and read again. */
const CONNECTIONS = 8;

const p63: PartnerCase = {
  id: 'P63',
  title: 'A payment is known on every connection once one has accepted it',
  clauses: ['RU5', 'PF2', 'B5'],
  // When little else is sent: a replica that lags by a second would catch up while reads wait for their turn.
  stage: 'last',
  likely_cause: 'Each process has a memory of its own, or reads go to a lagging replica.',
  creates: uses(64),
  async run(t: PartnerContext) {
    const { intent, record } = await t.accept(64, { fresh: true });
    for (const send of ['read', 'put', 'read'] as const) {
      const replies = await Promise.all(
        Array.from({ length: CONNECTIONS }, () => t[send](intent, { fresh: true })),
      );
      const clause = send === 'put' ? 'RU5' : 'B5';
      for (const reply of replies) {
        if (!isAnswer(t, reply)) return;
        if (!t.equals(reply, 'payment_id', record['payment_id'], { clause })) return;
      }
    }
  },
};

/** Maximum time until the server answers again. */
const BACK_WITHIN_MS = 60_000;

/** Payments that are put and read again. */
const MOST = 10;

const p66: PartnerCase = {
  id: 'P66',
  title: 'Payments survive a restart',
  clauses: ['PF2', 'RU5', 'RU3', 'PF1'],
  stage: 'restart',
  likely_cause: 'Payments, ids, the posting queue or the last number issued are in memory.',
  creates: (target) =>
    target.restart_command === undefined ? [] : [own(target, 67), own(target, 68), own(target, 69)],
  async run(t: PartnerContext) {
    const { restart } = t.run.options;
    t.given(restart !== undefined, 'the target declares no restart_command');
    const known: { readonly intent: Intent; readonly before: PaymentFields }[] = [];
    for (const { intent } of t.run.accepted().slice(-MOST)) {
      const before = recordOf(await t.read(intent));
      if (before !== undefined) known.push({ intent, before });
    }
    t.given(known.length > 0, 'no payment was accepted (see P20)');
    const open = t.intend(67);
    const isOpen = recordOf(await t.put(open)) !== undefined;
    await restart();
    const deadline = t.run.now() + BACK_WITHIN_MS;
    let back = await t.readAccount();
    while (!isSuccess(back) && t.run.now() < deadline) {
      await t.run.sleep(t.run.pace.poll_first_ms);
      t.run.wire.forgive();
      await t.run.dropAccess();
      back = await t.readAccount();
    }
    t.given(isSuccess(back), `the server did not come back: ${tell(back)}`);
    for (const { intent, before } of known) {
      const fields = isTerminalWord(before['status']) ? ENDED_FIELDS : LASTING_FIELDS;
      const read = await t.read(intent);
      const put = await t.put(intent);
      const expected = `the payment with payment_id ${show(before['payment_id'])}, as before the restart`;
      for (const reply of isSuccess(put) ? [read, put] : [read]) {
        if (!unchanged(t, before, reply, fields, expected)) return;
      }
    }
    // P60 compares the payment_ids of all payments of the run, and P62 the balance.
    for (const offset of [68, 69]) await t.put(t.intend(offset));
    if (isOpen) await stillEnds(t, open);
  },
};

/** A payment accepted just before the restart must end as if there had been none. */
async function stillEnds(t: PartnerContext, intent: Intent): Promise<void> {
  const { run } = t;
  const { terminal_window_seconds: declared } = t.target;
  if (run.endsLater || declared === undefined) return;
  const deadline = run.now() + run.window_ms;
  for (;;) {
    const read = await t.read(intent);
    if (isTerminalWord(recordOf(read)?.['status'])) return;
    const expected = `a terminal status within ${declared} s for the payment accepted before the restart`;
    const isInTime = t.must(read.sent < deadline, expected, read, { clause: 'RU3' });
    if (!isInTime) return;
    await run.sleep(run.pace.poll_first_ms);
  }
}

export const PUT_RACES = [p27, p30, p34, p63, p66];
