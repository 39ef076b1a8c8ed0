/**
 * Checks of one PUT (P20 to P24, P36 to P41): what a new payment's record must say, and which bodies must be refused. Whoever takes
 * an amount wrongly here moves the wrong money.
 */
import { isPaymentStatus, isTerminal } from '@duebridge/contract';
import type { PartnerCase } from '../check/check.ts';
import type { Level } from '../check/findings.ts';
import { isJson, isRefusal, isSuccess, tell } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import {
  instantOf,
  instruction,
  type Intent,
  type PaymentFields,
  recordOf,
  BEYOND_24_BITS,
  BEYOND_32_BITS,
  type Planned,
  type SharedName,
  uses,
} from '../check/payment-fields.ts';
import type { PartnerTarget } from '../check/target.ts';
import { everyRecord, finallyRefused, isInstant, isText, SKEW_MS, statusOf } from './shared.ts';

const p20: PartnerCase = {
  id: 'P20',
  title: 'A new payment is accepted',
  clauses: ['B4', 'PF1', 'PF2', 'PF3', 'PF4'],
  likely_cause: 'The status is 201 or 202, the batch id is not stored, or words differ.',
  creates: uses('first'),
  async run(t) {
    const { intent, put } = await t.subject();
    const isRead = put.status === 200 && isJson(put) && recordOf(put) !== undefined;
    const problem = put.json_problem === undefined ? '' : ` (${put.json_problem})`;
    t.must(isRead, '200 with a JSON object', put, { got: `${tell(put)}${problem}` });
    if (!isRead) return;
    t.field(put, 'payment_id', 'payment_id, a non-empty string', isText);
    for (const name of ['platform_payment_id', 'platform_batch_id'] as const) {
      t.equals(put, name, intent[name]);
    }
    const place = { biller_id: t.target.biller_id, account_id: intent.account_id };
    for (const [name, wanted] of Object.entries(place)) {
      if (recordOf(put)?.[name] === undefined) continue;
      t.equals(put, name, wanted, { level: 'strict', clause: 'PF9' });
    }
    t.field(put, 'status', 'status processing, succeeded, failed or canceled', isPaymentStatus);
  },
};

const p21: PartnerCase = {
  id: 'P21',
  title: 'A payment starts as processing',
  clauses: ['RU1', 'ST1'],
  severity: 'should',
  likely_cause: 'The payment is posted within the request, which shows only its end.',
  creates: uses('first'),
  async run(t) {
    await t.accepted();
  },
  // A server may treat the first payment of an account differently from the next.
  async atEnd(t) {
    const firsts = t.run.accepted().map(({ first }) => first);
    const ended = firsts.filter(({ record }) => isTerminal(record['status']) && !began(record));
    // Times in whole seconds do not tell: then what most answers say counts, as some may have come after the end.
    t.none(
      ended.length > firsts.length / 2 ? ended.map(({ reply }) => reply) : [],
      'status processing in the response to the first PUT of every payment',
      (reply, count) =>
        `status ${statusOf(recordOf(reply) ?? {})} (${count} of ${firsts.length} payments)`,
      { level: 'should' },
    );
  },
};

/**
 * True when a record says itself that it was accepted before it was posted. An answer shows the payment as it is when the answer
 * leaves: a server that is slow to answer, or whose first answer was lost, may have posted it meanwhile.
 */
function began({ initiated_at, posted_at }: PaymentFields): boolean {
  return (instantOf(posted_at) ?? 0) > (instantOf(initiated_at) ?? Infinity);
}

