/**
 * An imitation of the part of Stripe's API that the adapter uses, over real HTTP: form bodies, idempotency keys, states, errors and
 * signed webhooks. The adapter's calls are checked by the types of Stripe's library, and so are the objects here: each has the fields that
 * the adapter reads.
 *
 * One file because it imitates one API, whose objects refer to each other.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { served, type Cleanup } from '@duebridge/runtime/testing';
import { Stripe } from 'stripe';
import type { StripeSettings } from '../src/funding/stripe.ts';

const SECRET_KEY = 'sk_test_imitation';
const WEBHOOK_SECRET = 'whsec_imitation';

/** A test's decision about a call: leave it; answer with an error instead; or execute it and lose the answer. */
type Fate =
  | undefined
  | {
      readonly kind: 'fail';
      readonly status: number;
      readonly code?: string;
      readonly keepsKey?: boolean;
    }
  | { readonly kind: 'lose' }
  | { readonly kind: 'hang' };

/** A recorded call, such as `POST /v1/payment_intents/{id}/capture` without the id. */
interface Call {
  readonly method: string;
  /** With every id replaced by `:id`. */
  readonly route: string;
  readonly id: string;
  readonly form: ReadonlyMap<string, string>;
  readonly key: string | undefined;
}

/** Numbers in Stripe's documentation that do not simply succeed. */
const ASKS = '4000000000003220';
/** The error code of each card that is declined, and the decline code where it has one. */
const DECLINED: Readonly<Record<string, readonly [code: string, decline?: string]>> = {
  '4000000000000002': ['card_declined', 'generic_decline'],
  '4000000000009995': ['card_declined', 'insufficient_funds'],
  '4000000000009979': ['card_declined', 'stolen_card'],
  '4242424242424241': ['incorrect_number'],
};
/** An account that its bank wants confirmed before anything is debited. */
export const BANK_CONFIRMS = '000999999991';
/** An account that cannot be set up: it is closed. */
export const BANK_CLOSED = '000111111113';
/** An account whose debits are returned; its setup succeeds. */
export const BANK_REFUSED = '000111111116';
/** An account whose debits the bank wants approved first. */
export const BANK_ASKS = '000222222227';
/** A connected account that was closed. */
export const CLOSED_ACCOUNT = 'acct_closed';
export const NUMBERS = {
  good: '4242424242424242',
  declined: '4000000000000002',
  asks: ASKS,
  /** A card whose bank wants the approval at a page of its own. */
  redirects: '4000000000003055',
  bank: '000123456789',
} as const;

class Refused extends Error {
  readonly status: number;
  readonly body: object;
  constructor(status: number, error: object) {
    super(JSON.stringify(error));
    this.status = status;
    this.body = { error };
  }
}

/** Stripe's answer to a request that it understands and does not carry out. */
function invalid(code: string | undefined, message: string, status = 400): Refused {
  return new Refused(status, { type: 'invalid_request_error', code, message });
}

const seconds = (): number => Math.floor(Date.now() / 1_000);

