/**
 * Ending by an operator's word: who may close a payment that stands still, and who may settle funds that nothing else settles
 * (decisions 21 and 38).
 *
 * enters: a payment, and an operator's reason.  leaves: the payment as it then stands (engine/review.ts, store/operators-acts.ts), or a request
 *         that waits for a second person.
 * holds:  above the limit two different persons must ask for the same (store/asks.ts).
 */
import type { CloseByWord, SettleFunds } from '@duebridge/contract';
import { assertClosable, closePayment, type ReviewDependencies } from '../engine/review.ts';
import { askedBefore, dropAsk, versionOfPayment, type Ask } from '../store/asks.ts';
import { knownPayment, type PaymentRow } from '../store/payments.ts';
import { settleByWord } from '../store/operators-acts.ts';

/** The dependencies of closing. */
export interface CloseDependencies extends ReviewDependencies {
  /** Above this amount, closing needs a second person. */
  readonly secondPersonAboveCents: number;
}

/** What came of a request. */
export interface Closed {
  readonly outcome: 'done' | 'second_person_needed';
  readonly payment: PaymentRow;
}

/**
 * Closes a payment, or records the first of two requests: without a word one that its partner refused, with it any that stands still.
 * Throws what `closePayment` throws, and Refusal CONFLICT when the same person asks twice.
 */
export async function closeReview(
  dependencies: CloseDependencies,
  platform_payment_id: string,
  reason: string,
  actor: string,
  word?: CloseByWord,
): Promise<Closed> {
  const payment = await knownPayment(dependencies.database, platform_payment_id);
  assertClosable(payment, word);
  const act = word === undefined ? 'close' : closeAs(word);
  return byTwo(dependencies, payment, { act, reason, actor }, (by) =>
    closePayment(dependencies, platform_payment_id, { reason, ...by }, word),
  );
}

/** All of a word but its evidence: two persons who state different ends have not asked for the same. */
function closeAs(word: CloseByWord): string {
  const { outcome, evidence: _each, ...stated } = word;
  const facts = Object.entries(stated).map(([name, said]) => `, ${name} ${said}`);
  return `close as ${outcome}${facts.join('')}`;
}

/** Settles the funds of an ended payment by word, or records the first of two requests. Throws what `settleByWord` throws. */
export async function settleFundsByWord(
  dependencies: CloseDependencies,
  platform_payment_id: string,
  { outcome, reason, evidence }: SettleFunds,
  actor: string,
): Promise<Closed> {
  const { database } = dependencies;
  const payment = await knownPayment(dependencies.database, platform_payment_id);
  const act = `settle as ${outcome}`;
  return byTwo(dependencies, payment, { act, reason, actor }, (by) =>
    settleByWord(database, platform_payment_id, { outcome, evidence }, { reason, ...by }),
  );
}

/** Acts at once, or above the limit when a second person asks for the same. */
async function byTwo(
  { database, secondPersonAboveCents }: CloseDependencies,
  payment: PaymentRow,
  ask: Pick<Ask, 'act' | 'reason' | 'actor'>,
  act: (by: { readonly actor: string; readonly approved_by?: string }) => Promise<PaymentRow>,
): Promise<Closed> {
  const { platform_payment_id, partner_id } = payment;
  const { actor } = ask;
  if (payment.amount_in_cents <= secondPersonAboveCents) {
    return { outcome: 'done', payment: await act({ actor }) };
  }
  const subject = `payment/${platform_payment_id}` as const;
  const first = await database.transaction(async (tx) => {
    const version = await versionOfPayment(tx, platform_payment_id);
    return askedBefore(tx, { subject, version, platform_payment_id, partner_id, ...ask });
  });
  if (first === undefined) return { outcome: 'second_person_needed', payment };
  // The first person acts and the second approves; the audit line names both.
  const done = await act({ actor: first, approved_by: actor });
  await dropAsk(database, subject);
  return { outcome: 'done', payment: done };
}
