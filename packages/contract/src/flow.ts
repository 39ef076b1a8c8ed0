/**
 * The flow API, which the hosted payment page calls (decision 31). It is our own and strict, and documented like the other APIs,
 * so that a partner can build its own page.
 */
import { Type, type Static } from 'typebox';
import { PaymentRules } from './account.ts';
import { Balance } from './customer.ts';
import * as t from './fields.ts';
import { PAYMENT_STATUSES, type PaymentStatus } from './status.ts';

/** Body of the exchange of a token for a session. */
export const FlowSessionRequest = t.partial({
  origin: Type.String({
    maxLength: 256,
    description:
      'The origin of the page that embeds the frame; refused unless it is registered for the partner.',
  }),
  partner_id: Type.String({
    maxLength: 128,
    description:
      'The partner that the page is shown for; refused when that registration is test and the token is live, or the other way round.',
  }),
});
export type FlowSessionRequest = Static<typeof FlowSessionRequest>;

/** Kinds of failure; the kind decides whether the customer may try again. */
export const FAILURE_KINDS = [
  'declined',
  'duplicate',
  'possible_duplicate',
  'account',
  'amount',
  'other',
] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/** A way to pay that is on offer. */
export const FlowFundingMethod = Type.Object({
  funding_method: t.string(),
  label: t.string(),
  sandbox: t.flag('True: no money moves.'),
  ...t.optional({
    min_amount_in_cents: t.AmountInCents,
    max_amount_in_cents: t.AmountInCents,
    authorization_text: Type.Record(t.string(), t.string(), {
      description:
        'What the customer agrees to by paying, by language, `en` at least; `{biller}` and `{amount}` stand for the two.',
    }),
    frame: t.string(
      'Path of the processor’s page where the customer enters payment details; the confirm then carries `instrument`.',
    ),
    saves: t.flag(
      'Methods may be saved at the processor: ask `POST /v1/flow/saved-methods`, and pass its answer to the processor’s page.',
    ),
    express: t.flag(
      'The processor’s page has the button that pays, such as that of a wallet, and shows it where the device can: it stands beside the other methods, not among them.',
    ),
  }),
});
export type FlowFundingMethod = Static<typeof FlowFundingMethod>;

const { frame: _ofThePlatform, ...offered } = FlowFundingMethod.properties;
/** The same as the adapter of a processor offers it. A module in JavaScript meets no compiler: the platform checks it by this. */
export const OfferedMethod = Type.Object({
  ...offered,
  funding_method: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
  label: t.text('For the customer.'),
  ...t.optional({
    authorization_text: Type.Object({ en: t.string() }, { additionalProperties: t.string() }),
    collection: t.oneOf(
      ['reserved', 'afterwards', 'elsewhere'],
      'When it takes the money; default `reserved`.',
    ),
    asks: t.flag(
      'The customer enters details in the page of the adapter, whose result is the instrument.',
    ),
  }),
});
export type OfferedMethod = Static<typeof OfferedMethod>;

/** Body of the request for saved methods. */
export const FlowSavedMethodsRequest = t.strictObject({
  funding_method: Type.String({ minLength: 1, maxLength: 64 }),
});
export type FlowSavedMethodsRequest = Static<typeof FlowSavedMethodsRequest>;

/** Answer to it. */
export const FlowSavedMethods = Type.Object({
  data: t.nullable(
    t.string(),
    'For the processor’s page; null when nothing can be saved or shown.',
  ),
});
export type FlowSavedMethods = Static<typeof FlowSavedMethods>;

/** What the customer has to do before the funds are reserved. */
export const FlowAction = Type.Union([
  Type.Object({
    kind: Type.Literal('redirect'),
    url: t.string('A page of the processor or the bank; open it in a window.'),
  }),
  Type.Object({
    kind: Type.Literal('step_up'),
    data: t.string('Passed to the method’s own page (`frame`).'),
  }),
]);
export type FlowAction = Static<typeof FlowAction>;

/** The payment as its customer sees it. An unknown outcome is `processing`, never failed (EE9). */
export const FlowPayment = Type.Object({
  platform_payment_id: t.PlatformPaymentId,
  payment_id: t.nullable(t.string()),
  status: t.oneOf(PAYMENT_STATUSES),
  progress: t.oneOf(
    ['sending', 'accepted', 'ended'],
    'sending: the partner has not answered yet; accepted: it has accepted the payment; ended: terminal.',
  ),
  amount_in_cents: t.AmountInCents,
  funding_method: t.string(),
  created_at: t.instant('When the customer confirmed.'),
  initiated_at: t.nullable(t.instant('When the partner accepted it.')),
  posted_at: t.nullable(t.instant('When it was posted.')),
  ...t.optional({
    failure_reason: t.string(),
    failure: t.oneOf(
      FAILURE_KINDS,
      'What the failure means for the customer: declined (the funding method; the partner was never asked), duplicate (no second attempt is offered or accepted), account and amount (each a reason named by the interface), possible_duplicate (free text that may describe one: warn and ask), other.',
    ),
    action: FlowAction,
  }),
});
export type FlowPayment = Static<typeof FlowPayment>;

