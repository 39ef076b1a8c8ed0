/**
 * Every screen of the payment page and the way to it: read by the accessibility tests and by the
 * script that takes the pictures.
 */
import type { FrameLocator, Page } from 'playwright-core';
import { succeeds, type ScriptedFlow, type World } from './scripted-flow.ts';

type Language = 'en' | 'es';

/** One screen: how the platform is set up, and what the customer does to get there. */
export interface ScreenCase {
  readonly name: string;
  readonly world?: Parameters<ScriptedFlow['world']>[0];
  readonly site?: string;
  readonly act?: (at: Standing) => Promise<void>;
  /** The h1 when it is there. */
  readonly title: Readonly<Record<Language, RegExp>>;
}

interface Standing {
  readonly page: Page;
  readonly frame: FrameLocator;
  readonly world: World;
  /** Presses the main button. */
  readonly main: () => Promise<void>;
  /** Presses the other button of the screen. */
  readonly other: () => Promise<void>;
}

const bill = (balance: object | null, payment_rules: object = {}): World['bill'] => ({
  masked_account_id: '••••4417',
  balance: balance && { last_updated_at: '2026-03-01T17:30:00.000Z', ...balance },
  balance_source: balance ? 'partner' : 'none',
  payment_rules,
});
const due = { amount_due_in_cents: 12_345, due_date: '2099-12-03' };

const pay = async ({ main }: Standing): Promise<void> => {
  await main();
  await main();
};
const accepted = succeeds.slice(0, 1);
const fails = (change: object): World['outcome'] => [
  ...accepted,
  { status: 'failed', progress: 'ended', ...change },
];

