/**
 * Checks of PUTs that meet each other, a cut connection, another replica or a restart (P27, P30, P34, P63, P64, P66): the places where
 * code that works one request at a time makes a second payment, or loses one.
 */
import type { Draft, PartnerCase } from '../check/check.ts';
import { isOut, isSuccess, type Reply, show, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  differences,
  holdsPayment,
  instruction,
  type Intent,
  isTerminalWord,
  type PaymentFields,
  recordOf,
  tellDifferences,
} from '../check/payment-fields.ts';
import { NO_BILLER, own, uses } from '../check/planned-payments.ts';
import { CONTROLS, oneEffect } from './balance.ts';
import { ENDED_FIELDS, isAnswer, LASTING_FIELDS, unchanged } from './shared.ts';

/** Concurrent PUTs, and those of a second payment. */
const PARALLEL_P27 = 100;
const FEW = 3;

const p27: Draft<PartnerCase> = {
  id: 'P27',
  title: 'A hundred concurrent identical PUTs create one payment',
  clauses: ['RU5', 'PF2'],
  sends: `${PARALLEL_P27} concurrent identical PUTs with one new id, each over its own connection`,
  likely_cause:
    'The server looks up the id and then inserts without a unique constraint: concurrent retries race between the two steps.',
  creates: uses(...CONTROLS, 27, 270),
  async run(t) {
    const intent = t.ownPayment(27);
    t.run.spend(intent);
    // P60 compares how repeated payments end with the others: one alone might have failed for another reason.
    const second = t.intend(270);
    t.run.spend(second);
    // In one burst, because nothing else is sent meanwhile: at a slow server each one costs the run seconds.
    const all = await t.burst(
      Array.from(
        { length: PARALLEL_P27 + FEW },
        (_, place) => () => t.put(place < PARALLEL_P27 ? intent : second, { burst: true }),
      ),
    );
    const replies = all.slice(0, PARALLEL_P27);
    const silent = replies.filter(({ exchange }) => isOut(exchange));
    t.should(silent[0] === undefined, 'a response to each request', silent[0], {
      got: `${silent.length} of ${PARALLEL_P27} got none, such as ${silent[0] === undefined ? '' : tell(silent[0])}`,
      cause: 'The server, or a proxy in front of it, accepts fewer concurrent connections.',
    });
    const broken = replies.filter(
      ({ status, exchange }) => status !== undefined && status >= 500 && !isOut(exchange),
    );
    t.must(broken[0] === undefined, 'no 5xx', broken[0], {
      got: `${broken.length} of ${PARALLEL_P27}, such as ${broken[0] === undefined ? '' : tell(broken[0])}`,
      cause:
        'The requests that lose the race violate the unique constraint, and the server does not handle that error.',
    });
    const taken = replies.filter(isSuccess);
    const first = taken[0];
    t.must(first !== undefined, 'at least one 200', replies[0], {
      got: replies.map((reply) => reply.status ?? 'none').join(', '),
    });
    const ids = new Set(taken.map((reply) => show(recordOf(reply)?.['payment_id'])));
    const other = taken.find(
      (reply) =>
        show(recordOf(reply)?.['payment_id']) !== show(first && recordOf(first)?.['payment_id']),
    );
    t.must(ids.size <= 1, `one payment_id in all responses`, other, {
      got: `${ids.size} payment_ids in ${taken.length} responses`,
    });
  },
  atEnd: (t) => oneEffect(t, t.ownPayment(27)),
};

/** New ids that are put to two accounts concurrently. */
const RACES = 3;

/** The fields that say whose payment it is. */
const OWNER_FIELDS = ['platform_payment_id', 'biller_id', 'account_id', 'amount_in_cents'] as const;

