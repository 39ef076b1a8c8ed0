/**
 * Cards and US bank accounts by Stripe, with Stripe's own library (decision 110). docs/funding.md tells how to go live.
 *
 * holds: the customer types into Stripe's fields, and the page returns a ConfirmationToken: no card or bank number comes here.
 *        Idempotency keys are our payment ids with the name of the act. A key's answer is repeated by Stripe for a day and then
 *        forgotten, so no act relies on its key alone: each looks at the object first, whose state allows it once.
 *
 * A card is held by a PaymentIntent with manual capture; the reference is the PaymentIntent. A bank account cannot be held: to authorize
 * it is a SetupIntent, which verifies the account and takes the mandate, and to capture it is the debit. Each payment has a Stripe
 * customer of its own without personal data, so that its debit can be found again without its key.
 *
 * next:  stripe-events.ts reads what Stripe's webhooks tell.
 */
import type { Stripe } from 'stripe';
import type {
  AdapterMethod,
  FundingAdapter,
  FundsOrder,
  PreparedOrder,
  ProcessorAuthorization,
  ProcessorCapture,
  RefundedPart,
  RefundPart,
} from './adapter.ts';
import {
  isRefusal,
  isTestKey,
  keyed,
  openStripeClient,
  type Key,
  type StripeAccess,
} from './stripe-client.ts';
import { codeOf, idOf, readEvent, type StripeError } from './stripe-events.ts';

/** `wallet`: Apple Pay and Google Pay, by Stripe's Express Checkout element; what comes of it is a card. */
export type StripeMethod = 'card' | 'us_bank_account' | 'wallet';

/** In the order in which they are offered. */
const METHODS: readonly StripeMethod[] = ['card', 'us_bank_account', 'wallet'];

/** The Stripe account, and the methods offered. */
export interface StripeSettings extends StripeAccess {
  readonly publishableKey: string;
  /** Signing secrets of the webhook endpoint; two while one is rotated. */
  readonly webhookSecrets: readonly string[];
  /** Default: cards and bank accounts. */
  readonly methods?: readonly StripeMethod[];
  /** Maximum bank debit in cents: the amount at risk if the debit is returned after the biller has posted the payment. */
  readonly bankMaxCents?: number;
  /** URL of Stripe.js; default https://js.stripe.com/v3/. */
  readonly scriptUrl?: string | undefined;
}

/** Stripe's limits of a charge in US dollars, in cents. */
const [MIN_CENTS, MAX_CENTS] = [50, 99_999_999];
/** Default of `bankMaxCents`: a large household bill. */
const BANK_MAX_CENTS = 250_000;

const AGREEMENT = {
  en: 'By paying, you authorize {biller} and its payment provider to debit {amount} from your bank account once the payment is posted. You may withdraw this authorization until then by contacting {biller}.',
  es: 'Al pagar, usted autoriza a {biller} y a su proveedor de pagos a cargar {amount} en su cuenta bancaria cuando el pago se registre. Hasta entonces puede retirar la autorización contactando a {biller}.',
  fr: 'En payant, vous autorisez {biller} et son prestataire de paiement à débiter {amount} de votre compte bancaire une fois le paiement enregistré. Vous pouvez retirer cette autorisation jusque-là en contactant {biller}.',
  pt: 'Ao pagar, você autoriza {biller} e seu provedor de pagamentos a debitar {amount} de sua conta bancária quando o pagamento for registrado. Até lá, você pode retirar a autorização entrando em contato com {biller}.',
};

/** Messages for the customer, by Stripe's code. Codes that hint at theft or fraud get the general message, as Stripe asks. */
const DECLINES: Readonly<Record<string, string>> = {
  insufficient_funds: 'There are insufficient funds.',
  expired_card: 'The card has expired.',
  incorrect_cvc: 'The security code is incorrect.',
  incorrect_number: 'The card number is incorrect.',
  authentication_required: 'The bank requires a confirmation that was not given.',
  payment_intent_authentication_failure: 'The bank could not confirm that it is you.',
  setup_intent_authentication_failure: 'The bank could not confirm that it is you.',
};
/** The error codes of a capture that came too late. */
const EXPIRED = new Set(['charge_expired_for_capture', 'capture_charge_authorization_expired']);
const DECLINED = 'The funding method was declined.';
const UNUSABLE = 'The payment details could not be used. Enter them again.';