const p22: PartnerCase = {
  id: 'P22',
  title: 'initiated_at has a time zone, and posted_at is null while a payment is processing',
  clauses: ['PF7', 'PF8', 'ST1'],
  stage: 'final',
  likely_cause: 'The time is local time without an offset, or seconds since 1970.',
  creates: uses('first'),
  async run(t) {
    const { put } = await t.accepted();
    const at = instantOf(recordOf(put)?.['initiated_at']) ?? put.sent;
    const near = `initiated_at within five minutes of ${new Date(put.sent).toISOString()}`;
    t.should(Math.abs(at - put.sent) <= SKEW_MS, near, put);
  },
  async atEnd(t) {
    const expected = 'initiated_at such as 2026-03-01T09:30:00.000Z';
    everyRecord(t, 'initiated_at', expected, (record) => isInstant(record['initiated_at']));
    const more = {
      clause: 'PF8',
      cause: 'posted_at is set when the row is inserted, or holds an expected date.',
    } as const;
    const isUnset = ({ status, posted_at }: PaymentFields): boolean =>
      status !== 'processing' || (posted_at ?? null) === null;
    everyRecord(t, 'posted_at', 'posted_at null while processing', isUnset, more);
  },
};

const p24: PartnerCase = {
  id: 'P24',
  title: 'Small, odd and large amounts are kept exactly',
  clauses: ['PF6', 'LI1', 'S5'],
  likely_cause: 'The amount is stored in 32 bits, as a floating-point number, or in dollars.',
  creates: amounts,
  async run(t) {
    const { limits, spending_cap_in_cents: cap } = t.target;
    if (limits.max_amount_in_cents === undefined && cap === undefined) {
      t.wanting.push('large amounts: declare limits.max_amount_in_cents or spending_cap_in_cents');
    }
    for (const planned of amounts(t.target)) {
      const intent = t.intend(planned);
      const { amount_in_cents: wanted } = intent;
      const put = await t.put(intent);
      const expected = `${wanted} cents accepted, even if the payment fails later`;
      if (!t.should(!isRefusal(put), expected, put)) continue;
      for (const reply of [put, await t.read(intent)]) {
        if (!t.equals(reply, 'amount_in_cents', wanted)) break;
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

/** A PUT that must be refused, and make no payment: what is wrong with it, and how it counts when it is taken. */
interface Bad {
  readonly what: string;
  readonly level?: Level;
  readonly change: (intent: Intent) => Parameters<PartnerContext['put']>[1];
}

/** Tries each with an id of its own, side by side. Returns the payments that were refused. */
async function refusesEach(
  t: PartnerContext,
  offset: number,
  bads: readonly Bad[],
): Promise<readonly Intent[]> {
  const tried = bads.map(async ({ what, level = 'must', change }) => {
    if (level === 'strict' && t.profile !== 'strict') return [];
    const intent = t.intend(offset);
    const put = await t.put(intent, change(intent));
    if (!t.refused(put, what, { level })) return [];
    if (put.status !== 415) finallyRefused(t, put);
    return (await t.notMade(intent, { level })) ? [intent] : [];
  });
  return (await Promise.all(tried)).flat();
}

/** A body with the amount written like this, or without one. */
const amountAs = (source: string | undefined, level?: Level): Bad => ({
  what: source === undefined ? 'a body without amount_in_cents' : `amount_in_cents ${source}`,
  ...(level && { level }),
  change({ platform_batch_id, platform_payment_id }) {
    const rest = JSON.stringify({ platform_batch_id, platform_payment_id }).slice(1);
    return { body: `{${source === undefined ? '' : `"amount_in_cents":${source},`}${rest}` };
  },
});

const AMOUNTS: readonly Bad[] = [
  ...['"100"', '10.5', undefined].map((source) => amountAs(source)),
  ...['0', '-1'].map((source) => amountAs(source, 'should')),
  ...['null', 'true', '1e2'].map((source) => amountAs(source, 'strict')),
];

const p36: PartnerCase = {
  id: 'P36',
  title: 'Amounts that are not a positive integer of cents are refused',
  clauses: ['S5', 'PF6'],
  likely_cause: 'A framework converts strings and fractions to integers before validation.',
  creates: uses(...AMOUNTS.map(() => 0)),
  async run(t) {
    // A refused request was not accepted, so the id is still new (ST1).
    const [intent] = await refusesEach(t, 0, AMOUNTS);
    if (intent === undefined) return;
    const put = await t.put(intent);
    const isBusy = put.status === undefined || put.status === 429 || put.status >= 500;
    t.should(isBusy || isSuccess(put), '200 for the refused id with a valid amount', put, {
      clause: 'ST1',
      cause: 'The id is stored as seen before the request is validated.',
    });
  },
};

const p38: PartnerCase = {
  id: 'P38',
  title: 'Unknown fields are ignored',
  clauses: ['PF9', 'VE1'],
  severity: 'should',
  profile: 'strict',
  likely_cause: 'The schema forbids additional properties.',
  creates: uses(38),
  async run(t) {
    const reply = await t.put(t.intend(38), { fields: { a_field_of_tomorrow: 'duebridge' } });
    t.should(reply.status === 200, '200', reply);
  },
};

const UNFIT: readonly Bad[] = [
  {
    what: 'a truncated body',
    level: 'should',
    change: (intent) => ({ body: instruction(intent).slice(0, 40) }),
  },
  {
    what: 'content type text/plain',
    level: 'should',
    change: () => ({ headers: { 'content-type': 'text/plain' } }),
  },
  ...['[]', 'null', '"pay"'].map((body): Bad => ({
    what: `the body ${body}`,
    level: 'should',
    change: () => ({ body }),
  })),
  {
    what: 'another id in the body than in the path',
    level: 'strict',
    change: () => ({ fields: { platform_payment_id: 'not-the-id-of-the-path' } }),
  },
  {
    what: 'a body without platform_batch_id',
    level: 'strict',
    change: () => ({ fields: { platform_batch_id: undefined } }),
  },
];

const p39: PartnerCase = {
  id: 'P39',
  title: 'A body that is no payment instruction, or not declared as JSON, is refused',
  clauses: ['ER3', 'PF2', 'PF3'],
  severity: 'should',
  likely_cause: 'The body is taken as it comes, or the parser’s exception is not caught.',
  creates: uses(...UNFIT.map(() => 39)),
  run: async (t) => void (await refusesEach(t, 39, UNFIT)),
};

const WORDS = {
  unknown: 'the payment to an account that does not exist',
  inactive: 'the payment to the inactive account',
  above: 'the payment above the maximum',
} as const satisfies Partial<Record<SharedName, string>>;

/** The shared payments that have to fail. */
export const NAMES = Object.keys(WORDS) as (keyof typeof WORDS)[];

const p41: PartnerCase = {
  id: 'P41',
  title: 'A payment to an unknown or inactive account, or above the maximum, fails with a reason',
  clauses: ['FR1', 'ST3'],
  likely_cause: 'The account is not looked up, or the rule is enforced in a user interface alone.',
  creates: uses(...NAMES),
  async run(t) {
    let open: unknown;
    for (const name of NAMES) {
      const made = await t.sharedPayment(name);
      if (made === undefined) continue;
      const { put, intent } = made;
      // Of an account that it does not know a partner may say so at once.
      if (name === 'unknown' && isRefusal(put)) continue;
      const expected = `${WORDS[name]}: 200, then status failed with a reason`;
      const isAccepted = t.should(!isRefusal(put), expected, put, {
        cause: 'A refusal looks like an error of the platform, so an operator has to look.',
      });
      const isTaken = recordOf(put) !== undefined;
      if (!isAccepted || !t.must(isTaken, `${WORDS[name]}: 200 with a payment`, put)) continue;
      await mustFail(t, intent, `${WORDS[name]}: `).catch((error: unknown) => (open ??= error));
    }
    // One payment that does not end must not hide what the others show.
    if (open !== undefined) throw open;
  },
};

/** Follows a payment that has to end as failed; `what` names it in front of the expectation. */
async function mustFail(t: PartnerContext, intent: Intent, what: string): Promise<void> {
  const { end, last } = await t.end(intent);
  if (end === undefined && (t.run.endsLater || t.target.terminal_window_seconds === undefined)) {
    throw t.notEnded();
  }
  const expected = `${what}status failed within ${t.run.window_ms / 1_000} s`;
  t.must(end?.record['status'] === 'failed', expected, end?.reply ?? last, {
    got: end === undefined ? `it did not end: ${tell(last)}` : `status ${statusOf(end.record)}`,
  });
}

export const PUTS = [p20, p21, p22, p24, p36, p38, p39, p41];