/** Starts the imitation on a free port. */
export async function startStripe(cleanup: Cleanup) {
  const numbers = new Map<string, string>();
  /** The tokens whose customer wants the card saved. */
  const saving = new Set<string>();
  const charges = new Map<string, Stripe.Charge>();
  const keys = new Map<
    string,
    { readonly text: string; readonly status: number; readonly body: string }
  >();
  let ids = 0;
  const newId = (kind: string): string => {
    ids += 1;
    // Letters between the digits, like Stripe's ids: never twelve digits in a row.
    return `${kind}_${ids}x${process.hrtime.bigint().toString(36)}`;
  };
  const server = createServer((request, response) => void answer(request, response));

  const self = {
    url: '',
    /** What a platform needs to use it. */
    settings: {
      secretKey: SECRET_KEY,
      publishableKey: 'pk_test_imitation',
      webhookSecrets: [WEBHOOK_SECRET],
    } as StripeSettings,
    calls: [] as Call[],
    intents: new Map<string, Stripe.PaymentIntent>(),
    setups: new Map<string, Stripe.SetupIntent>(),
    customers: new Map<string, Stripe.Customer | Stripe.DeletedCustomer>(),
    refunds: [] as Stripe.Refund[],
    /** Transfers to connected accounts. */
    transfers: [] as Stripe.Transfer[],
    /** The numbers that each customer has saved. */
    saved: new Map<string, Set<string>>(),
    /** The domains that were registered for wallets, by id. */
    domains: new Map<string, Stripe.PaymentMethodDomain>(),
    /** How many times funds were captured, by intent. */
    taken: new Map<string, number>(),
    /** Seconds until a card's authorization expires, by amount; a week by default. */
    holdSeconds: new Map<number, number>(),
    /** Called before every call. */
    script: (_call: Call): Fate => undefined,
    /** The token that Stripe's fields return for a card or account number from its test list. */
    token(number: string): string {
      const id = newId('ctoken');
      numbers.set(id, number);
      return id;
    },
    /** The intent of a payment. */
    intentOf(platform_payment_id: string): Stripe.PaymentIntent {
      const found = [...self.intents.values()].find(
        ({ metadata }) => metadata['platform_payment_id'] === platform_payment_id,
      );
      if (found === undefined) throw new Error(`no intent of ${platform_payment_id}`);
      return found;
    },
    /** The customer approves or fails the step-up of an intent. */
    act(id: string, approves: boolean): void {
      const intent = self.intents.get(id);
      if (intent?.status === 'requires_action') {
        intent.next_action = null;
        if (approves) hold(intent);
        else
          refuse(intent, 'payment_intent_authentication_failure', 'The customer did not confirm.');
      }
      const setup = self.setups.get(id);
      if (setup?.status === 'requires_action') {
        setup.next_action = null;
        setup.status = approves ? 'succeeded' : 'requires_payment_method';
        if (!approves) {
          setup.last_setup_error = {
            type: 'invalid_request_error',
            code: 'setup_intent_authentication_failure',
            message: 'The customer did not confirm.',
          };
        }
      }
    },
    /** The authorization expires. */
    expire(id: string): void {
      const intent = get(self.intents, id);
      intent.status = 'canceled';
      intent.cancellation_reason = 'automatic';
      intent.canceled_at = seconds();
      intent.amount_capturable = 0;
    },
    /** Somebody captures it in the dashboard. */
    captureByHand: (id: string): void => take(get(self.intents, id)),
    dispute: newDispute,
    /** Somebody refunds it in the dashboard: the charge. */
    refundByHand(id: string): Stripe.Charge {
      const intent = get(self.intents, id);
      const charge = get(charges, intent.latest_charge as string);
      // Nobody gives it metadata in the dashboard.
      self.refunds.push({ ...newRefund(newId('re'), intent), metadata: {} });
      return Object.assign(charge, { refunded: true, amount_refunded: charge.amount });
    },
    /** Idempotency keys are forgotten, as after a day: those that begin with `start`, such as a payment's id, or all. */
    forgetKeys: (start = ''): void => {
      for (const key of keys.keys()) if (key.startsWith(start)) keys.delete(key);
    },
    /** A webhook signed like Stripe's: its body and its header. */
    webhook(
      type: string,
      object: object,
      { id = newId('evt'), secret = WEBHOOK_SECRET, at = seconds() } = {},
    ): { readonly raw: string; readonly headers: Record<string, string> } {
      const raw = JSON.stringify({
        id,
        object: 'event',
        api_version: Stripe.API_VERSION ?? null,
        created: at,
        data: { object },
        livemode: false,
        pending_webhooks: 1,
        request: { id: null, idempotency_key: null },
        type,
      });
      const signature = new Stripe(SECRET_KEY).webhooks.generateTestHeaderString({
        payload: raw,
        secret,
        timestamp: at,
      });
      return { raw, headers: { 'stripe-signature': signature } };
    },
  };

  function get<T>(map: ReadonlyMap<string, T>, id: string): T {
    const found = map.get(id);
    if (found !== undefined) return found;
    throw invalid('resource_missing', `No such object: '${id}'`, 404);
  }

  const unexpected = (intent: { readonly status: string }, kind: string): Refused =>
    invalid(
      `${kind}_unexpected_state`,
      `This object has a status of ${intent.status}, which does not allow that.`,
    );

  function hold(intent: Stripe.PaymentIntent): void {
    const charge = newCharge(
      newId('ch'),
      intent,
      seconds() + (self.holdSeconds.get(intent.amount) ?? 7 * 86_400),
    );
    charges.set(charge.id, charge);
    intent.latest_charge = charge.id;
    intent.status = 'requires_capture';
    intent.amount_capturable = intent.amount;
  }

  function take(intent: Stripe.PaymentIntent): void {
    intent.status = 'succeeded';
    intent.amount_received = intent.amount;
    intent.amount_capturable = 0;
    self.taken.set(intent.id, (self.taken.get(intent.id) ?? 0) + 1);
  }

  /** The error of a card or bank in the library's form, stored on the intent. */
  function refuse(
    intent: Stripe.PaymentIntent,
    code: string,
    message: string,
    decline?: string,
  ): object {
    const error = {
      type: 'card_error',
      code,
      message,
      ...(decline === undefined ? {} : { decline_code: decline }),
    } as const;
    intent.status = 'requires_payment_method';
    intent.payment_method = null;
    intent.last_payment_error = error;
    return error;
  }

  /** The handler of each route. */
  const routes: Readonly<Record<string, (call: Call) => object>> = {
    'POST /v1/payment_intents': ({ form }) => {
      const amount = Number(form.get('amount'));
      if (!Number.isInteger(amount) || amount < 50) {
        throw invalid('amount_too_small', 'Amount must be at least $0.50 usd');
      }
      const intent = newIntent(newId('pi'), amount, form);
      self.intents.set(intent.id, intent);
      if (form.get('confirm') === 'true') {
        const setup = [...self.setups.values()].find((one) => one.customer === intent.customer);
        if (setup?.payment_method === `pm_${BANK_REFUSED}`) {
          throw new Refused(402, refuse(intent, 'debit_not_authorized', 'The debit was refused.'));
        }
        if (setup?.payment_method === `pm_${BANK_ASKS}`) {
          intent.status = 'requires_action';
          return intent;
        }
        intent.status = 'processing';
        self.taken.set(intent.id, (self.taken.get(intent.id) ?? 0) + 1);
      }
      return intent;
    },
    'GET /v1/payment_intents': ({ form }) => ({
      object: 'list',
      url: '/v1/payment_intents',
      has_more: false,
      data: [...self.intents.values()].filter(({ customer }) => customer === form.get('customer')),
    }),
    'GET /v1/payment_intents/:id': ({ id }) => get(self.intents, id),
    'POST /v1/payment_intents/:id/confirm': ({ id, form }) => {
      const intent = get(self.intents, id);
      if (!['requires_payment_method', 'requires_confirmation'].includes(intent.status)) {
        throw unexpected(intent, 'payment_intent');
      }
      const number = get(numbers, form.get('confirmation_token') ?? '');
      const declined = DECLINED[number];
      if (declined !== undefined) {
        const [code, decline] = declined;
        throw new Refused(402, refuse(intent, code, 'Your card was declined.', decline));
      }
      intent.payment_method = newId('pm');
      const customer = idOf(intent.customer);
      if (customer !== undefined && saving.has(form.get('confirmation_token') ?? ''))
        self.saved.set(customer, (self.saved.get(customer) ?? new Set()).add(number));
      if (number === ASKS) {
        intent.status = 'requires_action';
        intent.next_action = { type: 'use_stripe_sdk', use_stripe_sdk: {} };
      } else if (number === NUMBERS.redirects) {
        const redirect = { url: `${self.url}/bank?intent=${id}`, return_url: null };
        intent.status = 'requires_action';
        intent.next_action = { type: 'redirect_to_url', redirect_to_url: redirect };
      } else {
        hold(intent);
      }
      return intent;
    },
    'POST /v1/payment_intents/:id/capture': ({ id }) => {
      const intent = get(self.intents, id);
      if (intent.status !== 'requires_capture') throw unexpected(intent, 'payment_intent');
      take(intent);
      return intent;
    },
    'POST /v1/payment_intents/:id/cancel': ({ id }) => {
      const intent = get(self.intents, id);
      if (intent.status === 'succeeded' || intent.status === 'canceled') {
        throw unexpected(intent, 'payment_intent');
      }
      intent.status = 'canceled';
      intent.canceled_at = seconds();
      intent.amount_capturable = 0;
      return intent;
    },
    'POST /v1/setup_intents': ({ form }) => {
      const setup = newSetup(newId('seti'), form);
      self.setups.set(setup.id, setup);
      return setup;
    },
    'GET /v1/setup_intents/:id': ({ id }) => get(self.setups, id),
    'POST /v1/setup_intents/:id/confirm': ({ id, form }) => {
      const setup = get(self.setups, id);
      if (setup.status !== 'requires_payment_method') throw unexpected(setup, 'setup_intent');
      const number = get(numbers, form.get('confirmation_token') ?? '');
      if (number === BANK_CONFIRMS) {
        setup.status = 'requires_action';
        setup.payment_method = `pm_${number}`;
        setup.next_action = { type: 'use_stripe_sdk', use_stripe_sdk: {} };
        return setup;
      }
      if (number === BANK_CLOSED) {
        setup.last_setup_error = {
          type: 'invalid_request_error',
          code: 'bank_account_unusable',
          message: 'The bank account cannot be used.',
        };
        throw new Refused(400, setup.last_setup_error);
      }
      setup.status = 'succeeded';
      setup.payment_method = `pm_${number}`;
      setup.mandate = newId('mandate');
      return setup;
    },
    'POST /v1/setup_intents/:id/cancel': ({ id }) => {
      const setup = get(self.setups, id);
      if (setup.status === 'succeeded' || setup.status === 'canceled') {
        throw unexpected(setup, 'setup_intent');
      }
      setup.status = 'canceled';
      return setup;
    },
    'POST /v1/customers': ({ form }) => {
      const customer = made<Stripe.Customer>({
        id: newId('cus'),
        email: form.get('email') ?? null,
        metadata: metadataOf(form),
      });
      self.customers.set(customer.id, customer);
      return customer;
    },
    'POST /v1/customer_sessions': ({ form }) => {
      const { id: customer } = get(self.customers, form.get('customer') ?? '');
      const client_secret = `${customer}_secret_session`;
      return made<Stripe.CustomerSession>({ client_secret, customer });
    },
    'DELETE /v1/customers/:id': ({ id }) => {
      self.saved.delete(id);
      get(self.customers, id);
      const gone: Stripe.DeletedCustomer = { id, object: 'customer', deleted: true };
      self.customers.set(id, gone);
      return gone;
    },
    'POST /v1/payment_method_domains': ({ form }) => {
      const domain_name = form.get('domain_name') ?? '';
      const known = [...self.domains.values()].find((one) => one.domain_name === domain_name);
      const domain = known ?? newDomain(newId('pmd'), domain_name);
      self.domains.set(domain.id, domain);
      return domain;
    },
    'POST /v1/payment_method_domains/:id/validate': ({ id }) => get(self.domains, id),
    'GET /v1/refunds': ({ form }) => ({
      object: 'list',
      url: '/v1/refunds',
      has_more: false,
      data: self.refunds.filter((one) => one.payment_intent === form.get('payment_intent')),
    }),
    'POST /v1/refunds': ({ form }) => {
      const intent = get(self.intents, form.get('payment_intent') ?? '');
      const before = self.refunds
        .filter((one) => one.payment_intent === intent.id)
        .reduce((sum, one) => sum + one.amount, 0);
      const amount = Number(form.get('amount') ?? intent.amount);
      if (before > 0 && before + amount > intent.amount) {
        throw invalid('charge_already_refunded', 'Charge has already been refunded.');
      }
      const refund_id = form.get('metadata[refund_id]');
      const refund = {
        ...newRefund(newId('re'), intent),
        amount,
        metadata: refund_id === undefined ? intent.metadata : { ...intent.metadata, refund_id },
      };
      self.refunds.push(refund);
      return refund;
    },
    'POST /v1/transfers': ({ form }) => {
      const destination = form.get('destination') ?? '';
      if (destination === CLOSED_ACCOUNT) {
        throw invalid('insufficient_capabilities_for_transfer', `${destination} cannot be paid.`);
      }
      const transfer = made<Stripe.Transfer>({
        id: newId('tr'),
        amount: Number(form.get('amount')),
        currency: form.get('currency') ?? '',
        destination,
        reversed: false,
        transfer_group: form.get('transfer_group') ?? null,
      });
      self.transfers.push(transfer);
      return transfer;
    },
    'GET /v1/transfers': ({ form }) => ({
      object: 'list',
      url: '/v1/transfers',
      has_more: false,
      data: self.transfers.filter((one) => one.transfer_group === form.get('transfer_group')),
    }),
  };

  const customerOf = (session: string): string => session.replace('_secret_session', '');
  /** With a customer's session: what is saved, a way to remove it, and the question whether to save what is entered. */
  const savedFields = (session: string): string => {
    if (session === '') return '';
    const cards = [...(self.saved.get(customerOf(session)) ?? [])].map(
      (number) =>
        `<label><input type="radio" name="saved" value="${number}"> Card ending in ${number.slice(-4)}</label>` +
        '<button type="button" id="remove">Remove</button>',
    );
    return `${cards.join('')}<label><input type="checkbox" id="save"> Save this card for next time</label>`;
  };

  /** What Stripe serves to browsers: its script, its fields and its challenge, each as a frame from its own origin. */
  const browser = ({ route, form }: Call, response: ServerResponse): boolean => {
    const give = (type: string, body: string): true => {
      response.writeHead(200, { 'content-type': type });
      response.end(body);
      return true;
    };
    switch (route) {
      case 'GET /v3/':
        return give('text/javascript', STRIPE_JS.replaceAll('__URL__', self.url));
      case 'GET /fields':
        return give(
          'text/html',
          FIELDS.replace('__SAVED__', () => savedFields(form.get('session') ?? '')),
        );
      case 'GET /wallet':
        return give('text/html', WALLET);
      case 'GET /bank':
        return give('text/html', '<title>Bank</title><form method="post"><button>Approve</button>');
      case 'POST /bank':
        self.act(form.get('intent') ?? '', true);
        return give('text/html', '<title>Bank</title>Thank you.');
      case 'GET /challenge':
        return give('text/html', CHALLENGE);
      case 'POST /tokens': {
        const token = self.token(form.get('number') ?? '');
        if (form.get('save') === 'yes') saving.add(token);
        return give('text/plain', token);
      }
      case 'POST /removals':
        self.saved.delete(customerOf(form.get('session') ?? ''));
        return give('text/plain', 'ok');
      case 'POST /acts':
        self.act(
          (form.get('secret') ?? '').replace('_secret_imitation', ''),
          form.get('approves') === 'yes',
        );
        return give('text/plain', 'ok');
      default:
        return false;
    }
  };

  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const url = new URL(request.url ?? '', 'http://stripe');
    const id = /\/((?:pi|seti|cus|pmd)_[^/]+)/.exec(url.pathname)?.[1] ?? '';
    const form = new Map(new URLSearchParams(text === '' ? url.search : text));
    const key = request.headers['idempotency-key'];
    const method = request.method ?? '';
    const call: Call = {
      method,
      route: `${method} ${id === '' ? url.pathname : url.pathname.replace(id, ':id')}`,
      id,
      form,
      key: typeof key === 'string' ? key : undefined,
    };
    self.calls.push(call);
    const send = (status: number, body: string, headers: Record<string, string> = {}): void => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'request-id': newId('req'),
        ...headers,
      });
      response.end(body);
    };
    const fate = self.script(call);
    if (fate?.kind === 'hang') return;
    if (browser(call, response)) return;
    const known = call.key === undefined ? undefined : keys.get(call.key);
    if (known !== undefined) {
      if (known.text !== text) {
        return send(
          400,
          JSON.stringify({ error: { type: 'idempotency_error', message: 'Other parameters.' } }),
        );
      }
      return send(known.status, known.body, { 'idempotent-replayed': 'true' });
    }
    if (fate?.kind === 'fail') {
      const code = fate.code ?? (fate.status === 429 ? 'rate_limit' : undefined);
      const type = fate.status < 500 ? 'invalid_request_error' : 'api_error';
      const body = JSON.stringify({ error: { type, code, message: `scripted ${fate.status}` } });
      if (fate.keepsKey === true && call.key !== undefined) {
        keys.set(call.key, { text, status: fate.status, body });
      }
      return send(fate.status, body);
    }
    let status = 200;
    let body: object;
    try {
      if (request.headers.authorization !== `Bearer ${SECRET_KEY}`) {
        throw invalid(undefined, 'Invalid API Key', 401);
      }
      const act = routes[call.route];
      if (act === undefined) throw new Error(`the imitation has no ${call.route}`);
      body = act(call);
      const expands = [...form].some(
        ([name, value]) => name.startsWith('expand') && value === 'latest_charge',
      );
      if (expands && 'latest_charge' in body) {
        body = { ...body, latest_charge: charges.get(body.latest_charge as string) ?? null };
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      ({ status, body } = error);
    }
    const json = JSON.stringify(body);
    if (call.key !== undefined) keys.set(call.key, { text, status, body: json });
    if (fate?.kind === 'lose') return void request.socket.destroy();
    send(status, json);
  };

  const url = await served(cleanup, server);
  return Object.assign(self, {
    url,
    settings: { ...self.settings, apiUrl: url, scriptUrl: `${url}/v3/` },
  });
}