/** Opens the adapter without calling Stripe. */
export function stripeAdapter(settings: StripeSettings): FundingAdapter {
  const { publishableKey, webhookSecrets, bankMaxCents = BANK_MAX_CENTS } = settings;
  const script = new URL(settings.scriptUrl ?? 'https://js.stripe.com/v3/');
  const stripe = openStripeClient(settings);
  const sandbox = isTestKey(settings.secretKey);
  const all = { sandbox, asks: true, min_amount_in_cents: MIN_CENTS };
  const most = { max_amount_in_cents: MAX_CENTS };
  const methods: Readonly<Record<StripeMethod, AdapterMethod>> = {
    card: { funding_method: 'stripe_card', label: 'Card', ...all, ...most, saves: true },
    us_bank_account: {
      funding_method: 'stripe_us_bank_account',
      label: 'Bank account',
      ...all,
      max_amount_in_cents: bankMaxCents,
      authorization_text: AGREEMENT,
    },
    wallet: {
      funding_method: 'stripe_wallet',
      label: 'Apple Pay or Google Pay',
      ...all,
      ...most,
      express: true,
    },
  };
  const offered = settings.methods ?? ['card', 'us_bank_account'];
  const card = cardFunds(stripe);
  const bank = bankFunds(stripe);
  const ways = (order: FundsOrder): Way =>
    order.funding_method === 'stripe_us_bank_account' ? bank : card;
  // In test mode Stripe serves its parts from the same hosts.
  const outside =
    settings.scriptUrl === undefined
      ? ['https://js.stripe.com', 'https://*.js.stripe.com']
      : [script.origin];
  return {
    name: 'stripe',
    methods: () => METHODS.filter((one) => offered.includes(one)).map((one) => methods[one]),
    prepare: (order, call) => ways(order).prepare(order, call),
    authorize: (order, call) => ways(order).authorize(order, call),
    capture: (order, call) => ways(order).capture(order, call),
    void: (order, call) => ways(order).void(order, call),
    async refund(order) {
      const payment_intent = await ways(order).taken(order);
      if (payment_intent === undefined) return;
      const metadata = metadataOf(order);
      try {
        await keyed(keyOf(order, 'refund'), (key) =>
          stripe.refunds.create({ payment_intent, metadata }, key),
        );
      } catch (error) {
        if (!isRefusal(error) || !GIVEN_BACK.includes(error.code ?? '')) throw error;
      }
    },
    async refundPart(order, part) {
      const intent = await ways(order).taken(order);
      return intent === undefined
        ? { kind: 'refused', reason: 'Stripe has no money of this payment' }
        : refundPartOf(stripe, order, intent, part);
    },
    page: {
      script: new URL('./dist/fund/stripe.js', import.meta.resolve('@duebridge/web/package.json')),
      settings: { publishable_key: publishableKey, script: script.href },
      ...(offered.includes('wallet') ? { wallets: [script.origin] } : {}),
      policy: {
        'script-src': outside,
        'frame-src': [...outside, 'https://hooks.stripe.com'],
        'connect-src': [
          settings.scriptUrl === undefined ? 'https://api.stripe.com' : script.origin,
        ],
        'img-src': ['https://*.stripe.com'],
      },
    },
    saved: savedMethods(stripe),
    async registerDomain(domain_name) {
      const { id } = await stripe.paymentMethodDomains.create({ domain_name });
      // A domain that was known is given back as it was: it may fulfil by now what it lacked then.
      const { apple_pay, google_pay } = await stripe.paymentMethodDomains.validate(id);
      const problems = [apple_pay, google_pay].map(({ status, status_details }) =>
        status === 'active' ? undefined : (status_details?.error_message ?? status),
      );
      return problems.find((problem) => problem !== undefined);
    },
    readEvent: (request) => readEvent(stripe, webhookSecrets, request),
  };
}

/** Stripe's own element shows, saves with consent and removes; it has to be told of whom. */
function savedMethods(stripe: Stripe): NonNullable<FundingAdapter['saved']> {
  const payment_element = {
    enabled: true,
    features: {
      payment_method_redisplay: 'enabled',
      payment_method_remove: 'enabled',
      payment_method_save: 'enabled',
      // The customer is at the page whenever it is used again.
      payment_method_save_usage: 'on_session',
    },
  } as const;
  return {
    create: async () => (await stripe.customers.create({})).id,
    async open(customer) {
      const session = await stripe.customerSessions.create({
        customer,
        components: { payment_element },
      });
      return session.client_secret;
    },
    forget: (customer) => deleteCustomer(stripe, customer),
  };
}