/** Everything that the page shows before the payment, read at the time of the request. */
export const FlowSession = Type.Object({
  session_id: t.string(),
  expires_at: t.instant('The end of the session.'),
  mode: t.Mode,
  partner: Type.Object({
    partner_id: t.string(),
    name: t.string(),
    support_contact: Type.Optional(
      t.string('Where customers get help, as the partner registered it.'),
    ),
  }),
  biller: Type.Object({
    biller_id: t.string(),
    name: t.string(),
    logo: Type.Optional(t.string('Name of its logo, at /flow/logos/{name}.')),
  }),
  account: Type.Object({
    masked_account_id: t.string('All but the last four characters hidden.'),
    balance: t.nullable(Balance),
    balance_source: t.oneOf(
      ['partner', 'token', 'none'],
      'Where the balance came from: the partner just now, the token, or nowhere.',
    ),
    payment_rules: PaymentRules,
  }),
  funding_methods: Type.Array(FlowFundingMethod),
  payment: t.nullable(
    FlowPayment,
    'The payment of this session, if there is one: the page opens on it.',
  ),
  ...t.optional({
    refunded_in_cents: t.whole('What of a payment that has succeeded went back to its customer.'),
    next_payment_id: t.platformPaymentId(
      'The id that the next payment of this customer for this account will have; absent while one is processing. The confirm names it: repeated with it, it makes one payment, whatever either side has lost in between.',
    ),
    last_paid: Type.Object(
      {
        platform_payment_id: t.PlatformPaymentId,
        amount_in_cents: t.AmountInCents,
        posted_at: t.instant('When it was posted.'),
      },
      { description: 'The last payment of this customer for this account that succeeded.' },
    ),
  }),
});
export type FlowSession = Static<typeof FlowSession>;

/** Result of the exchange. The page keeps the secret in memory only, never in storage or a URL. */
export const FlowSessionGrant = Type.Object({
  session: t.string('The secret; send it as a Bearer credential.'),
  session_id: t.string('Safe to show and to log.'),
  expires_at: t.instant('The end of the session.'),
  bill: Type.Optional(FlowSession),
});
export type FlowSessionGrant = Static<typeof FlowSessionGrant>;

/** Body of the way back: where a customer who came with the whole tab (display `redirect`) goes. */
export const FlowReturnRequest = t.strictObject({
  return_url: Type.String({
    minLength: 1,
    maxLength: 2048,
    description:
      'Where the customer goes; its origin must be registered for the partner. Its query must not hold a duebridge_result.',
  }),
  confirm_unanswered: Type.Optional(
    t.flag(
      'True when the page sent a confirm that was not answered: if there is no payment, the result is then unknown, not none.',
    ),
  ),
});
export type FlowReturnRequest = Static<typeof FlowReturnRequest>;

/** Answer to it. */
export const FlowReturn = Type.Object({
  location: t.string(
    'The return_url with the signed result in its query, as duebridge_result (decision 115).',
  ),
});
export type FlowReturn = Static<typeof FlowReturn>;

/** The signed result: the claims of a JWT, signed with Ed25519 under a key of `/flow/keys.json` (decision 115). */
export interface FlowResult {
  /** The partner that it is meant for. */
  readonly aud: string;
  /** Seconds since 1970. */
  readonly iat: number;
  /** A result that arrives later than this is refused. */
  readonly exp: number;
  /** Another one for each result. */
  readonly jti: string;
  /** SHA-256 of the token that opened the visit, in base64url: it names the customer's bill without telling it. */
  readonly token_sha256: string;
  /** `unknown` and `processing` may still become anything: neither means failed (EE9). */
  readonly status: PaymentStatus | 'unknown' | 'none';
  /** With a payment. */
  readonly platform_payment_id?: string;
  readonly amount_in_cents?: number;
}

/** Confirm. It makes one payment, however often it is sent (PL3). */
export const FlowPaymentRequest = t.strictObject({
  amount_in_cents: t.AmountInCents,
  funding_method: Type.String({ minLength: 1, maxLength: 64 }),
  platform_payment_id: t.platformPaymentId('`next_payment_id` of the session.'),
  ...t.optional({
    instrument: Type.String({
      // Twelve digits in a row may be a card or an account number: no token of a processor looks like one.
      pattern: '^(?!.*[0-9]{12})[A-Za-z0-9_.-]{1,255}$',
      description:
        "The processor's own name for what the customer entered in the method's page. Never a card or bank number.",
    }),
    repeated: Type.Literal(true, {
      description:
        'The same confirm was sent before and not answered: the partner may have the payment already.',
    }),
  }),
});
export type FlowPaymentRequest = Static<typeof FlowPaymentRequest>;