const p30: Draft<PartnerCase> = {
  id: 'P30',
  title: 'A known id under another account or biller creates no second payment',
  clauses: ['PF2'],
  decisions: [9],
  sends: `PUT payment, then PUT with the same id under the path of another account and of a biller that does not exist, then GET under both accounts; then ${RACES} new ids, each put to both accounts concurrently`,
  likely_cause:
    'The unique constraint is on (account_id, platform_payment_id) instead of platform_payment_id.',
  creates: (target) => [
    own(target, 30),
    ...(target.accounts.other === undefined
      ? []
      : Array.from({ length: RACES }, (_, place) => own(target, 300 + place))),
  ],
  async run(t: PartnerContext) {
    const { intent, record: first } = await t.accept(30);
    const account_id = t.target.accounts.other ?? t.target.accounts.unknown;
    const put = await t.put(intent, { account_id });
    const under = await t.read(intent, { account_id });
    const elsewhere =
      t.target.paths.put_account_payment?.includes('{biller_id}') === true
        ? [await putTo(t, intent, intent.account_id, NO_BILLER)]
        : [];
    for (const reply of [put, under, ...elsewhere]) {
      const alone = t.must(
        !holdsPayment(reply) || recordOf(reply)?.['payment_id'] === first['payment_id'],
        `a refusal, or payment_id ${show(first['payment_id'])}`,
        reply,
      );
      if (!alone) return;
    }
    const shown = recordOf(put);
    const changed = shown === undefined ? [] : differences(first, shown, OWNER_FIELDS);
    t.must(
      changed.length === 0,
      `the stored payment, with account_id ${show(first['account_id'])}`,
      put,
      {
        got: tellDifferences(first, put, OWNER_FIELDS),
        clause: 'RU5',
        cause: 'The response repeats the account of the path instead of the stored one.',
      },
    );
    t.strict(under.status === 404, '404: a payment is found only under its own account', under);
    const read = await t.read(intent);
    t.must(
      recordOf(read)?.['payment_id'] === first['payment_id'],
      `payment_id ${show(first['payment_id'])} under its own account`,
      read,
    );
    const { other } = t.target.accounts;
    if (other === undefined) return;
    const intents = Array.from({ length: RACES }, (_, place) => t.intend(300 + place));
    for (const intent of intents) t.run.spend(intent);
    // In one burst, because nothing else is sent meanwhile: at a slow server each one costs the run seconds.
    const puts = await t.burst(
      intents.flatMap((intent) =>
        [intent.account_id, other].map((account_id) => () => putTo(t, intent, account_id)),
      ),
    );
    await Promise.all(
      intents.map((intent, place) =>
        judgeRace(t, intent, other, puts.slice(2 * place, 2 * place + 2)),
      ),
    );
  },
};

/** Not t.put, which would note the first response as that of the intent's own account. */
function putTo(
  t: PartnerContext,
  intent: Intent,
  account_id: string,
  biller_id = t.target.biller_id,
): Promise<Reply> {
  return t.call(
    'put_account_payment',
    { biller_id, account_id, platform_payment_id: intent.platform_payment_id },
    {
      body: instruction(intent),
      headers: { 'content-type': 'application/json' },
      burst: true,
    },
  );
}

/** After one new id was put to two accounts concurrently: at most one of the two requests created a payment. */
async function judgeRace(
  t: PartnerContext,
  intent: Intent,
  other: string,
  puts: readonly Reply[],
): Promise<void> {
  const accounts = [intent.account_id, other];
  const { platform_payment_id } = intent;
  const reads: Reply[] = [];
  for (const account_id of accounts) {
    reads.push(await t.call('get_account_payment', { account_id, platform_payment_id }));
  }
  const [own_read, other_read] = reads;
  const isOwn = own_read !== undefined && holdsPayment(own_read);
  if (!isOwn && other_read !== undefined && holdsPayment(other_read)) {
    t.run.moved({ ...intent, account_id: other });
  }
  const found = [...puts, ...reads].filter(holdsPayment);
  const ids = new Set(found.map((reply) => show(recordOf(reply)?.['payment_id'])));
  const last = found.at(-1);
  t.must(
    ids.size <= 1,
    'one payment_id after concurrent PUTs of one new id to two accounts',
    last,
    {
      got: `the payment_ids ${[...ids].join(', ')}`,
      cause:
        'The id is checked under a lock of the account, without a unique constraint on the id.',
    },
  );
}

/** Delay between sending the request and cutting the connection: none, and while the server works on the request. */
const CUTS_MS = [0, 30];

const p34: Draft<PartnerCase> = {
  id: 'P34',
  title: 'A retry after a lost response creates no second payment',
  clauses: ['RU5', 'S4'],
  sends: `PUT payment, closing the connection before the response (${CUTS_MS.length} times), then the identical PUT`,
  likely_cause: 'The id is stored only after the response has been sent.',
  creates: uses(...CONTROLS, 34),
  async run(t) {
    const intent = t.ownPayment(34);
    for (const wait of CUTS_MS) await t.putAndCut(intent, wait);
    const between = recordOf(await t.read(intent));
    const reply = await t.put(intent);
    const record = recordOf(reply);
    const taken = t.must(record !== undefined, '200 with the payment', reply);
    if (taken && between !== undefined) {
      t.must(
        record?.['payment_id'] === between['payment_id'],
        `payment_id ${show(between['payment_id'])}, as read after the lost response`,
        reply,
      );
    }
  },
  atEnd: (t) => oneEffect(t, t.ownPayment(34)),
};