async function deleteCustomer(stripe: Stripe, customer: string): Promise<void> {
  try {
    await stripe.customers.del(customer);
  } catch (error) {
    if (!isRefusal(error) || error.code !== 'resource_missing') throw error;
  }
}

/** The operations of one kind of method. */
type Way = Required<Pick<FundingAdapter, 'prepare' | 'authorize' | 'capture' | 'void'>> & {
  /** The PaymentIntent that has taken the money, or undefined. */
  taken(order: PreparedOrder): Promise<string | undefined>;
};

// Cards ----------------------------------------------------------------------------------------------------------------------

function cardFunds(stripe: Stripe): Way {
  const look = (reference: string): Promise<Stripe.PaymentIntent> =>
    stripe.paymentIntents.retrieve(reference, { expand: ['latest_charge'] });
  const { authorize, giveUp } = authorizing<Stripe.PaymentIntent>({
    look,
    confirm: (reference, details, key) =>
      stripe.paymentIntents.confirm(reference, { ...details, expand: ['latest_charge'] }, key),
    // Nothing can be held by a canceled one, whatever the page still sends.
    cancel: (reference, key) => stripe.paymentIntents.cancel(reference, {}, key),
    failed: (intent) => intent.last_payment_error,
    authorized(intent, { amount_in_cents, platform_payment_id }) {
      if (intent.amount !== amount_in_cents) {
        throw new Error(`${intent.id} has another amount than ${platform_payment_id}`);
      }
      return { kind: 'authorized', ...expiryOf(intent) };
    },
  });
  return {
    async prepare(order) {
      const intent = await keyed(keyOf(order, 'create'), (key) =>
        stripe.paymentIntents.create(
          {
            amount: order.amount_in_cents,
            currency: 'usd',
            capture_method: 'manual',
            ...(order.customer === undefined ? {} : { customer: order.customer }),
            allowed_payment_method_types: ['card'],
            metadata: metadataOf(order),
          },
          key,
        ),
      );
      return intent.id;
    },
    authorize,
    async capture(order) {
      const { reference, amount_in_cents } = order;
      const taken = ({ id, amount_received }: Stripe.PaymentIntent): ProcessorCapture => {
        if (amount_received === amount_in_cents) return { kind: 'captured' };
        const reason = `${id} was captured with ${amount_received} cents only`;
        return { kind: 'uncollectable', reason };
      };
      try {
        const intent = await keyed(keyOf(order, 'capture'), (key) =>
          stripe.paymentIntents.capture(reference, {}, key),
        );
        if (intent.status === 'succeeded') return taken(intent);
        throw new Error(`${reference} is ${intent.status} after its capture`);
      } catch (error) {
        if (!isRefusal(error)) throw error;
        // Captured already, by a call whose answer was lost or by hand; or it has expired.
        const intent = await look(reference);
        if (intent.status === 'succeeded') return taken(intent);
        if (intent.status === 'canceled' || EXPIRED.has(error.code ?? '')) {
          const why = intent.cancellation_reason ?? error.code ?? 'canceled';
          return { kind: 'uncollectable', reason: `the authorization ${reference} ended (${why})` };
        }
        throw error;
      }
    },
    async void(order) {
      try {
        await giveUp(order);
        return 'released';
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const { status } = await look(order.reference);
        if (status === 'canceled') return 'released';
        if (status === 'succeeded') return 'captured';
        throw error;
      }
    },
    async taken(order) {
      const { status, id } = await look(order.reference);
      return status === 'succeeded' ? id : undefined;
    },
  };
}

/** When the card's authorization expires, if Stripe says so. */
function expiryOf({ latest_charge }: Stripe.PaymentIntent): { readonly expires_at?: number } {
  if (latest_charge === null || typeof latest_charge === 'string') return {};
  const before = latest_charge.payment_method_details?.card?.capture_before;
  return before === undefined ? {} : { expires_at: before * 1_000 };
}

// Bank accounts --------------------------------------------------------------------------------------------------------------

