/**
 * The rules of the interface, each with the id that code, tests, checks and documents use. The wording is our own summary; a
 * project test makes sure that a test or a check claims every id.
 */

/** One rule. `gap` marks a point that the interface leaves open and a decision fills. */
export interface Clause {
  readonly rule: string;
  readonly gap?: true;
}

export const CLAUSES = {
  S1: { rule: 'A partner posts a customer, gets a token, and the token opens the payment flow.' },
  S2: { rule: 'The partner hosts the account, balance and payment operations.' },
  S3: { rule: 'The partner protects them with one of two methods.' },
  S4: { rule: 'Creating a payment is idempotent; the platform polls until a terminal status.' },
  S5: { rule: 'Money is whole cents.' },
  TR1: { rule: 'Token request: names, email, phone_number and address; the rest may be absent.' },
  TR2: { rule: 'Address: first line, city, two-letter state and zip; second line may be absent.' },
  TR3: { rule: 'Balance: whole cents, a calendar date, an ISO 8601 time; all may be absent.' },
  TR4: { rule: 'External identifiers: account_id always, biller_id from an aggregator.' },
  TK1: { rule: 'The token answer holds the one text field token.' },
  PF1: { rule: 'payment_id is the identifier at the partner.' },
  PF2: { rule: 'platform_payment_id is unique over all payments and kept forever.' },
  PF3: { rule: 'platform_batch_id comes with every payment request and is stored.' },
  PF4: { rule: 'status is one of four words.' },
  PF5: { rule: 'A failed payment carries a reason that a person can read.' },
  PF6: { rule: 'amount_in_cents is a whole number, equal to the first request.' },
  PF7: { rule: 'initiated_at has a zone, is always there, and marks the first acceptance.' },
  PF8: { rule: 'posted_at is null while processing, and set with a zone when succeeded.' },
  PF9: { rule: 'The whole payment record and the PUT body.', gap: true },
  AC1: { rule: 'The account record.', gap: true },
  ST1: { rule: 'The first request accepted gives processing, initiated_at set, posted_at null.' },
  ST2: { rule: 'Processing becomes succeeded when posted, and posted_at is set.' },
  ST3: { rule: 'Processing becomes failed with a reason when it cannot be completed.' },
  ST4: { rule: 'Processing becomes canceled when canceled before completion.' },
  RU1: { rule: 'A payment starts in processing.' },
  RU2: { rule: 'A terminal status never changes.' },
  RU3: { rule: 'The partner updates the status as soon as it changes.' },
  RU4: { rule: 'Polling may be frequent, and stops at a terminal status.' },
  RU5: { rule: 'A known id gives the existing payment, unchanged, and no second one.' },
  FR1: { rule: 'Common reasons: account missing or inactive, above the maximum, duplicate.' },
  A1: { rule: 'POST /v1/sbi/token with client id, API key and a JSON body.' },
  A2: { rule: 'Its success is 200 with JSON.' },
  B1: { rule: 'Get Account: GET /biller/{biller_id}/account/{account_id}.' },
  B2: { rule: 'Get Balance.', gap: true },
  B3: { rule: 'Get Payment.', gap: true },
  B4: { rule: 'Put Account Payment: 200 with the payment, new or known.' },
  B5: { rule: 'Get Account Payment: the current status; the one that is polled.' },
  ID1: { rule: 'New id 200; same id 200 and no second payment; other id 200 and another payment.' },
  AU1: { rule: 'Create Token carries the client id and API key that the platform issued.' },
  OA1: { rule: 'The partner issues a client id, a secret and the address of its token endpoint.' },
  OA2: { rule: 'The token request is a form: grant type, client id, client secret, scope.' },
  OA3: { rule: 'The token answer: access_token, token_type Bearer, expires_in, scope.' },
  OA4: { rule: 'Each call carries the access token as a Bearer credential.' },
  SC1: { rule: 'Scope read covers the queries, write covers Put Account Payment.' },
  KY1: { rule: 'A static key travels in a header whose name the partner chooses.' },
  KY2: { rule: 'Both forms: x-api-key, and Authorization with the key alone.' },
  EV1: { rule: 'No event exists: status travels by polling alone.' },
  ER1: { rule: 'Unknown client id or account: 404 NOT_FOUND.' },
  ER2: { rule: 'Unexpected failure: 500 INTERNAL_ERROR.' },
  ER3: { rule: 'Other statuses, and the errors of the partner operations.', gap: true },
  LI1: { rule: 'Rates, sizes and lifetimes.', gap: true },
  VE1: { rule: 'The token path carries /v1; the policy behind it is ours.' },
} as const satisfies Record<string, Clause>;

/** The id of a rule. */
export type ClauseId = keyof typeof CLAUSES;