/** Connections over which the payment is put and read again. */
const CONNECTIONS = 8;

/** Payments that are followed to their end, each read over a new connection. */
const FOLLOWED = 6;

/** Reads in a row once a followed payment has ended: a lagging replica may answer every second or third. */
const IN_A_ROW = 3;

/** Longest wait for the end of a followed payment. */
const LONGEST_MS = 15_000;

/** How long a payment is read on after its end, in first gaps between two polls (Pace). */
const GAPS_AFTER_THE_END = 10;

/** The gap between two reads grows to this many first gaps. */
const WIDEST_GAP = 3;

const p63: Draft<PartnerCase> = {
  id: 'P63',
  title: 'A payment is known on every connection once one has accepted it',
  clauses: ['RU5', 'PF2', 'B5', 'RU2'],
  // When little else is sent: a replica that lags by a second would catch up while reads wait for their turn.
  stage: 'last',
  sends: `PUT payment; then GET and the identical PUT, each over ${CONNECTIONS} new connections; ${FOLLOWED} more payments are read until after they end, each time over a new connection`,
  likely_cause:
    'Each process keeps ids or responses in its own memory, or reads go to a lagging replica.',
  creates: (target) => [
    own(target, 64),
    ...Array.from({ length: FOLLOWED }, (_, place) => own(target, 340 + place)),
  ],
  async run(t: PartnerContext) {
    await Promise.all([
      sameEverywhere(t),
      ...Array.from({ length: FOLLOWED }, (_, place) => follow(t, place)),
    ]);
  },
};

async function sameEverywhere(t: PartnerContext): Promise<void> {
  const intent = t.intend(64);
  const payment_id = recordOf(await t.put(intent, { fresh: true }))?.['payment_id'];
  t.given(payment_id !== undefined, 'no new payment was accepted (see P20)');
  const several = (send: () => ReturnType<typeof t.read>) =>
    Promise.all(Array.from({ length: CONNECTIONS }, send));
  for (const reply of [
    ...(await several(() => t.read(intent, { fresh: true }))),
    ...(await several(() => t.put(intent, { fresh: true }))),
    ...(await several(() => t.read(intent, { fresh: true }))),
  ]) {
    if (!isAnswer(t, reply)) return;
    const same = t.must(
      recordOf(reply)?.['payment_id'] === payment_id,
      `200 with payment_id ${show(payment_id)}`,
      reply,
      { clause: reply.exchange.method === 'PUT' ? 'RU5' : 'B5' },
    );
    if (!same) return;
  }
}

/** Reads one payment over a new connection each time, until some time after its end: a terminal status must not be withdrawn. */
async function follow(t: PartnerContext, place: number): Promise<void> {
  const { run } = t;
  // One after another: a copy that is refreshed now and then must catch one of them while it is processing.
  await run.sleep(place * run.pace.poll_first_ms);
  const intent = t.intend(340 + place);
  const put = await t.put(intent, { fresh: true });
  if (recordOf(put) === undefined || run.endsLater) return;
  const first_ms = run.pace.poll_first_ms;
  let gap_ms = first_ms;
  let until = run.now() + Math.min(run.window_ms, LONGEST_MS);
  let end: PaymentFields | undefined;
  let in_a_row = 0;
  while (run.now() < until) {
    const read = await t.read(intent, { fresh: true });
    if (!isAnswer(t, read)) return;
    const record = recordOf(read);
    if (end !== undefined) {
      const expected = `the payment as it ended, status ${show(end['status'])}, on every connection`;
      const same = unchanged(t, end, read, ENDED_FIELDS, expected, {
        clause: 'RU2',
        cause: 'Each replica has its own response cache, or reads from a lagging copy.',
      });
      if (!same) return;
    } else if (record !== undefined && isTerminalWord(record['status'])) {
      end = record;
      until = run.now() + GAPS_AFTER_THE_END * first_ms;
      gap_ms = first_ms;
      in_a_row = IN_A_ROW;
    }
    if (in_a_row > 0) {
      in_a_row -= 1;
      continue;
    }
    // Payments at different phases: replicas that cache for a fixed time do not all forget at once.
    await run.sleep(gap_ms * (1 + place / FOLLOWED));
    gap_ms = Math.min(gap_ms * 1.2, first_ms * WIDEST_GAP);
  }
}

