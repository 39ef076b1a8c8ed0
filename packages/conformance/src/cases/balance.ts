/**
 * P62: the effect of a run on the amounts due, read before the first payment and after the last one has ended.
 * A balance may lag, be refreshed nightly, or change for other reasons. A fall that is too small therefore proves nothing. A fall
 * that is too large is reported only after two more payments have shown that the balance follows each payment immediately.
 */
import type { PartnerCase } from '../check/check.ts';
import { Skipped } from '../check/findings.ts';
import type { Reply } from '../check/http.ts';
import type { PartnerContext } from '../check/partner-context.ts';
import { holdsPayment, type SharedName, uses } from '../check/payment-fields.ts';

/** The check that reports on the balances. */
export const BALANCE_CHECK = 'P62';

/** The payments that show whether the balance follows immediately. */
const CONTROLS: readonly SharedName[] = ['control', 'second control'];

/** How far one account's amount due fell over a run, and how far its payments predict. */
interface AccountEffect {
  readonly account_id: string;
  readonly fell: number;
  /** The sum of its payments that succeeded, and of those that failed or were canceled. */
  readonly expected: number;
  readonly undone: number;
  readonly reply: Reply;
}

/** The amount due of each account that the run knows; accounts that show none are missing. */
type Balances = ReadonlyMap<string, { readonly due: number; readonly reply: Reply }>;

/** The amounts due before anything is paid; whoever asks first must do so then. */
export function balancesBefore(t: PartnerContext): Promise<Balances> {
  return t.run.once('the balances before', () => readBalances(t));
}

export const P62: PartnerCase = {
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
  let effects = effectsOf(before, await readBalances(t), sums);
  while (effects.some(isOff) && run.now() < deadline) {
    await run.sleep(run.pace.poll_first_ms);
    effects = effectsOf(before, await readBalances(t), sums);
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

/** Cents by account. */
type Sums = ReadonlyMap<string, number>;

/** The cents that succeeded, and that failed or were canceled, on each account; undefined when a payment has not ended. */
async function sumsByEnd(
  t: PartnerContext,
): Promise<{ readonly succeeded: Sums; readonly undone: Sums } | undefined> {
  const succeeded = new Map<string, number>();
  const undone = new Map<string, number>();
  const ends = t.run.intents.map(async ({ intent }) => {
    // A refused payment must not exist; if a read finds it anyway, it counts.
    const isMade = t.run.putsOf(intent).length > 0 || holdsPayment(await t.read(intent));
    if (!isMade) return true;
    const { end } = await t.end(intent);
    if (end === undefined) return false;
    const sums = end.record['status'] === 'succeeded' ? succeeded : undone;
    const amount = end.record['amount_in_cents'];
    const cents = typeof amount === 'number' ? amount : intent.amount_in_cents;
    sums.set(intent.account_id, (sums.get(intent.account_id) ?? 0) + cents);
    return true;
  });
  return (await Promise.all(ends)).every(Boolean) ? { succeeded, undone } : undefined;
}

function effectsOf(
  before: Balances,
  after: Balances,
  { succeeded, undone }: { readonly succeeded: Sums; readonly undone: Sums },
): AccountEffect[] {
  return [...before].flatMap(([account_id, { due }]) => {
    const now = after.get(account_id);
    if (now === undefined) return [];
    return {
      account_id,
      fell: due - now.due,
      expected: succeeded.get(account_id) ?? 0,
      undone: undone.get(account_id) ?? 0,
      reply: now.reply,
    };
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
