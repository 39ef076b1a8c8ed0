/**
 * Every screen of the payment page and the way to it: read by the accessibility tests and by the
 * script that takes the pictures.
 */
import type { ErrorCode } from '@duebridge/contract';
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

type ScreenWorld = Parameters<ScriptedFlow['world']>[0];
type Act = (at: Standing) => Promise<void>;

/** One screen: how the platform is set up, and what the customer does to get there. */
export interface ScreenCase {
  readonly name: string;
  readonly world: ScreenWorld | undefined;
  readonly act: Act | undefined;
  /** The h1 when it is there. */
  readonly title: Word;
  /** Most customers see it, or one like it. */
  readonly isCommon: boolean;
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
const fails = (change: object): ScreenWorld => ({
  outcome: [...accepted, { status: 'failed', progress: 'ended', ...change }],
});

/** A bill with limits, which a customer is about to change the amount of. */
const limited = { bill: bill(due, { min_amount_in_cents: 500, max_amount_in_cents: 50_000 }) };
const exchange = (trouble: ErrorCode | 'cut') => ({ plan: { exchange: () => trouble } });
const read = (trouble: ErrorCode) => ({ plan: { read: () => trouble } });
/** Writes another amount and confirms it, up to what comes of it. */
const writes =
  (amount: string, result?: string): Act =>
  async ({ press, write, there }) => {
    await press(CHANGE);
    await write(amount);
    await press(MAIN);
    if (result !== undefined) await there(result);
  };
const paysTo =
  (result: string, then?: Act): Act =>
  async (at) => {
    await pay(at);
    await at.there(result);
    await then?.(at);
  };

/** Every screen, in the order of a customer's way; the problems last. */
const TABLE: readonly (readonly [name: string, title: Word, world?: ScreenWorld, act?: Act])[] = [
  ['test-mode', 'review_title', { mode: 'test' }],
  ['review', 'review_title'],
  ['review-past-due', 'review_title', { bill: bill({ ...due, due_date: '2026-01-15' }) }],
  [
    'review-no-part-payment',
    'review_title',
    { bill: bill(due, { min_amount_in_cents: 12_345, max_amount_in_cents: 12_345 }) },
  ],
  ['review-above-maximum', 'review_title', { bill: bill(due, { max_amount_in_cents: 10_000 }) }],
  ['review-nothing-due', 'review_nothing_title', { bill: bill({ amount_due_in_cents: 0 }) }],
  ['review-credit', 'review_credit_title', { bill: bill({ amount_due_in_cents: -2_050 }) }],
  ['review-unknown-balance', 'review_unknown_title', { bill: bill(null) }],
  ['amount', 'amount_title', limited, ({ press }) => press(CHANGE)],
  ['amount-error', 'amount_title', limited, writes('700', '[aria-invalid=true]')],
  [
    'amount-far-above',
    'amount_title',
    { bill: bill({ ...due, amount_due_in_cents: 17_084 }) },
    writes('17084', '[role=alert]'),
  ],
  [
    'review-paid-before',
    'review_title',
    {
      more: {
        last_paid: {
          platform_payment_id: '0190-before',
          amount_in_cents: 17_084,
          posted_at: '2026-03-01T18:00:02.000Z',
        },
      },
    },
  ],
  ['review-part', 'review_title', {}, writes('50')],
  ['review-largest', 'review_title', { bill: bill({ amount_due_in_cents: 99_999_999_999 }) }],
  [
    'review-two-ways',
    'review_title',
    {
      fundingMethods: [
        { funding_method: 'bank', label: 'Checking account ••••8821', sandbox: true },
        { funding_method: 'savings', label: 'Savings account ••••0034', sandbox: true },
      ],
    },
  ],
  ['sending', 'review_title', { plan: { pay: () => 'hang' } }, pay],
  ['status-sent', 'status_title', { outcome: [] }, pay],
  ['status-accepted', 'status_title', { outcome: accepted }, paysTo('.track.second')],
  [
    'status-offline',
    'status_title',
    { outcome: [] },
    paysTo('.track', async (at) => {
      await at.offline();
      await at.there('.notice');
    }),
  ],
  ['receipt', 'receipt_title', {}, pay],
  ['receipt-large', 'receipt_title', { bill: bill({ amount_due_in_cents: 1_708_400 }) }, pay],
  ['review-branded', 'review_title', { look }],
  ['receipt-branded', 'receipt_title', { look }, pay],
  [
    'failed',
    'failed_title',
    fails({ failure_reason: 'The account is closed. Please call us.' }),
    pay,
  ],
  [
    'failed-duplicate',
    'duplicate_title',
    fails({ failure_reason: 'Duplicate payment detected', failure: 'duplicate' }),
    pay,
  ],
  [
    'failed-maybe-duplicate',
    'failed_title',
    fails({ failure_reason: 'Pago duplicado', failure: 'possible_duplicate' }),
    pay,
  ],
  ['failed-declined', 'declined_title', fails({ failure_reason: 'No', failure: 'declined' }), pay],
  ['canceled', 'canceled_title', fails({ status: 'canceled' }), pay],
  ['session-ends-soon', 'review_title', { sessionMs: 90_000 }, ({ there }) => there('.notice')],
  ['problem-origin', 'problem_origin_not_allowed', exchange('ORIGIN_NOT_ALLOWED')],
  ['problem-token', 'problem_token_invalid', exchange('TOKEN_INVALID')],
  ['problem-expired', 'problem_token_expired', exchange('TOKEN_EXPIRED')],
  ['problem-account', 'problem_account_not_found', read('ACCOUNT_NOT_FOUND')],
  ['problem-biller', 'problem_partner_unreachable', read('PARTNER_UNREACHABLE')],
  ['problem-network', 'problem_network_lost', exchange('cut')],
  ['problem-ours', 'problem_internal', read('INTERNAL_ERROR')],
];
/** One of each kind: each way to lay out a screen is in one of them. */
const COMMON = [
  'review',
  'review-two-ways',
  'amount-error',
  'status-accepted',
  'receipt',
  'failed',
  'session-ends-soon',
  'problem-biller',
];

export const SCREENS: readonly ScreenCase[] = TABLE.map(([name, title, world, act]) => ({
  name,
  title,
  world,
  act,
  isCommon: COMMON.includes(name),
}));

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