// Objects -----------------------------------------------------------

function idOf(linked: string | { readonly id: string } | null): string | undefined {
  return linked === null || typeof linked === 'string' ? (linked ?? undefined) : linked.id;
}

function metadataOf(form: ReadonlyMap<string, string>): Record<string, string> {
  return Object.fromEntries(
    [...form].flatMap(([name, value]) => {
      const key = /^metadata\[(\w+)\]$/.exec(name)?.[1];
      return key === undefined ? [] : [[key, value] as const];
    }),
  );
}

function typesOf(form: ReadonlyMap<string, string>): string[] {
  return [...form].flatMap(([name, value]) =>
    name.startsWith('allowed_payment_method_types') ? [value] : [],
  );
}

function newIntent(
  id: string,
  amount: number,
  form: ReadonlyMap<string, string>,
): Stripe.PaymentIntent {
  return made<Stripe.PaymentIntent>({
    id,
    amount,
    capture_method: form.get('capture_method') === 'manual' ? 'manual' : 'automatic',
    client_secret: `${id}_secret_imitation`,
    currency: form.get('currency') ?? '',
    customer: form.get('customer') ?? null,
    metadata: metadataOf(form),
    payment_method: form.get('payment_method') ?? null,
    payment_method_types: typesOf(form),
    status: 'requires_payment_method',
    amount_received: 0,
    amount_capturable: 0,
    cancellation_reason: null,
    last_payment_error: null,
    latest_charge: null,
    next_action: null,
  });
}

