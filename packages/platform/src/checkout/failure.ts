/**
 * What a failed payment means for its customer (FR1). It decides whether the page offers another attempt, so free text is not
 * interpreted. Only the interface's own reasons count, in its words or our kit's, and the platform's own knowledge that the funds
 * were declined. A reason that may describe a duplicate, in any wording, makes the page warn and ask, never refuse.
 */
import { FAILURE_REASONS, type FailureKind } from '@duebridge/contract';
import type { PaymentRow } from '../store/payments.ts';

/** Letters and digits alone, so that case, accents' forms and punctuation make no difference. */
const words = (text: string): string =>
  text
    .normalize('NFKC')
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}]+/gu, ' ')
    .trim();

/** Matched against the whole reason, never a part of it: "this is not a duplicate payment" is not among them. */
const KNOWN: ReadonlyMap<string, FailureKind> = new Map(
  (
    [
      ['Duplicate payment detected', 'duplicate'],
      ['Duplicate payment', 'duplicate'],
      [FAILURE_REASONS.duplicate, 'duplicate'],
      ['Account not found or inactive', 'account'],
      ['Account not found', 'account'],
      ['Account inactive', 'account'],
      [FAILURE_REASONS.account, 'account'],
      ['Amount above the maximum allowed', 'amount'],
      ['Amount above the maximum', 'amount'],
      [FAILURE_REASONS.maximum, 'amount'],
    ] as const
  ).map(([reason, kind]) => [words(reason), kind]),
);

/** Duplicate, duplicado, doublon, em duplicidade; already paid, ya pagado, déjà payé, já pago. Prefers false positives to misses. */
const MAYBE_DUPLICATE =
  /\b(?:dup[li]+c|doubl|already (?:been |was )?(?:paid|posted|received|processed|made)|twice|second payment|ya (?:se |fue |ha sido |est[aá] )?(?:pag|registr|recib)|d[ée]j[àa]|j[áa] (?:foi |est[áa] )?(?:pag|regist|receb)|segundo pag)/iu;

/** Takes a payment that has failed. */
export function failureKind(payment: Pick<PaymentRow, 'failure_reason' | 'ended_by'>): FailureKind {
  if (payment.ended_by === 'funding') return 'declined';
  const reason = payment.failure_reason ?? '';
  return (
    KNOWN.get(words(reason)) ?? (MAYBE_DUPLICATE.test(reason) ? 'possible_duplicate' : 'other')
  );
}
