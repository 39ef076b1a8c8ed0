/**
 * The account service: three small operations that a biller's own program hosts, in any language, and the partner kit calls
 * (`--accounts-url`, decision 70). The kit implements the interface; the service holds the accounts.
 */
import { Type, type Static } from 'typebox';
import { AccountRecord } from './account.ts';
import * as t from './fields.ts';
import { PATH_FIELDS, routeTable } from './routes.ts';

/** Header that carries the signature: `t=UNIX SECONDS,v1=HEX`. */
export const SIGNATURE_HEADER = 'Duebridge-Signature';

/** A payment to be posted. */
export const AccountPosting = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  payment_id: t.string('The payment id that the platform received (PF1).'),
  platform_batch_id: t.PlatformBatchId,
  biller_id: t.BillerId,
  account_id: t.AccountId,
  amount_in_cents: t.AmountInCents,
  initiated_at: t.instant('When the kit accepted it.'),
});

export type AccountPosting = Static<typeof AccountPosting>;

/** Outcome of a payment. */
export const AccountOutcome = Type.Union([
  Type.Object(
    {
      outcome: Type.Literal('posted'),
      posted_at: Type.Optional(t.foreignInstant('When it was posted; now if absent.')),
    },
    { description: 'The payment is posted, once.' },
  ),
  Type.Object(
    {
      outcome: Type.Literal('failed'),
      reason: Type.String({ minLength: 1, maxLength: t.MAX_FAILURE_REASON_LENGTH }),
    },
    { description: 'The payment can never be posted; the customer reads the reason.' },
  ),
  Type.Object({ outcome: Type.Literal('canceled') }),
  Type.Object(
    {
      outcome: Type.Literal('later'),
      until: Type.Optional(t.foreignInstant('The kit does not ask again before this time.')),
      cancelable: Type.Optional(
        t.flag('False: it will be posted without another request, so nobody may cancel it.'),
      ),
    },
    { description: 'Not decided yet: the kit asks again.' },
  ),
]);
export type AccountOutcome = Static<typeof AccountOutcome>;

/** Hosted by the biller's own program, called by the partner kit. */
export const accountServiceRoutes = routeTable(
  PATH_FIELDS,
  { source: 'decision 70', auth: 'signature' },
  {
    find_account: {
      call: 'GET /accounts/{biller_id}/{account_id}',
      summary: 'Read an account; 404 when there is none',
      reply: AccountRecord,
      errors: ['ACCOUNT_NOT_FOUND'],
    },
    post_payment: {
      call: 'POST /payments',
      summary: 'Post a payment, once for each platform_payment_id; a repeat gets the same answer',
      body: AccountPosting,
      reply: AccountOutcome,
    },
    find_posting: {
      call: 'GET /payments/{platform_payment_id}',
      summary: 'Report what became of a payment; 404 when it is not known',
      reply: AccountOutcome,
      errors: ['PAYMENT_NOT_FOUND'],
    },
  },
);
