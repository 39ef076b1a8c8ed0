/**
 * What a partner posts to get a token, and the token (TR1-TR4, TK1).
 */
import { Type, type Static } from 'typebox';
import { AccountId, BillerId, strictObject, text } from './fields.ts';

/** TR2. */
export const Address = Type.Object({
  address_line_1: text('Street address.'),
  address_line_2: Type.Optional(
    Type.String({ maxLength: 256, description: 'Apartment, suite or unit.' }),
  ),
  city: text('City.'),
  state: Type.String({ pattern: '^[A-Za-z]{2}$', description: 'Two letters, such as TX (LI1).' }),
  zip: text('ZIP code.'),
});
export type Address = Static<typeof Address>;

/** TR3. A balance may be negative: a credit. */
export const Balance = Type.Object({
  amount_due_in_cents: Type.Optional(
    Type.Integer({
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'Whole US cents; negative for a credit (S5).',
    }),
  ),
  due_date: Type.Optional(
    Type.String({ format: 'date', description: 'The calendar date the bill is due.' }),
  ),
  last_updated_at: Type.Optional(
    Type.String({ format: 'iso-date-time', description: 'When the biller last computed it.' }),
  ),
});
export type Balance = Static<typeof Balance>;

/** TR4. An aggregator must send biller_id; a plain biller has one in its registration (decision 20). */
export const ExternalIdentifiers = Type.Object({
  biller_id: Type.Optional(BillerId),
  account_id: AccountId,
});
export type ExternalIdentifiers = Static<typeof ExternalIdentifiers>;

/** TR1. Unknown fields are ignored, so that the interface can grow (VE1, decision 17). */
export const TokenRequest = Type.Object({
  first_name: text('First name.'),
  last_name: text('Last name.'),
  email: Type.String({
    maxLength: 256,
    pattern: '^[^@\\s]+@[^@\\s]+$',
    description: 'E-mail address.',
  }),
  phone_number: text('Phone number; E.164 is recommended.'),
  address: Address,
  balance: Type.Optional(Balance),
  external_identifiers: Type.Optional(ExternalIdentifiers),
});
export type TokenRequest = Static<typeof TokenRequest>;

/** TK1: the single field. The expiry is sent in the header Token-Expires-At (decision 8). */
export const TokenReply = strictObject({
  token: Type.String({ description: 'Opens the payment flow for this customer.' }),
});
export type TokenReply = Static<typeof TokenReply>;
