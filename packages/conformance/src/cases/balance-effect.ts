/**
 * What a run does to the amounts due: read before the first payment and after the last has ended.
 *
 * A balance may lag, be refreshed at night, or move for reasons of its own, so a fall that is too
 * small proves nothing, and one that is too large is believed only once two more payments have shown
 * that the balance follows each at once.
 */
import type {
  AccountEffect,
  Balances,
  BalanceVerdict,
  PartnerContext,
} from '../check/partner-context.ts';
import type { Intent } from '../check/payment-fields.ts';
import type { SharedName } from '../check/planned-payments.ts';

/** The check that tells of the balances. */
export const BALANCE_CHECK = 'P62';

/** The payments by which a balance is shown to follow at once. */
export const CONTROLS: readonly SharedName[] = ['control', 'second control'];

/** Most effects of one payment by which an excess is explained: P27 puts it a hundred times. */
const MOST_EFFECTS = 120;

/** Reads the amounts due before anything is paid. */
export async function readBalancesBefore(t: PartnerContext): Promise<void> {
  t.run.balancesBefore = await readBalances(t);
}

/** The verdict over all payments so far; each of them has ended, or nothing can be said. */
export async function measureBalances(t: PartnerContext): Promise<BalanceVerdict> {
  const { run } = t;
  if (run.unsettled) return { unmeasured: 'an account at rest was seen to change on its own' };
  if (run.balancesBefore.size === 0) return { unmeasured: 'no amount due is shown' };
  const expected = await expectedFalls(t);
  if (expected === undefined) return { unmeasured: 'a payment of this run has not ended' };
  const deadline = run.now() + run.pace.balance_lag_ms;
  let effects = effectsOf(run.balancesBefore, await readBalances(t), expected);
  while (effects.some(({ fell, expected }) => fell !== expected) && run.now() < deadline) {
    await run.sleep(run.pace.poll_first_ms);
    effects = effectsOf(run.balancesBefore, await readBalances(t), expected);
  }
  if (effects.some(({ fell, expected }) => fell > expected)) {
    const follows = await run.once('the balance follows', () => balanceFollows(t));
    if (!follows) return { unmeasured: 'the amount due does not follow each payment at once' };
  }
  return { effects };
}

/**
 * Raises a must-finding when the amount due fell by more than the payments that succeeded, and the
 * excess is a multiple of this payment's amount. P62 tells of every other excess.
 */
export async function oneEffect(t: PartnerContext, intent: Intent): Promise<void> {
  const verdict = await t.run.once('the balances', () => measureBalances(t));
  if (verdict.unmeasured !== undefined) {
    t.notes.push(`The effect on the balance was not measured: ${verdict.unmeasured}.`);
    return;
  }
  const effect = verdict.effects.find(({ account_id }) => account_id === intent.account_id);
  if (effect === undefined) return;
  const excess = effect.fell - effect.expected;
  const times = excess / intent.amount_in_cents;
  t.must(!(excess > 0 && Number.isInteger(times) && times <= MOST_EFFECTS), {
    expected: `one payment, one effect: the amount due falls by ${effect.expected} cents over this run`,
    got: `it fell by ${effect.fell} cents: ${times} times ${intent.amount_in_cents} more, the amount of this payment`,
    at: effect.reply,
  });
}

async function readBalances(t: PartnerContext): Promise<Balances> {
  const { payable, other, inactive, canceled } = t.target.accounts;
  const ids = new Set([payable, other, inactive, canceled].filter((id) => id !== undefined));
  const balances = new Map<string, { due: number; reply: AccountEffect['reply'] }>();
  const reads = [...ids].map(async (id) => ({ id, ...(await t.amountDue(id)) }));
  for (const { id, due, reply } of await Promise.all(reads)) {
    if (due !== undefined) balances.set(id, { due, reply });
  }
  return balances;
}

/** The cents that succeeded on each account; undefined when a payment has not ended. */
async function expectedFalls(t: PartnerContext): Promise<ReadonlyMap<string, number> | undefined> {
  const falls = new Map<string, number>();
  const ends = t.run.intents.map(async ({ intent, first }) => {
    // One that was refused is nowhere to be found; one that is found all the same counts.
    if (first === undefined && (await t.read(intent)).status === 404) return true;
    const { end } = await t.end(intent);
    if (end === undefined) return false;
    if (end.record['status'] === 'succeeded') {
      const amount = end.record['amount_in_cents'];
      const cents = typeof amount === 'number' ? amount : intent.amount_in_cents;
      falls.set(intent.account_id, (falls.get(intent.account_id) ?? 0) + cents);
    }
    return true;
  });
  return (await Promise.all(ends)).every(Boolean) ? falls : undefined;
}

function effectsOf(
  before: Balances,
  after: Balances,
  expected: ReadonlyMap<string, number>,
): AccountEffect[] {
  return [...before].flatMap(([account_id, { due }]) => {
    const now = after.get(account_id);
    return now === undefined
      ? []
      : {
          account_id,
          fell: due - now.due,
          expected: expected.get(account_id) ?? 0,
          reply: now.reply,
        };
  });
}

/** True when each of two payments shows in the amount due in the first read after its end. */
async function balanceFollows(t: PartnerContext): Promise<boolean> {
  for (const name of CONTROLS) {
    const { due: before } = await t.amountDue();
    const made = await t.sharedPayment(name);
    if (made === undefined || before === undefined) return false;
    const { end } = await t.end(made.intent);
    if (end?.record['status'] !== 'succeeded') return false;
    const { due: after } = await t.amountDue();
    if (after === undefined || before - after < made.intent.amount_in_cents) return false;
  }
  return true;
}