/** Every screen, in the order of a customer's way; the problems last. */
export const SCREENS: readonly ScreenCase[] = [
  { name: 'review', title: { en: /^Your bill from/, es: /^Su factura de/ } },
  {
    name: 'review-past-due',
    world: { bill: bill({ ...due, due_date: '2026-01-15' }) },
    title: { en: /^Your bill from/, es: /^Su factura de/ },
  },
  {
    name: 'review-no-part-payment',
    world: {
      bill: bill(due, { min_amount_in_cents: 12_345, max_amount_in_cents: 12_345 }),
    },
    title: { en: /^Your bill from/, es: /^Su factura de/ },
  },
  {
    name: 'review-above-maximum',
    world: { bill: bill(due, { max_amount_in_cents: 10_000 }) },
    title: { en: /^Your bill from/, es: /^Su factura de/ },
  },
  {
    name: 'review-nothing-due',
    world: { bill: bill({ amount_due_in_cents: 0 }) },
    title: { en: /^Nothing is due/, es: /^No debe nada/ },
  },
  {
    name: 'review-credit',
    world: { bill: bill({ amount_due_in_cents: -2_050 }) },
    title: { en: /credit$/, es: /favor$/ },
  },
  {
    name: 'review-unknown-balance',
    world: { bill: bill(null) },
    title: { en: /^Pay Acme/, es: /^Pagar a Acme/ },
  },
  {
    name: 'amount',
    world: { bill: bill(due, { min_amount_in_cents: 500, max_amount_in_cents: 50_000 }) },
    act: ({ other }) => other(),
    title: { en: /^How much/, es: /Cuánto/ },
  },
  {
    name: 'amount-error',
    world: { bill: bill(due, { min_amount_in_cents: 500, max_amount_in_cents: 50_000 }) },
    async act({ other, main, frame }) {
      await other();
      await frame.getByRole('textbox').fill('700');
      await main();
    },
    title: { en: /^How much/, es: /Cuánto/ },
  },
  {
    name: 'confirm',
    act: ({ main }) => main(),
    title: { en: /^Check your payment/, es: /^Revise su pago/ },
  },
  {
    name: 'confirm-two-ways',
    world: {
      fundingMethods: [
        { funding_method: 'bank', label: 'Checking account ••••8821', sandbox: true },
        { funding_method: 'savings', label: 'Savings account ••••0034', sandbox: true },
      ],
    },
    act: ({ main }) => main(),
    title: { en: /^Check your payment/, es: /^Revise su pago/ },
  },
  {
    name: 'sending',
    world: { plan: { pay: () => 'hang' } },
    act: pay,
    title: { en: /^Check your payment/, es: /^Revise su pago/ },
  },
  {
    name: 'status-sent',
    world: { outcome: [] },
    act: pay,
    title: { en: /on its way$/, es: /en camino$/ },
  },
  {
    name: 'status-accepted',
    world: { outcome: accepted },
    async act(at) {
      await pay(at);
      await at.frame.locator('li.done').nth(1).waitFor();
    },
    title: { en: /on its way$/, es: /en camino$/ },
  },
  {
    name: 'status-offline',
    world: { outcome: [] },
    async act(at) {
      await pay(at);
      await at.frame.locator('li.now').waitFor();
      await at.page.context().setOffline(true);
      await at.frame.locator('.notice').waitFor();
    },
    title: { en: /on its way$/, es: /en camino$/ },
  },
  { name: 'receipt', act: pay, title: { en: /^Paid/, es: /^Pagado/ } },
  {
    name: 'failed',
    world: { outcome: fails({ failure_reason: 'The account is closed. Please call us.' }) },
    act: pay,
    title: { en: /did not go through$/, es: /no se pudo realizar$/ },
  },
  {
    name: 'failed-duplicate',
    world: {
      outcome: fails({ failure_reason: 'Duplicate payment detected', duplicate: true }),
    },
    act: pay,
    title: { en: /paid this already$/, es: /ya lo haya pagado$/ },
  },
  {
    name: 'canceled',
    world: { outcome: [...accepted, { status: 'canceled', progress: 'ended' }] },
    act: pay,
    title: { en: /was canceled$/, es: /fue cancelado$/ },
  },
  {
    name: 'session-ends-soon',
    world: { sessionMs: 90_000 },
    act: ({ frame }) => frame.locator('.notice').waitFor(),
    title: { en: /^Your bill from/, es: /^Su factura de/ },
  },
  {
    name: 'problem-origin',
    world: { plan: { exchange: () => 'ORIGIN_NOT_ALLOWED' } },
    title: { en: /cannot be shown here$/, es: /no se puede mostrar aquí$/ },
  },
  {
    name: 'problem-token',
    world: { plan: { exchange: () => 'TOKEN_INVALID' } },
    title: { en: /^We could not start/, es: /^No pudimos iniciar/ },
  },
  {
    name: 'problem-expired',
    world: { plan: { exchange: () => 'TOKEN_EXPIRED' } },
    title: { en: /open for a long time$/, es: /abierta mucho tiempo$/ },
  },
  {
    name: 'problem-account',
    world: { plan: { read: () => 'ACCOUNT_NOT_FOUND' } },
    title: { en: /^We could not find this account/, es: /^No encontramos esta cuenta/ },
  },
  {
    name: 'problem-biller',
    world: { plan: { read: () => 'PARTNER_UNREACHABLE' } },
    title: { en: /^We cannot reach/, es: /^No podemos comunicarnos/ },
  },
  {
    name: 'problem-network',
    world: { plan: { exchange: () => 'cut' } },
    title: { en: /connection is lost$/, es: /^Se perdió la conexión/ },
  },
  {
    name: 'problem-ours',
    world: { plan: { read: () => 'INTERNAL_ERROR' } },
    title: { en: /^Something went wrong/, es: /^Algo salió mal/ },
  },
];

/** Walks to a screen on a page where the SDK has been mounted. */
export async function walkTo(
  screen: ScreenCase,
  page: Page,
  world: World,
  language: Language,
): Promise<FrameLocator> {
  const frame = page.frameLocator('iframe');
  const press = async (selector: string): Promise<void> => frame.locator(selector).first().click();
  await screen.act?.({
    page,
    frame,
    world,
    main: () => press('.actions .main'),
    other: () => press('.actions button:not(.main)'),
  });
  await frame.getByRole('heading', { level: 1, name: screen.title[language] }).waitFor();
  return frame;
}