function bankFunds(stripe: Stripe): Way {
  const { authorize, giveUp } = authorizing<Stripe.SetupIntent>({
    look: (reference) => stripe.setupIntents.retrieve(reference),
    confirm: (reference, details, key) => stripe.setupIntents.confirm(reference, details, key),
    cancel: (reference, key) => stripe.setupIntents.cancel(reference, {}, key),
    failed: (intent) => intent.last_setup_error,
    authorized: () => ({ kind: 'authorized' }),
  });
  /** The debit of this payment, if one was made: its customer has no other. A list is up to date, unlike a search. */
  const debitOf = async (customer: string) => {
    const { data } = await stripe.paymentIntents.list({ customer, limit: 10 });
    return data.find((intent) => intent.status !== 'canceled');
  };
  return {
    async prepare(order) {
      const metadata = metadataOf(order);
      const customer = await keyed(keyOf(order, 'customer'), (key) =>
        stripe.customers.create({ metadata }, key),
      );
      const intent = await keyed(keyOf(order, 'create'), (key) =>
        stripe.setupIntents.create(
          {
            customer: customer.id,
            allowed_payment_method_types: ['us_bank_account'],
            // Microdeposits would take days; the customer waits at the page.
            payment_method_options: { us_bank_account: { verification_method: 'instant' } },
            usage: 'off_session',
            metadata,
          },
          key,
        ),
      );
      return intent.id;
    },
    authorize,
    async capture(order) {
      const setup = await stripe.setupIntents.retrieve(order.reference);
      const customer = idOf(setup.customer);
      const payment_method = idOf(setup.payment_method);
      if (setup.status !== 'succeeded' || customer === undefined || payment_method === undefined) {
        return { kind: 'uncollectable', reason: `the mandate ${setup.id} is ${setup.status}` };
      }
      const mandate = idOf(setup.mandate);
      const before = await debitOf(customer);
      if (before !== undefined) return judgeDebit(before);
      try {
        const debit = await keyed(keyOf(order, 'capture'), (key) =>
          stripe.paymentIntents.create(
            {
              amount: order.amount_in_cents,
              currency: 'usd',
              customer,
              payment_method,
              allowed_payment_method_types: ['us_bank_account'],
              ...(mandate === undefined ? {} : { mandate }),
              confirm: true,
              off_session: true,
              metadata: metadataOf(order),
            },
            key,
          ),
        );
        return judgeDebit(debit);
      } catch (error) {
        if (!isRefusal(error)) throw error;
        const made = await debitOf(customer);
        if (made !== undefined) return judgeDebit(made);
        return { kind: 'uncollectable', reason: `the debit was refused (${codeOf(error)})` };
      }
    },
    async void(order) {
      const setup = await stripe.setupIntents.retrieve(order.reference);
      const customer = idOf(setup.customer);
      if (customer !== undefined && (await debitOf(customer)) !== undefined) return 'captured';
      if (setup.status !== 'succeeded' && setup.status !== 'canceled') await giveUp(order);
      if (customer === undefined) return 'released';
      // Deleting the customer also deletes the bank account and the mandate.
      await deleteCustomer(stripe, customer);
      return 'released';
    },
    /** A failed debit has taken nothing. */
    async taken(order) {
      const setup = await stripe.setupIntents.retrieve(order.reference);
      const customer = idOf(setup.customer);
      const debit = customer === undefined ? undefined : await debitOf(customer);
      return debit?.last_payment_error === null ? debit.id : undefined;
    },
  };
}

/** A debit takes days to clear: from here on only the bank can return it, which a webhook tells. */
function judgeDebit({ id, status, last_payment_error }: Stripe.PaymentIntent): ProcessorCapture {
  if (last_payment_error !== null) {
    const why = codeOf(last_payment_error);
    return { kind: 'uncollectable', reason: `the debit ${id} failed (${why})` };
  }
  if (status === 'processing' || status === 'succeeded') return { kind: 'captured' };
  throw new Error(`the debit ${id} is ${status}`);
}

// What both need -------------------------------------------------------------------------------------------------------------

/** The idempotency key of an act: the payment's own id and the name of the act. */
const keyOf = ({ platform_payment_id }: FundsOrder, act: string): string =>
  `${platform_payment_id}:${act}`;

/** By which webhooks name the payment (stripe-events.ts). */
const metadataOf = ({ platform_payment_id }: FundsOrder) => ({ platform_payment_id });

/** How an authorization is read, confirmed and ended: by a PaymentIntent for a card, by a SetupIntent for a bank account. */
interface Intents<Intent> {
  look(reference: string): Promise<Intent>;
  confirm(
    reference: string,
    details: { confirmation_token?: string; use_stripe_sdk: true },
    key: Key,
  ): Promise<Intent>;
  cancel(reference: string, key: Key): Promise<unknown>;
  /** Its last error. */
  failed(intent: Intent): StripeError | null;
  /** What it says once it holds funds. Throws when it is not for the amount of the order. */
  authorized(intent: Intent, order: PreparedOrder): ProcessorAuthorization;
}

/**
 * Authorizes an intent: looks first, sends the customer's details once, and looks again if Stripe refuses them, because the answer to an
 * earlier call may have been lost.
 */
