/** Checks that look at everything a run has seen (P59 to P62): errors, all records of all payments, every payment after its end, and the amounts due. */
import type { PartnerCase } from '../check/check.ts';
import { type More, Skipped } from '../check/findings.ts';
import { type Exchange, PREFLIGHT, type Reply, parsed, show } from '../check/http.ts';
import type { PartnerContext, Seen } from '../check/partner-context.ts';
import {
  type Intent,
  type PaymentFields,
  type SharedName,
  differences,
  holdsPayment,
  recordOf,
  uses,
} from '../check/payment-fields.ts';
import { ACCEPTED_FIELDS, ENDED_FIELDS, isAnswer, revealsNothing, unchanged } from './shared.ts';

/** The codes of decision 5 that a partner uses, by status. */
const CODES: Readonly<Record<number, readonly string[]>> = {
  400: ['INVALID_REQUEST'],
  401: ['UNAUTHORIZED'],
  403: ['INSUFFICIENT_SCOPE'],
  404: ['NOT_FOUND', 'ACCOUNT_NOT_FOUND', 'PAYMENT_NOT_FOUND'],
  415: ['UNSUPPORTED_MEDIA_TYPE'],
};

const p59: PartnerCase = {
  id: 'P59',
  title: 'Errors are JSON without secrets',
  clauses: ['ER3'],
  severity: 'should',
  stage: 'last',
  likely_cause: 'The error page of a framework or a gateway reaches the caller.',
  async run(t: PartnerContext) {
    const all = t.run.wire.exchanges.filter(({ check }) => check !== PREFLIGHT && check !== 'P53');
    t.given(all.length > 0, 'nothing was sent in this run');
    const errors = all.filter(({ status = 200 }) => status < 200 || status > 299);
    const level = 'should';
    const of = (count: number): string => `(${count} of ${errors.length} errors)`;
    const typeOf = ({ answer_headers: headers }: Exchange): string =>
      headers['content-type'] ?? 'no content type';
    t.none(
      errors.filter((one) => !/json/i.test(typeOf(one))),
      'errors with content type application/json',
      (one, count) => `${one.status} with ${typeOf(one)} ${of(count)}`,
      { level, cause: p59.likely_cause },
    );
    t.none(
      // The token endpoint uses the error form of RFC 6749 instead.
      errors.filter((one) => one.method !== 'POST' && codeProblem(one) !== undefined),
      'errors with the code of decision 5, and a message',
      (one) => `${one.status} with ${codeProblem(one)}`,
      { level: 'strict' },
    );
    revealsNothing(t, errors, all);
  },
};

/** How the code and message of an error violate decision 5; undefined when they do not. */
function codeProblem({ status, answer_body }: Exchange): string | undefined {
  const { code, message } = parsed(answer_body) ?? {};
  if (typeof message !== 'string' || message === '') return `message ${show(message)}`;
  const codes = CODES[status ?? 0];
  const right =
    typeof code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(code) && codes?.includes(code) !== false;
  return right ? undefined : `code ${show(code)}`;
}

const p60: PartnerCase = {
  id: 'P60',
  title: 'All responses for a payment are consistent',
  clauses: ['PF6', 'PF1', 'PF2', 'PF3', 'PF7', 'RU2', 'RU5', 'ID1'],
  stage: 'final',
  likely_cause: 'Posting copies the payment and rounds, defaults or renumbers its fields.',
  async run(t: PartnerContext) {
    const ids = new Map<string, string>();
    const known = t.run.accepted();
    const ends = new Map((await t.run.ended()).map(({ intent, end }) => [intent, end]));
    const read = known.map(async (one) => ({ ...one, last: await t.read(one.intent) }));
    for (const { intent, first, last } of await Promise.all(read)) {
      if (!INVALID.includes(first.reply.exchange.check)) repeatsTheRequest(t, intent, first);
      const { payment_id } = first.record;
      const twin = ids.get(show(payment_id)) ?? intent.platform_payment_id;
      const isDistinct = payment_id === undefined || twin === intent.platform_payment_id;
      t.must(isDistinct, 'a distinct payment_id for each payment', first.reply, {
        got: `payment_id ${show(payment_id)} for ${twin} and for ${intent.platform_payment_id}`,
        clause: 'PF1',
      });
      ids.set(show(payment_id), intent.platform_payment_id);
      if (!isAnswer(t, last)) return;
      const record = recordOf(last);
      t.must(record !== undefined, 'the payment still exists', last, { clause: 'PF2' });
      if (record === undefined) continue;
      const [changed = ''] = differences(first.record, record, ACCEPTED_FIELDS);
      const clause = CLAUSE_OF[changed] ?? 'PF6';
      const expected = 'the fields of the first response';
      const isSame = unchanged(t, first.record, last, ACCEPTED_FIELDS, expected, { clause });
      const end = ends.get(intent);
      if (end === undefined || !isSame) continue;
      asItEnded(t, end, last, {
        clause: 'RU2',
        cause: 'A later job or a restart of the server rewrites terminal payments.',
      });
    }
    t.given(ids.size > 0, 'no payment was accepted (see P20)');
    await stillKnown(t);
  },
};

