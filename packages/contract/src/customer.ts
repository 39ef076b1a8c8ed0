/**
 * What a partner posts to get a token, and the token (TR1-TR4, TK1).
 */
import { Type, type Static } from 'typebox';
import * as t from './fields.ts';

/** TR2. */
export const Address = Type.Object({
  address_line_1: t.text('Street address.'),
  address_line_2: Type.Optional(
    Type.String({ maxLength: 256, description: 'Apartment, suite or unit.' }),
  ),
  city: t.text('City.'),
  state: Type.String({ pattern: '^[A-Za-z]{2}$', description: 'Two letters, such as TX (LI1).' }),
  zip: t.text('ZIP code.'),
});

/** TR3. A balance may be negative: a credit. */
export const Balance = Type.Object(
  t.optional({
    amount_due_in_cents: Type.Integer({
      minimum: Number.MIN_SAFE_INTEGER,
      maximum: Number.MAX_SAFE_INTEGER,
      description: 'Whole US cents; negative for a credit (S5).',
    }),
    due_date: Type.String({ format: 'date', description: 'The calendar date the bill is due.' }),
    last_updated_at: Type.String({
      format: 'iso-date-time',
      description: 'When the biller last computed it.',
    }),
  }),
);
export type Balance = Static<typeof Balance>;

/** TR4. An aggregator must send biller_id; a plain biller has one in its registration (decision 20). */
export const ExternalIdentifiers = Type.Object({
  biller_id: Type.Optional(t.BillerId),
  account_id: t.AccountId,
});

/** TR1. Unknown fields are ignored, so that the interface can grow (VE1, decision 17). */
export const TokenRequest = Type.Object({
  first_name: t.text('First name.'),
  last_name: t.text('Last name.'),
  email: Type.String({
    maxLength: 256,
    pattern: '^[^@\\s]+@[^@\\s]+$',
    description: 'E-mail address.',
  }),
  phone_number: t.text('Phone number; E.164 is recommended.'),
  address: Address,
  balance: Type.Optional(Balance),
  external_identifiers: Type.Optional(ExternalIdentifiers),
});
export type TokenRequest = Static<typeof TokenRequest>;

/** TK1: the single field. The expiry is sent in the header Token-Expires-At (decision 8). */
export const TokenReply = t.strictObject({
  token: t.string('Opens the payment flow for this customer.'),
});
export type TokenReply = Static<typeof TokenReply>;
