/**
 * Every screen of the payment page and the way to it: read by the accessibility tests and by the
 * script that takes the pictures.
 */
import type { FrameLocator, Page } from 'playwright-core';
import type { Tag } from '../../packages/web/src/flow/tags.ts';
import { WORDS, type Word } from '../../packages/web/src/flow/words.ts';
import { succeeds, type ScriptedFlow, type World } from './scripted-flow.ts';

/** A text of the page, whatever stands in its blanks: the source of a regular expression. */
export const textOf = (language: Tag, word: Word): string =>
  `^${WORDS[language][word]
    .split(/\{\w+\}/)
    .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('.+')}$`;

/** One screen: how the platform is set up, and what the customer does to get there. */
export interface ScreenCase {
  readonly name: string;
  readonly world?: Parameters<ScriptedFlow['world']>[0];
  readonly site?: string;
  readonly act?: (at: Standing) => Promise<void>;
  /** The h1 when it is there. */
  readonly title: Word;
}

/** The payment page in a browser, for a walk to one of its screens. Elements are those of the page, by CSS selector. */
export interface Standing {
  /** Presses the first of these elements, once it is there. */
  readonly press: (selector: string) => Promise<void>;
  /** Writes into the field of the screen. */
  readonly write: (text: string) => Promise<void>;
  /** Waits for such an element. */
  readonly there: (selector: string) => Promise<void>;
  /** Takes the network away. */
  readonly offline: () => Promise<void>;
}

/** The main button of a screen, and the one beside the amount. */
const MAIN = '.actions .main';
const CHANGE = '.due button';

const bill = (balance: object | null, payment_rules: object = {}): World['bill'] => ({
  masked_account_id: '••••4417',
  balance: balance && { last_updated_at: '2026-03-01T17:30:00.000Z', ...balance },
  balance_source: balance ? 'partner' : 'none',
  payment_rules,
});
const look = { colour: '#0b7a75', logo: 'logo.png' };
const due = { amount_due_in_cents: 12_345, due_date: '2099-12-03' };

const pay = ({ press }: Standing): Promise<void> => press(MAIN);
const accepted = succeeds.slice(0, 1);
const fails = (change: object): World['outcome'] => [
  ...accepted,
  { status: 'failed', progress: 'ended', ...change },
];

