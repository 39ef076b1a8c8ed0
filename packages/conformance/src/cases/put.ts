/**
 * Checks of one PUT (P20 to P24, P36 to P42): what a new payment's record must say, and which bodies must be refused. Whoever takes
 * an amount wrongly here moves the wrong money.
 */
import { isPaymentStatus } from '@duebridge/contract';
import type { Draft, PartnerCase } from '../check/check.ts';
import type { Severity } from '../check/findings.ts';
import { isJson, isRefusal, isSuccess, show, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  holdsPayment,
  instantOf,
  instruction,
  type Intent,
  isTerminalWord,
  recordOf,
} from '../check/payment-fields.ts';
import {
  BEYOND_24_BITS,
  BEYOND_32_BITS,
  own,
  type Planned,
  sharedAll,
  type SharedName,
  uses,
} from '../check/planned-payments.ts';
import type { PartnerTarget } from '../check/target.ts';
import { finallyRefused, isText, statusOf } from './shared.ts';

const p20: Draft<PartnerCase> = {
  id: 'P20',
  title: 'A new payment is accepted',
  clauses: ['B4', 'PF1', 'PF2', 'PF3', 'PF4'],
  decisions: [3],
  sends: 'PUT payment with a new id',
  likely_cause:
    'The server answers 201 or 202, does not store the batch id, or uses its own status names.',
  creates: uses('first'),
  async run(t) {
    const { intent, put } = await t.subject();
    const record = recordOf(put);
    const read = t.must(
      put.status === 200 && isJson(put) && record !== undefined,
      '200 with a JSON object',
      put,
      { got: `${tell(put)}${put.json_problem === undefined ? '' : ` (${put.json_problem})`}` },
    );
    if (!read) return;
    t.field(put, 'payment_id', 'payment_id, a non-empty string', isText);
    for (const name of ['platform_payment_id', 'platform_batch_id'] as const) {
      t.field(put, name, `${name} ${show(intent[name])}`, (value) => value === intent[name]);
    }
    const place = { biller_id: t.target.biller_id, account_id: intent.account_id };
    for (const [name, wanted] of Object.entries(place)) {
      const isOwn = (value: unknown): boolean => value === undefined || value === wanted;
      const more = { severity: 'should', clause: 'PF9' } as const;
      if (t.profile === 'strict') t.field(put, name, `${name} ${show(wanted)}`, isOwn, more);
    }
    t.field(put, 'status', 'status processing, succeeded, failed or canceled', isPaymentStatus);
  },
};

const p21: Draft<PartnerCase> = {
  id: 'P21',
  title: 'A payment starts as processing',
  clauses: ['RU1', 'ST1'],
  severity: 'should',
  sends:
    'PUT payment with a new id (the payment of P20); the first responses to the other payments of this run are examined too',
  likely_cause:
    'The payment is posted within the request, and the response shows only its final status.',
  creates: uses('first'),
  atEnd: otherPayments,
  async run(t) {
    const { subject, record } = await t.accepted();
    const should = (name: string, expected: string, holds: (value: unknown) => boolean) =>
      t.field(subject.put, name, expected, holds, { severity: 'should' });
    should(
      'status',
      'status processing in the response to the first PUT',
      (status) => status === 'processing',
    );
    if (record['status'] === 'succeeded') {
      should('posted_at', 'posted_at set, because the payment has already succeeded', isText);
    }
    if (record['status'] === 'failed') {
      should(
        'failure_reason',
        'failure_reason set, because the payment has already failed',
        isText,
      );
    }
  },
};

/** Checks whose first response may be a repeat: the first request was cut off, or many were sent together. */
const MAY_BE_REPEATS: readonly string[] = ['P27', 'P34', 'P63'];

/** A server may treat the first payment of an account differently from the next. */
async function otherPayments(t: PartnerContext): Promise<void> {
  if (t.all.length > 0) return;
  const others = t.run.intents.flatMap(({ first }) =>
    first === undefined || MAY_BE_REPEATS.includes(first.reply.exchange.check) ? [] : [first],
  );
  const ended = others.filter(
    ({ reply, record }) => reply.exchange.burst !== true && isTerminalWord(record['status']),
  );
  const [one] = ended;
  t.should(
    one === undefined,
    'status processing in the response to the first PUT of every payment',
    one?.reply,
    {
      got:
        one === undefined
          ? ''
          : `status ${statusOf(one.record)} (${ended.length} of ${others.length} payments)`,
    },
  );
}

/** Allowed difference between two clocks (decision 12). */
const SKEW_MS = 5 * 60_000;