/** Concurrent payments. */
const PARALLEL_P64 = 20;

const p64: Draft<PartnerCase> = {
  id: 'P64',
  title: 'Concurrent different payments are not mixed up',
  clauses: ['PF2', 'ID1'],
  sends: `${PARALLEL_P64} concurrent PUTs of different payments, then concurrent GETs of all of them`,
  likely_cause:
    'Requests share state and overwrite it, such as a global variable or a field of a shared handler object.',
  creates: (target) =>
    Array.from({ length: PARALLEL_P64 }, (_, number) => own(target, 200 + number)),
  async run(t: PartnerContext) {
    const intents = Array.from({ length: PARALLEL_P64 }, (_, number) => t.intend(200 + number));
    for (const intent of intents) t.run.spend(intent);
    const puts = await t.burst(intents.map((intent) => () => t.put(intent, { burst: true })));
    const taken = intents.filter((_, place) => {
      const put = puts[place];
      return put !== undefined && isSuccess(put);
    });
    t.given(taken.length > 0, 'none of the concurrent payments was accepted');
    const reads = await t.burst(intents.map((intent) => () => t.read(intent, { burst: true })));
    const seen = new Map<string, string>();
    for (const [place, intent] of intents.entries()) {
      for (const reply of [puts[place], reads[place]]) {
        if (reply === undefined || !isSuccess(reply)) continue;
        const record = recordOf(reply);
        const own = t.must(
          record?.['platform_payment_id'] === intent.platform_payment_id &&
            record['amount_in_cents'] === intent.amount_in_cents,
          `the payment ${intent.platform_payment_id} of ${intent.amount_in_cents} cents`,
          reply,
        );
        if (!own) return;
        const payment_id = show(record?.['payment_id']);
        const other = seen.get(payment_id) ?? intent.platform_payment_id;
        t.must(
          other === intent.platform_payment_id,
          'a distinct payment_id for each payment',
          reply,
          {
            got: `payment_id ${payment_id} for ${other} and for ${intent.platform_payment_id}`,
            clause: 'PF1',
          },
        );
        seen.set(payment_id, intent.platform_payment_id);
      }
    }
  },
};

/** Maximum time until the server answers again. */
const BACK_WITHIN_MS = 60_000;

/** Payments that are put and read again. */
const MOST = 10;

const p66: Draft<PartnerCase> = {
  id: 'P66',
  title: 'Payments survive a restart',
  clauses: ['PF2', 'RU5', 'RU3', 'PF1'],
  stage: 'restart',
  sends: `PUT payment; then, after a restart of the server under test, GET and the identical PUT of up to ${MOST} payments, GET of the first one until it ends, and PUT of two new payments`,
  likely_cause:
    'Payments, idempotency keys, the posting queue or the last number issued are kept in memory, in a cache, or in a file that is not synced to disk.',
  creates: (target) =>
    target.restart_command === undefined ? [] : [own(target, 67), own(target, 68), own(target, 69)],
  async run(t: PartnerContext) {
    const { restart } = t.run;
    t.given(
      restart !== undefined,
      'the target declares no restart_command, and --restart was not given',
    );
    const known: { readonly intent: Intent; readonly before: PaymentFields }[] = [];
    for (const { intent } of t.run.intents
      .filter(({ first }) => first !== undefined)
      .slice(-MOST)) {
      const before = recordOf(await t.read(intent));
      if (before !== undefined) known.push({ intent, before });
    }
    t.given(known.length > 0, 'no payment was accepted (see P20)');
    const open = t.intend(67);
    const taken = recordOf(await t.put(open)) !== undefined;
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
    if (taken) await stillEnds(t, open);
  },
};

/** A payment accepted just before the restart must end as if there had been none. */
async function stillEnds(t: PartnerContext, intent: Intent): Promise<void> {
  const { run, target } = t;
  if (run.endsLater || target.terminal_window_seconds === undefined) return;
  const deadline = run.now() + run.window_ms;
  for (;;) {
    const read = await t.read(intent);
    if (isTerminalWord(recordOf(read)?.['status'])) return;
    if (run.now() >= deadline) {
      t.must(
        false,
        `a terminal status within ${target.terminal_window_seconds} s for the payment accepted before the restart`,
        read,
        {
          clause: 'RU3',
          cause: 'The posting queue is in memory, and the server does not rebuild it at startup.',
        },
      );
      return;
    }
    await run.sleep(run.pace.poll_first_ms);
  }
}

export const PUT_RACES = [p27, p30, p34, p63, p64, p66];
