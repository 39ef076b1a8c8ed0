/**
 * The admin operations on the platform's money: its book, and what is remitted to billers. Part of the admin API (admin-routes.ts).
 *
 * A table: schemas first, then one entry per operation.
 */
import { Type, type Static } from 'typebox';
import { PartnerId } from './admin.ts';
import { BillerId } from './fields.ts';
import { Mode } from './mode.ts';

const strict = { additionalProperties: false } as const;
const cents = (description: string) => Type.Integer({ description });

/** The balances of one biller, in cents. The first four say where money came from, the others where it is; both sums are equal. */
export const MoneyBalances = Type.Object({
  mode: Mode,
  partner_id: PartnerId,
  biller_id: BillerId,
  taken: cents('Taken from customers through a processor.'),
  elsewhere: cents('Collected by the platform outside the book.'),
  uncollected: cents('Posted by the biller, and not or no longer collected from the customer.'),
  borne: cents('Lost, and borne by the platform.'),
  under_way: cents('Taken for payments that have not ended.'),
  owed: cents('Owed to the biller; below zero when it has received too much.'),
  remitting: cents('On its way to the biller.'),
  paid: cents('Paid to the biller.'),
  refunding: cents('On its way back to customers.'),
  refunded: cents('Refunded to customers.'),
  returned: cents('Taken back by customers’ banks.'),
  disputed: cents('Held by a processor while a dispute is open.'),
});
export type MoneyBalances = Static<typeof MoneyBalances>;

/** The book compared with the payments that caused it. */
export const MoneyCheck = Type.Object({
  days: Type.Integer({ description: 'Payments of so many days were compared.' }),
  holds: Type.Boolean({ description: 'Every cent is where it should be.' }),
  faults: Type.Array(Type.String({ description: 'What is wrong, in a sentence.' })),
  balances: Type.Array(MoneyBalances),
});
export type MoneyCheck = Static<typeof MoneyCheck>;

const day = Type.String({ format: 'date' });

/** In the form of admin-routes.ts, of whose table they are a part. */
export const moneyOperations = {
  get_money: {
    call: 'GET /money',
    summary: 'Read the balances of the book, by biller: since it began, or of one day',
    source: 'decision 19',
    query: Type.Object({ day: Type.Optional(day) }, strict),
    reply: Type.Object({ balances: Type.Array(MoneyBalances) }),
  },
  check_money: {
    call: 'GET /money/check',
    summary: 'Compare the book with the payments of the last days',
    source: 'decision 19',
    query: Type.Object({ days: Type.Optional(Type.String({ pattern: '^[0-9]{1,12}$' })) }, strict),
    reply: MoneyCheck,
  },
} as const;