function newSetup(id: string, form: ReadonlyMap<string, string>): Stripe.SetupIntent {
  return made<Stripe.SetupIntent>({
    id,
    client_secret: `${id}_secret_imitation`,
    customer: form.get('customer') ?? null,
    metadata: metadataOf(form),
    payment_method_types: typesOf(form),
    status: 'requires_payment_method',
    last_setup_error: null,
    mandate: null,
    next_action: null,
    payment_method: null,
  });
}

/** Apple asks for a domain that the internet knows. */
function newDomain(id: string, domain_name: string): Stripe.PaymentMethodDomain {
  const apple_pay = domain_name.includes('.')
    ? { status: 'active' }
    : { status: 'inactive', status_details: { error_message: 'The domain is not public.' } };
  const google_pay = { status: 'active' } as const;
  return made<Stripe.PaymentMethodDomain>({ id, apple_pay, google_pay, domain_name });
}

function newRefund(id: string, intent: Stripe.PaymentIntent): Stripe.Refund {
  return made<Stripe.Refund>({
    id,
    amount: intent.amount,
    currency: 'usd',
    metadata: intent.metadata,
    payment_intent: intent.id,
    status: 'succeeded',
  });
}

/** One dispute for an intent, whose status changes. */
function newDispute(intent: Stripe.PaymentIntent, status: Stripe.Dispute.Status): Stripe.Dispute {
  return made<Stripe.Dispute>({
    id: `dp_${intent.id}`,
    amount: intent.amount,
    charge: intent.latest_charge ?? '',
    currency: 'usd',
    payment_intent: intent.id,
    reason: 'fraudulent',
    status,
    balance_transactions: [],
    evidence_details: made<Stripe.Dispute.EvidenceDetails>({ due_by: null }),
  });
}