/** The first response must describe the payment that was asked for. */
function repeatsTheRequest(t: PartnerContext, intent: Intent, { reply, record }: Seen): void {
  for (const name of ['platform_payment_id', 'platform_batch_id', 'amount_in_cents'] as const) {
    if ((record[name] ?? null) === null) continue;
    t.equals(reply, name, intent[name], { note: ' at first', clause: CLAUSE_OF[name] ?? 'PF6' });
  }
}

/** The oldest payment that was put only once: a store of ids that forgets after seconds has forgotten it first. */
export function oldest({ run }: PartnerContext) {
  const { payable } = run.target.accounts;
  return run.once('the oldest payment', async () =>
    run.accepted().find(({ intent, puts }) => intent.account_id === payable && puts.length === 1),
  );
}

/** Asks for the oldest id last. */
async function stillKnown(t: PartnerContext): Promise<void> {
  const known = await oldest(t);
  if (known === undefined) return;
  const again = await t.put(known.intent);
  if (!isAnswer(t, again)) return;
  const expected = 'the oldest payment of the run when it is put again at its end';
  unchanged(t, known.first.record, again, ACCEPTED_FIELDS, expected, {
    clause: 'PF2',
    cause: 'Ids are kept for seconds, or only the latest of them: they must be stored permanently.',
  });
}

const CLAUSE_OF: Readonly<Record<string, 'PF1' | 'PF2' | 'PF3' | 'PF6' | 'PF7'>> = {
  payment_id: 'PF1',
  platform_payment_id: 'PF2',
  platform_batch_id: 'PF3',
  amount_in_cents: 'PF6',
  initiated_at: 'PF7',
};

/** The checks that send invalid amounts, or two ids: what an acceptance of those contains is not judged here. */
const INVALID: readonly string[] = ['P36', 'P39'];

export function asItEnded(
  t: PartnerContext,
  end: PaymentFields,
  reply: Reply,
  more: More,
): boolean {
  const expected = `the payment as it ended, status ${show(end['status'])}`;
  return unchanged(t, end, reply, ENDED_FIELDS, expected, more);
}

/** The check that reports on the balances. */
export const BALANCE_CHECK = 'P62';

/** The payments that show whether the balance follows immediately. */
const CONTROLS: readonly SharedName[] = ['control', 'second control'];

/** The amount due of each account that the run knows; accounts that show none are missing. */
type Balances = ReadonlyMap<string, { readonly due: number; readonly reply: Reply }>;

/** The amounts due before anything is paid; whoever asks first must do so then. */
export function balancesBefore(t: PartnerContext): Promise<Balances> {
  return t.run.once('the balances before', () => readBalances(t));
}

const p62: PartnerCase = {
  id: BALANCE_CHECK,
  title: 'The amount due falls by exactly the succeeded payments',
  clauses: ['ST2', 'RU5', 'ST3', 'ST4'],
  stage: 'final',
  likely_cause: 'The ledger is posted at acceptance and not reversed, or once per request.',
  creates: uses(...CONTROLS),
  async run(t) {
    for (const effect of await measure(t)) judgeEffect(t, effect);
  },
};

function judgeEffect(t: PartnerContext, effect: AccountEffect): void {
  const { account_id, fell, expected, reply } = effect;
  const due = `the amount due of ${account_id} falls by ${expected} cents, the sum of its payments that succeeded`;
  const got = `it fell by ${fell} cents`;
  if (rose(effect)) {
    t.must(false, due, reply, { got: `it rose by ${expected} cents` });
  } else if (fellByWhatFailed(effect)) {
    t.must(false, due, reply, { got: `${got}, the sum of those that failed`, clause: 'ST3' });
  } else if (t.must(fell <= expected, due, reply, { got })) {
    // An amount due that does not fall at all may be shown as of another day.
    t.should(fell === expected || fell <= 0, due, reply, {
      got: `${got}, although a single payment changes it immediately`,
      cause: 'Concurrent postings read, subtract and write the balance without a lock.',
    });
  }
}

