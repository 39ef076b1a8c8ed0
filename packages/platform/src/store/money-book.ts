/**
 * The book of the platform's money: where every cent of a payment is, from the customer to the biller.
 *
 * enters: a step that moves money, in the statement that takes the step.  leaves: one row of `transfers` for each movement.
 * holds:  a transfer debits one account and credits another by the same amount, so the book balances by construction. A row is never
 *         changed. `(id, act)` is its key, so that a step that is taken again books nothing again.
 * next:   money/check.ts compares the book with the rows that caused it; docs/money.md explains the accounts.
 */

/** Where money comes from: these accounts grow by debits. */
export const SOURCES = {
  taken: 'taken from customers through a processor',
  elsewhere: 'collected by the platform outside the book',
  uncollected: 'posted by the biller, and not or no longer collected from the customer',
  borne: 'lost, and borne by the platform',
} as const;

/** Where it is: these accounts grow by credits. */
export const PLACES = {
  under_way: 'taken for payments that have not ended',
  owed: 'owed to billers',
  remitting: 'on its way to billers',
  paid: 'paid to billers',
  refunding: 'on its way back to customers',
  refunded: 'refunded to customers',
  returned: 'taken back by customers’ banks',
  disputed: 'held by a processor while a dispute is open',
} as const;

export type Place = keyof typeof PLACES;
export type BookAccount = keyof typeof SOURCES | Place;

/** The two accounts of a transfer. */
export interface Entry {
  readonly debit: BookAccount;
  readonly credit: BookAccount;
}

/**
 * SQL: a statement that books one transfer for each row of `from`, whose alias is `p` and which has the columns of a payment. `act`,
 * `debit` and `credit` are SQL expressions, `at` one of an instant, `where` says which rows move money.
 */
export function booking(one: {
  readonly act: string;
  readonly debit: string;
  readonly credit: string;
  readonly at: string;
  readonly from: string;
  readonly where: string;
}): string {
  // A repeated step must book nothing, and must not hold up the other payments of its statement.
  return `INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id, funding_method)
     SELECT p.platform_payment_id, ${one.act}, (${one.at} AT TIME ZONE 'UTC')::date, ${one.debit}, ${one.credit}, p.amount_in_cents,
            p.partner_id, p.biller_id, p.funding_method FROM ${one.from} WHERE ${one.where} ON CONFLICT (id, act) DO NOTHING`;
}

/**
 * SQL: payment `p` is one that the book has when it succeeded. Earlier versions answered some payments of test registrations themselves, under
 * such a payment_id, and booked none.
 */
export const IN_THE_BOOK = `NOT (p.payment_id IS NOT DISTINCT FROM 'test-' || p.platform_payment_id
          AND p.partner_id IN (SELECT t.partner_id FROM duebridge_platform.partners t WHERE t.mode = 'test'))`;

/**
 * What an operator's word about the funds of an ended payment moves (store/operators-acts.ts). `isEarly`: they were taken before its end.
 * Undefined: nothing. Pure.
 */
export function entryByWord(
  outcome: 'captured' | 'borne' | 'released' | 'refunded',
  isEarly: boolean,
): Entry | undefined {
  const held = isEarly ? 'under_way' : 'taken';
  switch (outcome) {
    case 'captured':
      return { debit: held, credit: 'owed' };
    case 'borne':
      return { debit: 'borne', credit: 'owed' };
    case 'refunded':
      return { debit: held, credit: 'refunded' };
    case 'released':
      // What was taken and is now with the customer went back, whatever the processor calls it.
      return isEarly ? { debit: 'under_way', credit: 'refunded' } : undefined;
  }
}
