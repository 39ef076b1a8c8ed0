/**
 * The account as a partner returns it (AC1, decision 4).
 */
import { Type, type Static } from 'typebox';
import { Balance } from './customer.ts';
import { AccountId, AmountInCents, BillerId } from './fields.ts';

/** Limits that a biller sets on one account; an absent field means no limit (decision 4). */
export const PaymentRules = Type.Object({
  min_amount_in_cents: Type.Optional(AmountInCents),
  max_amount_in_cents: Type.Optional(AmountInCents),
});
export type PaymentRules = Static<typeof PaymentRules>;

/** The account record that our partner kit emits (decision 4). */
export const AccountRecord = Type.Object({
  biller_id: BillerId,
  account_id: AccountId,
  status: Type.Union([Type.Literal('active'), Type.Literal('inactive')]),
  holder: Type.Optional(Type.Object({ first_name: Type.String(), last_name: Type.String() })),
  balance: Type.Optional(Balance),
  payment_rules: Type.Optional(PaymentRules),
});
export type AccountRecord = Static<typeof AccountRecord>;

/**
 * The platform requires only a JSON object as a partner's account answer. Each field is then read on its own; a missing or
 * malformed one counts as unknown (decision 4: a tolerant reader).
 */
export const AccountReply = Type.Object({
  biller_id: Type.Optional(Type.Unknown()),
  account_id: Type.Optional(Type.Unknown()),
  status: Type.Optional(Type.Unknown()),
  balance: Type.Optional(Type.Unknown()),
  payment_rules: Type.Optional(Type.Unknown()),
});
export type AccountReply = Static<typeof AccountReply>;