function newCharge(
  id: string,
  intent: Stripe.PaymentIntent,
  capture_before: number,
): Stripe.Charge {
  const card = made<Stripe.Charge.PaymentMethodDetails.Card>({
    brand: 'visa',
    capture_before,
    last4: '4242',
  });
  return made<Stripe.Charge>({
    id,
    amount: intent.amount,
    currency: 'usd',
    metadata: intent.metadata,
    payment_intent: intent.id,
    payment_method_details: { type: 'card', card },
    status: 'succeeded',
  });
}

/** An object with the fields that the adapter reads. */
function made<T>(fields: Partial<T>): T {
  return fields as T;
}

// In the browser -------------------------------------------------------------------------------------------------------------

/**
 * The part of Stripe.js that the frame of the methods uses: the customer types in a frame of Stripe's origin, which returns a
 * token.
 */
const STRIPE_JS = `window.Stripe = (key) => {
  if (!key.startsWith('pk_test_')) throw new Error('no publishable key');
  const frame = (path, place) => {
    const made = document.createElement('iframe');
    made.allow = 'payment *';
    made.src = '__URL__' + path;
    made.title = 'Secure payment input frame';
    made.width = '100%';
    place.append(made);
    return made;
  };
  const told = (made, message) => new Promise((resolve) => {
    const hear = (event) => {
      if (event.origin !== '__URL__' || event.source !== made.contentWindow) return;
      removeEventListener('message', hear);
      resolve(event.data);
    };
    addEventListener('message', hear);
    if (message) made.contentWindow.postMessage(message, '__URL__');
  });
  let fields;
  return {
    elements: ({ mode, currency, captureMethod, customerSessionClientSecret = '' }) => {
      if (currency !== 'usd' || (mode === 'payment' && captureMethod !== 'manual')) throw new Error('other options');
      return {
        create: (type) => type === 'payment'
          ? { mount: (place) => void (fields = frame('/fields?session=' + customerSessionClientSecret, place)) }
          : {
              heard: {},
              on(event, hear) { this.heard[event] = hear; },
              async mount(place) {
                fields = frame('/wallet', place);
                fields.hidden = true;
                fields.hidden = !(await told(fields)).wallet;
                await told(fields);
                this.heard.click({ resolve: () => this.heard.confirm() });
              },
            },
        submit: async () => {
          const { number } = await told(fields, 'check');
          return number === '' ? { error: { message: 'Your card number is incomplete.' } } : {};
        },
      };
    },
    createConfirmationToken: async () => ({ confirmationToken: { id: (await told(fields, 'token')).token } }),
    handleNextAction: async ({ clientSecret }) => {
      const made = frame('/challenge?secret=' + clientSecret, document.body);
      const result = await told(made);
      made.remove();
      return result === 'yes' ? {} : { error: { message: 'We are unable to authenticate your payment method.' } };
    },
  };
};`;

