/**
 * The frame of the Stripe methods: shows Stripe's Payment Element, and turns what the customer typed there into a ConfirmationToken.
 * Loads Stripe.js from the address that the platform's settings name. Runs in the frame's document alone (decision 110).
 */
import type { FromFund, ToFund } from './messages.ts';

/** The part of Stripe.js that is used here. */
interface StripeJs {
  elements(options: object): Elements;
  createConfirmationToken(options: {
    readonly elements: Elements;
  }): Promise<{ readonly error?: Told; readonly confirmationToken?: { readonly id: string } }>;
  handleNextAction(options: { readonly clientSecret: string }): Promise<{ readonly error?: Told }>;
}
interface Elements {
  create(type: 'payment'): { mount(place: HTMLElement): void };
  create(type: 'expressCheckout', options: object): ExpressButtons;
  submit(): Promise<{ readonly error?: Told }>;
}
interface ExpressButtons {
  mount(place: HTMLElement): void;
  on(event: 'click', hear: (click: { resolve(options: object): void }) => void): void;
  on(event: 'confirm', hear: () => void): void;
}
interface Told {
  /** For the customer, in their language. */
  readonly message?: string;
}
type StripeGlobal = (key: string, options: { readonly locale: string }) => StripeJs;

const meta = document.querySelector<HTMLMetaElement>('meta[name=duebridge-fund]');
const settings = JSON.parse(meta?.content ?? '{}') as {
  readonly publishable_key: string;
  readonly script: string;
  readonly funding_method: string;
};
const fields = document.createElement('div');
const wrong = document.createElement('p');
wrong.setAttribute('role', 'alert');
wrong.hidden = true;
document.body.append(fields, wrong);
let asked: (() => Promise<void>) | undefined;

addEventListener('message', (event: MessageEvent<ToFund>) => {
  if (event.origin !== location.origin || event.source !== parent) return;
  const message = event.data;
  if (message.fund === 'start') void start(message).catch(failed);
  else if (message.fund === 'ask') void asked?.().catch(failed);
});
new ResizeObserver(() => {
  tell({ fund: 'height', height: Math.ceil(document.documentElement.scrollHeight) });
}).observe(document.body);
tell({ fund: 'ready' });

async function start(message: Extract<ToFund, { fund: 'start' }>): Promise<void> {
  const { amount_in_cents: amount, locale, dark, act, saved } = message;
  // Stripe's words are in this language, and a screen reader pronounces by it.
  document.documentElement.lang = locale;
  // A frame whose scheme differs from the page's gets an opaque background. The colours are the page's own.
  document.documentElement.style.colorScheme = dark ? 'dark' : 'light';
  wrong.style.cssText = `margin:.5rem 0 0;font:inherit;color:${dark ? '#ff9d94' : '#b3261e'}`;
  const stripe = (await load())(settings.publishable_key, { locale });
  if (act !== undefined) {
    // However it ends, the platform asks Stripe: only its answer counts.
    await stripe.handleNextAction({ clientSecret: act });
    tell({ fund: 'acted' });
    return;
  }
  const bank = settings.funding_method.endsWith('us_bank_account');
  const elements = stripe.elements({
    currency: 'usd',
    appearance: { theme: dark ? 'night' : 'stripe' },
    ...(saved ? { customerSessionClientSecret: saved } : {}),
    // A bank account cannot be held: its mandate is taken now, and the debit follows (decision 110).
    ...(bank
      ? { mode: 'setup', paymentMethodTypes: ['us_bank_account'] }
      : { mode: 'payment', amount, captureMethod: 'manual', paymentMethodTypes: ['card'] }),
  });
  const give = async (): Promise<void> => {
    say(undefined);
    const checked = await elements.submit();
    if (checked.error) return failed(checked.error);
    const made = await stripe.createConfirmationToken({ elements });
    if (made.confirmationToken) tell({ fund: 'instrument', instrument: made.confirmationToken.id });
    else failed(made.error ?? {});
  };
  if (!settings.funding_method.endsWith('wallet')) {
    elements.create('payment').mount(fields);
    asked = give;
    return;
  }
  // Where the device has neither wallet the element stays empty, and the page shows nothing.
  const buttons = elements.create('expressCheckout', { paymentMethods: WALLETS });
  buttons.on('click', (click) => click.resolve({}));
  buttons.on('confirm', () => void give().catch(failed));
  buttons.mount(fields);
}

/** The wallets whose payments are cards; Stripe would show its others, too. */
const WALLETS = {
  applePay: 'auto',
  googlePay: 'auto',
  amazonPay: 'never',
  klarna: 'never',
  link: 'never',
  paypal: 'never',
};

let loaded: Promise<StripeGlobal> | undefined;

function load(): Promise<StripeGlobal> {
  loaded ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = settings.script;
    script.addEventListener('load', () => {
      resolve((window as unknown as { readonly Stripe: StripeGlobal }).Stripe);
    });
    script.addEventListener('error', () => {
      loaded = undefined;
      reject(new Error('Stripe.js did not load'));
    });
    document.head.append(script);
  });
  return loaded;
}

function failed(error: unknown): void {
  say(error instanceof Object && 'message' in error ? String(error.message) : '');
  tell({ fund: 'problem' });
}

function say(text: string | undefined): void {
  wrong.hidden = text === undefined || text === '';
  wrong.textContent = text ?? '';
}

function tell(message: FromFund): void {
  parent.postMessage(message, location.origin);
}