/** The effect of all payments so far. Skips where it cannot be determined, which in strict counts as judged in part. */
async function measure(t: PartnerContext): Promise<readonly AccountEffect[]> {
  const { run } = t;
  const assertMeasured: (holds: boolean, why: string) => asserts holds = (holds, why) => {
    const kind = t.profile === 'strict' ? 'wanting' : 'nothing to judge';
    if (!holds) throw new Skipped(`not measured: ${why}`, kind);
  };
  assertMeasured(!run.unsettled, 'the account changed while nothing was paid or read');
  const before = await balancesBefore(t);
  assertMeasured(before.size > 0, 'the partner shows no amount due');
  const sums = await sumsByEnd(t);
  assertMeasured(sums !== undefined, 'a payment of this run has not ended');
  const deadline = run.now() + run.pace.balance_lag_ms;
  let effects = await effectsOf(t, before, sums);
  while (effects.some(isOff) && run.now() < deadline) {
    await run.sleep(run.pace.poll_first_ms);
    effects = await effectsOf(t, before, sums);
  }
  const sure = effects.filter(fellByWhatFailed);
  if (sure.length > 0) return sure;
  assertMeasured(
    !effects.some(isOff) || (await balanceFollows(t, effects.some(rose) ? -1 : 1)),
    'the amount due does not change immediately with each payment',
  );
  return effects;
}

const isOff = ({ fell, expected }: AccountEffect): boolean => fell !== expected;

async function readBalances(t: PartnerContext): Promise<Balances> {
  const { payable, other, inactive, canceled } = t.target.accounts;
  const ids = new Set([payable, other, inactive, canceled].filter((id) => id !== undefined));
  const reads = [...ids].map(async (id) => ({ id, ...(await t.amountDue(id)) }));
  return new Map(
    (await Promise.all(reads)).flatMap(({ id, due, reply }) =>
      due === undefined ? [] : [[id, { due, reply }] as const],
    ),
  );
}

/** The cents of the payments to an account: of those that succeeded, and of those that failed or were canceled. */
interface Sums {
  succeeded: number;
  undone: number;
}

/** The sums of each account; undefined when a payment has not ended. */
async function sumsByEnd(t: PartnerContext): Promise<ReadonlyMap<string, Sums> | undefined> {
  const sums = new Map<string, Sums>();
  const ends = [...t.run.payments.values()].map(async ({ intent, seen }) => {
    // A refused payment must not exist; if a read finds it anyway, it counts.
    const isMade = seen.length > 0 || holdsPayment(await t.read(intent));
    if (!isMade) return true;
    const { end } = await t.end(intent);
    if (end === undefined) return false;
    const { status, amount_in_cents: amount } = end.record;
    const sum = sums.get(intent.account_id) ?? { succeeded: 0, undone: 0 };
    const cents = typeof amount === 'number' ? amount : intent.amount_in_cents;
    sum[status === 'succeeded' ? status : 'undone'] += cents;
    sums.set(intent.account_id, sum);
    return true;
  });
  return (await Promise.all(ends)).every(Boolean) ? sums : undefined;
}

type AccountEffect = Awaited<ReturnType<typeof effectsOf>>[number];

/**
 * How far each account's amount due fell, and how far its payments predict: `expected` is the sum of those that succeeded, `undone` of
 * those that failed or were canceled.
 */
async function effectsOf(t: PartnerContext, before: Balances, sums: ReadonlyMap<string, Sums>) {
  const after = await readBalances(t);
  return [...before].flatMap(([account_id, { due }]) => {
    const now = after.get(account_id);
    const { succeeded: expected = 0, undone = 0 } = sums.get(account_id) ?? {};
    return now === undefined
      ? []
      : { account_id, fell: due - now.due, expected, undone, reply: now.reply };
  });
}

/**
 * True when an account's amount due fell by exactly the sum of its failed payments. That is not a coincidence, even if something else also
 * changes the balance.
 */
function fellByWhatFailed({ fell, expected, undone }: AccountEffect): boolean {
  return undone > 0 && fell === undone && fell !== expected;
}

/**
 * True when an account's amount due grew by exactly the amount paid: the sign is wrong, since a new bill of that amount would be
 * a coincidence.
 */
function rose({ fell, expected }: AccountEffect): boolean {
  return expected > 0 && fell === -expected;
}

/**
 * True when each of two payments shows in the first or second read of the amount due after its end: as a fall of at least its amount, or as
 * a rise when the sign is -1.
 */
async function balanceFollows(t: PartnerContext, sign: 1 | -1): Promise<boolean> {
  for (const name of CONTROLS) {
    const { due: before } = await t.amountDue();
    const made = await t.sharedPayment(name);
    if (made === undefined || before === undefined) return false;
    const { end } = await t.end(made.intent);
    if (end?.record['status'] !== 'succeeded') return false;
    const follows = async (): Promise<boolean> => {
      const { due: after } = await t.amountDue();
      return after !== undefined && sign * (before - after) >= made.intent.amount_in_cents;
    };
    if (await follows()) continue;
    // Status and balance may be two writes, one just behind the other.
    await t.run.sleep(t.run.pace.poll_first_ms);
    if (!(await follows())) return false;
  }
  return true;
}

export const WHOLE_RUN = [p59, p60, p62];