const p22: Draft<PartnerCase> = {
  id: 'P22',
  title: 'initiated_at has a time zone',
  clauses: ['PF7'],
  decisions: [12],
  sends: 'PUT payment with a new id (the payment of P20)',
  likely_cause: 'The time is local time without an offset, or seconds since 1970.',
  creates: uses('first'),
  async run(t) {
    const { put } = (await t.accepted()).subject;
    const isRead = t.field(
      put,
      'initiated_at',
      'initiated_at such as 2026-03-01T09:30:00.000Z',
      (value) => instantOf(value) !== undefined,
    );
    if (!isRead) return;
    t.field(
      put,
      'initiated_at',
      `within five minutes of ${new Date(put.sent).toISOString()}`,
      (value) => Math.abs((instantOf(value) ?? 0) - put.sent) <= SKEW_MS,
      { severity: 'should' },
    );
  },
};

const p23: Draft<PartnerCase> = {
  id: 'P23',
  title: 'posted_at is null while a payment is processing',
  clauses: ['PF8', 'ST1'],
  sends: 'PUT payment with a new id, then GET until it ends (the payment of P20)',
  likely_cause: 'posted_at is set when the row is inserted, or holds an expected date.',
  creates: uses('first'),
  async run(t: PartnerContext) {
    const { subject } = await t.accepted();
    const life = await t.end(subject.intent);
    const seen = [subject.put, subject.read, ...life.reads.map(({ reply }) => reply)].filter(
      (reply) => recordOf(reply)?.['status'] === 'processing',
    );
    t.given(seen.length > 0, 'the payment was never seen processing');
    for (const reply of seen) {
      const holds =
        t.field(
          reply,
          'posted_at',
          'posted_at null while processing',
          (at) => (at ?? null) === null,
        ) &&
        t.field(reply, 'posted_at', 'posted_at present, and null', (at) => at === null, {
          severity: 'should',
        });
      if (!holds) return;
    }
  },
};

const p24: Draft<PartnerCase> = {
  id: 'P24',
  title: 'Small, odd and large amounts are kept exactly',
  clauses: ['PF6', 'LI1', 'S5'],
  sends: `PUT payment of 1 cent, of ${BEYOND_24_BITS}, of ${BEYOND_32_BITS}, and of the declared maximum, within the declared limits`,
  likely_cause: 'The amount is stored in 32 bits, as a floating-point number, or in dollars.',
  creates: amounts,
  async run(t) {
    const { limits, spending_cap_in_cents: cap } = t.target;
    if (limits.max_amount_in_cents === undefined && cap === undefined) {
      t.wanting.push(
        'large amounts were not tried: declare limits.max_amount_in_cents or spending_cap_in_cents',
      );
    }
    for (const planned of amounts(t.target)) {
      const intent = t.intend(planned);
      const put = await t.put(intent);
      if (isRefusal(put)) {
        t.should(
          false,
          `${intent.amount_in_cents} cents accepted, even if the payment fails later`,
          put,
        );
        continue;
      }
      for (const reply of [put, await t.read(intent)]) {
        const { amount_in_cents: wanted } = intent;
        const isExact = (cents: unknown): boolean => cents === wanted;
        if (!t.field(reply, 'amount_in_cents', `amount_in_cents ${wanted}`, isExact)) break;
      }
    }
  },
};

function amounts(target: PartnerTarget): readonly Planned[] {
  const { min_amount_in_cents: min, max_amount_in_cents: max } = target.limits;
  // Do not ask for a large amount when the target declares neither its limits nor a spending cap.
  const bounded = max !== undefined || target.spending_cap_in_cents !== undefined;
  const large = bounded ? [BEYOND_24_BITS, BEYOND_32_BITS, max ?? BEYOND_32_BITS] : [];
  const fit = large.filter((cents) => cents > min && cents <= (max ?? Infinity));
  return [...new Set([min, ...fit])].map((amount_in_cents) => ({
    amount_in_cents,
    account_id: target.accounts.payable,
  }));
}

/** Amounts as written in the body, with the severity of accepting each. */
const AMOUNTS: readonly {
  readonly source: string | undefined;
  readonly severity: Severity | 'strict';
}[] = [
  { source: '"100"', severity: 'must' },
  { source: '10.5', severity: 'must' },
  { source: undefined, severity: 'must' },
  { source: '0', severity: 'should' },
  { source: '-1', severity: 'should' },
  { source: 'null', severity: 'strict' },
  { source: 'true', severity: 'strict' },
  { source: '1e2', severity: 'strict' },
];