/** Every screen, in the order of a customer's way; the problems last. */
export const SCREENS: readonly ScreenCase[] = [
  {
    name: 'test-mode',
    world: { mode: 'test', bill: bill(due) },
    title: 'review_title',
  },
  { name: 'review', title: 'review_title' },
  {
    name: 'review-past-due',
    world: { bill: bill({ ...due, due_date: '2026-01-15' }) },
    title: 'review_title',
  },
  {
    name: 'review-no-part-payment',
    world: {
      bill: bill(due, { min_amount_in_cents: 12_345, max_amount_in_cents: 12_345 }),
    },
    title: 'review_title',
  },
  {
    name: 'review-above-maximum',
    world: { bill: bill(due, { max_amount_in_cents: 10_000 }) },
    title: 'review_title',
  },
  {
    name: 'review-nothing-due',
    world: { bill: bill({ amount_due_in_cents: 0 }) },
    title: 'review_nothing_title',
  },
  {
    name: 'review-credit',
    world: { bill: bill({ amount_due_in_cents: -2_050 }) },
    title: 'review_credit_title',
  },
  {
    name: 'review-unknown-balance',
    world: { bill: bill(null) },
    title: 'review_unknown_title',
  },
  {
    name: 'amount',
    world: { bill: bill(due, { min_amount_in_cents: 500, max_amount_in_cents: 50_000 }) },
    act: ({ press }) => press(CHANGE),
    title: 'amount_title',
  },
  {
    name: 'amount-error',
    world: { bill: bill(due, { min_amount_in_cents: 500, max_amount_in_cents: 50_000 }) },
    async act({ press, write, there }) {
      await press(CHANGE);
      await write('700');
      await press(MAIN);
      await there('[aria-invalid=true]');
    },
    title: 'amount_title',
  },
  {
    name: 'amount-far-above',
    world: { bill: bill({ ...due, amount_due_in_cents: 17_084 }) },
    async act({ press, write, there }) {
      await press(CHANGE);
      await write('17084');
      await press(MAIN);
      await there('[role=alert]');
    },
    title: 'amount_title',
  },
  {
    name: 'review-paid-before',
    world: {
      more: {
        last_paid: {
          platform_payment_id: '0190-before',
          amount_in_cents: 17_084,
          posted_at: '2026-03-01T18:00:02.000Z',
        },
        other_payment: { amount_in_cents: 4_321, created_at: '2026-03-01T18:00:02.000Z' },
      },
    },
    title: 'review_title',
  },
  {
    name: 'review-part',
    async act({ press, write }) {
      await press(CHANGE);
      await write('50');
      await press(MAIN);
    },
    title: 'review_title',
  },
  {
    name: 'review-two-ways',
    world: {
      fundingMethods: [
        { funding_method: 'bank', label: 'Checking account ••••8821', sandbox: true },
        { funding_method: 'savings', label: 'Savings account ••••0034', sandbox: true },
      ],
    },
    title: 'review_title',
  },
  {
    name: 'sending',
    world: { plan: { pay: () => 'hang' } },
    act: pay,
    title: 'review_title',
  },
  {
    name: 'status-sent',
    world: { outcome: [] },
    act: pay,
    title: 'status_title',
  },
  {
    name: 'status-accepted',
    world: { outcome: accepted, more: { usual_seconds: 40 } },
    async act(at) {
      await pay(at);
      await at.there('.track.second');
    },
    title: 'status_title',
  },
  {
    name: 'status-offline',
    world: { outcome: [] },
    async act(at) {
      await pay(at);
      await at.there('.track');
      await at.offline();
      await at.there('.notice');
    },
    title: 'status_title',
  },
  { name: 'receipt', act: pay, title: 'receipt_title' },
  { name: 'review-branded', world: { look }, title: 'review_title' },
  { name: 'receipt-branded', world: { look }, act: pay, title: 'receipt_title' },
  {
    name: 'failed',
    world: { outcome: fails({ failure_reason: 'The account is closed. Please call us.' }) },
    act: pay,
    title: 'failed_title',
  },
  {
    name: 'failed-duplicate',
    world: {
      outcome: fails({ failure_reason: 'Duplicate payment detected', duplicate: true }),
    },
    act: pay,
    title: 'duplicate_title',
  },
  {
    name: 'failed-maybe-duplicate',
    world: {
      outcome: fails({ failure_reason: 'Pago duplicado', failure: 'possible_duplicate' }),
    },
    act: pay,
    title: 'failed_title',
  },
  {
    name: 'failed-declined',
    world: { outcome: fails({ failure_reason: 'No', failure: 'declined' }) },
    act: pay,
    title: 'declined_title',
  },
  {
    name: 'left',
    async act(at) {
      await pay(at);
      await at.there('.sign.right');
      await at.press(MAIN);
    },
    title: 'left_paid',
  },
  {
    name: 'canceled',
    world: { outcome: [...accepted, { status: 'canceled', progress: 'ended' }] },
    act: pay,
    title: 'canceled_title',
  },
  {
    name: 'session-ends-soon',
    world: { sessionMs: 90_000 },
    act: ({ there }) => there('.notice'),
    title: 'review_title',
  },
  {
    name: 'problem-origin',
    world: { plan: { exchange: () => 'ORIGIN_NOT_ALLOWED' } },
    title: 'problem_origin_not_allowed',
  },
  {
    name: 'problem-token',
    world: { plan: { exchange: () => 'TOKEN_INVALID' } },
    title: 'problem_token_invalid',
  },
  {
    name: 'problem-expired',
    world: { plan: { exchange: () => 'TOKEN_EXPIRED' } },
    title: 'problem_token_expired',
  },
  {
    name: 'problem-account',
    world: { plan: { read: () => 'ACCOUNT_NOT_FOUND' } },
    title: 'problem_account_not_found',
  },
  {
    name: 'problem-biller',
    world: { plan: { read: () => 'PARTNER_UNREACHABLE' } },
    title: 'problem_partner_unreachable',
  },
  {
    name: 'problem-network',
    world: { plan: { exchange: () => 'cut' } },
    title: 'problem_network_lost',
  },
  {
    name: 'problem-ours',
    world: { plan: { read: () => 'INTERNAL_ERROR' } },
    title: 'problem_internal',
  },
];

interface Drawn {
  innerHTML: string;
  append(child: Drawn | string): void;
  querySelector(selector: string): Drawn | null;
}

/** Draws the page of a biller around the payment page, for pictures: in a context that sets the site's policy aside. */
export async function drawSite(page: Page, style: string, html: string): Promise<void> {
  await page.addStyleTag({ content: style });
  await page.evaluate((drawn) => {
    const { body } = (globalThis as unknown as { document: { body: Drawn } }).document;
    const place = body.querySelector('#place');
    body.innerHTML = drawn;
    body.querySelector('main')?.append(place ?? '');
  }, html);
}

/** Walks to a screen in a page of Chromium where the SDK has been mounted. */
export async function walkTo(screen: ScreenCase, page: Page, language: Tag): Promise<FrameLocator> {
  const frame = page.frameLocator('iframe');
  await screen.act?.({
    press: (selector) => frame.locator(selector).first().click(),
    write: (text) => frame.getByRole('textbox').fill(text),
    there: (selector) => frame.locator(selector).first().waitFor(),
    offline: () => page.context().setOffline(true),
  });
  const name = new RegExp(textOf(language, screen.title));
  await frame.getByRole('heading', { level: 1, name }).waitFor();
  return frame;
}
