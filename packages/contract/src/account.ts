/**
 * The account as a partner returns it (AC1, decision 4).
 */
import { Type, type Static } from 'typebox';
import { Balance } from './customer.ts';
import * as t from './fields.ts';

/** Limits that a biller sets on one account; an absent field means no limit (decision 4). */
export const PaymentRules = Type.Object(
  t.optional({
    min_amount_in_cents: t.AmountInCents,
    max_amount_in_cents: t.AmountInCents,
  }),
);
export type PaymentRules = Static<typeof PaymentRules>;

/** The account record that our partner kit emits (decision 4). */
export const AccountRecord = Type.Object({
  biller_id: t.BillerId,
  account_id: t.AccountId,
  status: Type.Union([Type.Literal('active'), Type.Literal('inactive')]),
  ...t.optional({
    holder: Type.Object({ first_name: t.string(), last_name: t.string() }),
    balance: Balance,
    payment_rules: PaymentRules,
  }),
});
export type AccountRecord = Static<typeof AccountRecord>;