const p36: Draft<PartnerCase> = {
  id: 'P36',
  title: 'Amounts that are not a positive integer of cents are refused',
  clauses: ['S5', 'PF6'],
  decisions: [11],
  sends:
    'PUT payment with amount_in_cents "100", 10.5, missing, 0 and -1, each with a new id; then one of the refused ids with a valid amount',
  likely_cause: 'A framework converts strings and fractions to integers before validation.',
  creates: (target) => AMOUNTS.map(() => own(target, 0)),
  async run(t) {
    const amounts = AMOUNTS.filter(
      ({ severity }) => severity !== 'strict' || t.profile === 'strict',
    );
    // Side by side: each has an id of its own.
    const tried = await Promise.all(
      amounts.map(async ({ source, severity }) => {
        const intent = t.intend(0);
        const amount = source === undefined ? '' : `"amount_in_cents":${source},`;
        const put = await t.put(intent, {
          body: `{${amount}"platform_batch_id":"${intent.platform_batch_id}","platform_payment_id":"${intent.platform_payment_id}"}`,
        });
        const read = isRefusal(put) ? await t.read(intent) : undefined;
        return { source, severity, intent, put, read };
      }),
    );
    for (const { source, severity, put, read } of tried) {
      const raise = severity === 'must' ? t.must.bind(t) : t.should.bind(t);
      raise(
        read !== undefined,
        `a refusal of ${source === undefined ? 'a body without amount_in_cents' : `amount_in_cents ${source}`}`,
        put,
      );
      if (read === undefined) continue;
      finallyRefused(t, put);
      raise(!holdsPayment(read), 'no payment under the refused id', read);
    }
    await correctsTheFirst(
      t,
      tried.flatMap(({ intent, read }) =>
        read === undefined || holdsPayment(read) ? [] : [intent],
      ),
    );
  },
};

/** A refused request was not accepted, so the id is still new (ST1). */
async function correctsTheFirst(t: PartnerContext, refused: readonly Intent[]): Promise<void> {
  const [intent] = refused;
  if (intent === undefined) return;
  const put = await t.put(intent);
  const isBusy = put.status === undefined || put.status === 429 || put.status >= 500;
  t.should(isBusy || isSuccess(put), '200 for the refused id with a valid amount', put, {
    clause: 'ST1',
    cause: 'The id is stored as seen before the request is validated.',
  });
}