const FIELDS = `<!doctype html><title>Fields</title><label>Number <input id="number" autocomplete="off"></label>__SAVED__<script>
document.querySelector('#remove')?.addEventListener('click', async ({ target }) => {
  await fetch('/removals', { method: 'POST', body: new URLSearchParams(location.search) });
  target.previousSibling.remove();
  target.remove();
});
addEventListener('message', async (event) => {
  const number = document.querySelector('[name=saved]:checked')?.value ?? document.querySelector('#number').value;
  const save = document.querySelector('#save')?.checked ? 'yes' : '';
  const token = event.data === 'token'
    ? await (await fetch('/tokens', { method: 'POST', body: new URLSearchParams({ number, save }) })).text() : '';
  event.source.postMessage(event.data === 'token' ? { token } : { number: number === '' ? '' : 'typed' }, event.origin);
});</script>`;

/** The buttons of a wallet, where the pages around it may use one: with a good card, and with one whose bank asks for an approval. */
const WALLET = `<!doctype html><title>Wallet</title>
<button value="${NUMBERS.good}">Pay with Apple Pay</button><button value="${NUMBERS.asks}">Pay with Google Pay</button><script>
const tell = (message) => parent.postMessage(message, '*');
let number;
for (const button of document.querySelectorAll('button')) button.addEventListener('click', () => {
  number = button.value;
  tell('pressed');
});
addEventListener('message', async (event) => {
  const token = event.data === 'token'
    ? await (await fetch('/tokens', { method: 'POST', body: new URLSearchParams({ number }) })).text() : '';
  event.source.postMessage({ token, number: 'of the wallet' }, event.origin);
});
tell({ wallet: document.featurePolicy.allowsFeature('payment') });
</script>`;

const CHALLENGE = `<!doctype html><title>Challenge</title><button id="yes">Approve</button><button id="no">Fail</button><script>
for (const button of document.querySelectorAll('button')) button.addEventListener('click', async () => {
  const secret = new URLSearchParams(location.search).get('secret');
  await fetch('/acts', { method: 'POST', body: new URLSearchParams({ secret, approves: button.id }) });
  parent.postMessage(button.id, '*');
});</script>`;