function authorizing<Intent extends Stripe.PaymentIntent | Stripe.SetupIntent>(
  intents: Intents<Intent>,
) {
  const giveUp = (order: PreparedOrder): Promise<unknown> =>
    keyed(keyOf(order, 'cancel'), (key) => intents.cancel(order.reference, key));
  const decline = async (order: PreparedOrder, reason: string): Promise<ProcessorAuthorization> => {
    await giveUp(order);
    return { kind: 'declined', reason };
  };
  /** The state of an authorization; 'confirm' when the customer's details have not been sent yet. */
  const judge = async (
    order: PreparedOrder,
    intent: Intent,
  ): Promise<ProcessorAuthorization | 'confirm'> => {
    // First: an intent of another amount must not be confirmed.
    const authorized = intents.authorized(intent, order);
    const failed = intents.failed(intent);
    switch (intent.status) {
      case 'requires_payment_method':
        return failed === null ? 'confirm' : decline(order, declineText(failed));
      case 'requires_confirmation':
        return 'confirm';
      case 'requires_action':
        return actionOf(intent);
      case 'processing':
        return { kind: 'pending' };
      case 'requires_capture':
      case 'succeeded':
        return authorized;
      case 'canceled':
        return { kind: 'declined', reason: DECLINED };
      default:
        throw new Error(`${intent.id} has the unknown status ${intent.status}`);
    }
  };
  const authorize = async (order: PreparedOrder): Promise<ProcessorAuthorization> => {
    const { reference, instrument } = order;
    const before = await judge(order, await intents.look(reference));
    if (before !== 'confirm') return before;
    const token = instrument === undefined ? {} : { confirmation_token: instrument };
    try {
      const details = { ...token, use_stripe_sdk: true } as const;
      const intent = await keyed(keyOf(order, 'confirm'), (key) =>
        intents.confirm(reference, details, key),
      );
      const after = await judge(order, intent);
      return after === 'confirm' ? { kind: 'pending' } : after;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      const after = await judge(order, await intents.look(reference));
      return after === 'confirm' ? decline(order, UNUSABLE) : after;
    }
  };
  return { authorize, giveUp };
}

/** Refunded already, or the customer's bank has already taken it back. */
const GIVEN_BACK = ['charge_already_refunded', 'charge_disputed', 'refund_disputed_payment'];
/** Stripe's words for a part that it will never refund. */
const NEVER_REFUNDED = [...GIVEN_BACK, 'amount_too_large'];

/**
 * A part of what was taken. Stripe forgets idempotency keys after a day, so that a refund is first looked for among those of the payment, by
 * our id in its metadata.
 */
async function refundPartOf(
  stripe: Stripe,
  order: PreparedOrder,
  payment_intent: string,
  { refund_id, amount_in_cents }: RefundPart,
): Promise<RefundedPart> {
  const { data } = await stripe.refunds.list({ payment_intent, limit: 100 });
  const known = data.find(({ metadata }) => metadata?.['refund_id'] === refund_id);
  try {
    const refund =
      known ??
      (await keyed(keyOf(order, `refund:${refund_id}`), (key) =>
        stripe.refunds.create(
          {
            payment_intent,
            amount: amount_in_cents,
            metadata: { ...metadataOf(order), refund_id },
          },
          key,
        ),
      ));
    const { id, status } = refund;
    if (status === 'succeeded') return { kind: 'refunded' };
    if (status === 'failed' || status === 'canceled') {
      return { kind: 'refused', reason: `the refund ${id} is ${status}` };
    }
    // It may still fail; asked again, it is found by its metadata.
    throw new Error(`the refund ${id} is ${status}`);
  } catch (error) {
    if (!isRefusal(error) || !NEVER_REFUNDED.includes(error.code ?? '')) throw error;
    return { kind: 'refused', reason: `Stripe refused it (${error.code})` };
  }
}

function actionOf(intent: Stripe.PaymentIntent | Stripe.SetupIntent): ProcessorAuthorization {
  const url = intent.next_action?.redirect_to_url?.url ?? null;
  if (url !== null) return { kind: 'requires_action', action: { kind: 'redirect', url } };
  if (intent.client_secret === null)
    throw new Error('Stripe asks for an action and gave no secret');
  return { kind: 'requires_action', action: { kind: 'step_up', data: intent.client_secret } };
}

function declineText(error: StripeError): string {
  return DECLINES[error.decline_code ?? ''] ?? DECLINES[error.code ?? ''] ?? DECLINED;
}