const p37: Draft<PartnerCase> = {
  id: 'P37',
  title: 'A body whose id differs from the path is refused',
  clauses: ['PF2'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment with a platform_payment_id in the body that differs from the one in the path',
  likely_cause: 'The server silently uses one of the two.',
  creates: uses(37),
  async run(t) {
    const intent = t.intend(37);
    const other = t.intend(37);
    const put = await t.put(intent, { fields: { platform_payment_id: other.platform_payment_id } });
    t.should(isRefusal(put), 'a refusal, such as 400', put);
    if (!isRefusal(put)) return;
    finallyRefused(t, put);
    for (const made of [intent, other])
      await t.notMade(made, 'should', 'no payment under either id');
  },
};

const p38: Draft<PartnerCase> = {
  id: 'P38',
  title: 'Unknown fields are ignored',
  clauses: ['PF9', 'VE1'],
  decisions: [2, 17],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment with an extra field in its body',
  likely_cause: 'The schema forbids additional properties.',
  creates: uses(38),
  async run(t) {
    const reply = await t.put(t.intend(38), {
      fields: { a_field_of_tomorrow: 'duebridge' },
    });
    t.should(reply.status === 200, '200', reply);
  },
};

const p39: Draft<PartnerCase> = {
  id: 'P39',
  title: 'A body that is not a JSON object, or not declared as JSON, is refused',
  clauses: ['ER3'],
  decisions: [5],
  severity: 'should',
  sends:
    'PUT payment with a truncated body, with content type text/plain, and with an array, null or a string as the body',
  likely_cause: 'The body is taken as it comes: any type of content, and any value that is JSON.',
  creates: (target) => Array.from({ length: 5 }, () => own(target, 39)),
  async run(t) {
    const cut = t.intend(39);
    const typed = t.intend(39);
    const others = ['[]', 'null', '"pay"'];
    const halves = instruction(cut);
    const tries = [
      { intent: cut, change: { body: halves.slice(0, halves.length / 2) } },
      { intent: typed, change: { headers: { 'content-type': 'text/plain' } } },
      ...others.map((body) => ({ intent: t.intend(39), change: { body } })),
    ];
    // Side by side: each has an id of its own.
    const tried = await Promise.all(
      tries.map(async ({ intent, change }) => {
        const put = await t.put(intent, change);
        const isRight = put.status === 400 || put.status === 415;
        return { put, read: isRight ? await t.read(intent) : undefined };
      }),
    );
    for (const { put, read } of tried) {
      t.should(read !== undefined, '400 or 415', put, {
        ...((put.status ?? 0) >= 500 && { cause: 'The parser’s exception is returned as 500.' }),
      });
      if (read === undefined) continue;
      t.should(!holdsPayment(read), 'no payment under the refused id', read);
    }
  },
};

const p40: Draft<PartnerCase> = {
  id: 'P40',
  title: 'A payment to an unknown account never succeeds',
  clauses: ['FR1', 'ST3'],
  decisions: [10],
  sends: 'PUT payment under an account id that does not exist, then GET until it is terminal',
  likely_cause: 'The server does not look up the account before it reports the payment as posted.',
  creates: uses('unknown'),
  async run(t: PartnerContext) {
    const made = await t.sharedPayment('unknown');
    t.given(made !== undefined, 'the target declares no unknown account');
    if (isRefusal(made.put)) return;
    const taken = t.must(
      recordOf(made.put) !== undefined,
      'a refusal, or 200 with a payment that ends as failed',
      made.put,
    );
    if (!taken) return;
    await mustFail(t, made.intent, '');
  },
};

const NAMES: readonly SharedName[] = ['inactive', 'above'];

const WORDS: Partial<Record<SharedName, string>> = {
  inactive: 'the payment to the inactive account',
  above: 'the payment above the maximum',
};

const p41: Draft<PartnerCase> = {
  id: 'P41',
  title: 'A payment to an inactive account or above the maximum fails with a reason',
  clauses: ['FR1', 'ST3'],
  decisions: [10],
  sends:
    'PUT payment to the inactive account, and PUT payment of one cent above the declared maximum',
  likely_cause:
    'The rule is enforced in the biller’s user interface, not where payments are posted.',
  unfit: (target) =>
    sharedAll(target, NAMES).length === 0
      ? 'the target declares neither an inactive account nor a maximum'
      : undefined,
  creates: uses(...NAMES),
  async run(t) {
    for (const name of NAMES) {
      const made = await t.sharedPayment(name);
      if (made === undefined) continue;
      if (isRefusal(made.put)) {
        t.should(false, `${WORDS[name] ?? name}: 200, then status failed with a reason`, made.put, {
          cause:
            'The rule is enforced in request validation. The platform cannot tell such a refusal from an error of its own, so an operator has to investigate each one while the customer waits.',
        });
        continue;
      }
      const taken = recordOf(made.put) !== undefined;
      if (!t.must(taken, `${WORDS[name] ?? name}: 200 with a payment`, made.put)) continue;
      await mustFail(t, made.intent, `${WORDS[name] ?? name}: `);
    }
  },
};

/** Follows a payment that has to end as failed; `what` names it in front of the expectation. */
async function mustFail(t: PartnerContext, intent: Intent, what: string): Promise<void> {
  const { end, last } = await t.end(intent);
  if (end === undefined && (t.run.endsLater || t.target.terminal_window_seconds === undefined)) {
    throw t.notEnded();
  }
  t.must(
    end?.record['status'] === 'failed',
    `${what}status failed within ${t.run.window_ms / 1_000} s`,
    end?.reply ?? last,
    { got: end === undefined ? `it did not end: ${tell(last)}` : `status ${statusOf(end.record)}` },
  );
}

const p42: Draft<PartnerCase> = {
  id: 'P42',
  title: 'A payment without a batch id is refused',
  clauses: ['PF3'],
  decisions: [2],
  severity: 'should',
  profile: 'strict',
  sends: 'PUT payment without platform_batch_id',
  likely_cause:
    'Only the amount is validated; the missing batch id is noticed only at reconciliation.',
  creates: uses(42),
  async run(t) {
    const intent = t.intend(42);
    const put = await t.put(intent, { fields: { platform_batch_id: undefined } });
    const refused = t.should(
      isRefusal(put),
      'a refusal of a body without platform_batch_id, such as 400',
      put,
    );
    if (!refused) return;
    finallyRefused(t, put);
    await t.notMade(intent, 'should');
  },
};

export const PUTS = [p20, p21, p22, p23, p24, p36, p37, p38, p39, p40, p41, p42];
