/**
 * A customer pays by Stripe in a real browser: the method is chosen, Stripe's fields load in a frame of their own, the details go to
 * Stripe alone, and the platform, the partner and their ledgers do the rest. Stripe is the imitation, with a script of its own.
 */
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { freePort } from '@duebridge/runtime/testing';
import type { FrameLocator, Page } from 'playwright-core';
import { startDemoSite } from '../../demo/site/server.ts';
import { NUMBERS, startStripe } from '../../packages/platform/test/stripe.ts';
import { around } from '../support/around.ts';
import { BothSides, type PlatformSide } from '../support/both-sides.ts';
import { AXE_RULES, axeIn } from './axe.ts';
import { startBiller } from './biller.ts';
import { until, useRig } from './rig.ts';

const rig = useRig();
const sides = new BothSides();
const stripe = await startStripe({ after });
let site: Awaited<ReturnType<typeof startDemoSite>>;
/** What each account owes: a test has one of its own. */
const DUE = {
  'A-1': '120.50',
  'A-2': '80.00',
  'A-3': '33.00',
  'A-4': '700.00',
  'A-5': '64.00',
  'A-6': '61.00',
  'A-7': '99.00',
  'A-8': '62.00',
};
let platform: PlatformSide;

around(
  async () => {
    const port = await freePort();
    const biller = await startBiller(sides, rig.dist, DUE, [await freePort()], {
      port,
      publicUrl: `http://127.0.0.1:${port}`,
      funding: ['sandbox', 'stripe'],
      stripe: {
        ...stripe.settings,
        methods: ['card', 'us_bank_account', 'wallet'],
        bankMaxCents: 50_000,
      },
    });
    ({ platform } = biller);
    site = await startDemoSite(biller.siteOptions);
  },
  async () => {
    await site?.stop();
    await sides.stop();
  },
);

interface Visit {
  readonly page: Page;
  readonly frame: FrameLocator;
  /** The frame of the method, in the frame of the page. */
  readonly fund: FrameLocator;
  readonly requests: string[];
  readonly wrong: string[];
}

/** The page of an account at the screen where the method is chosen. */
async function toConfirm(
  account: string,
  {
    colorScheme = 'light',
    hasWallet = false,
  }: { colorScheme?: 'light' | 'dark'; hasWallet?: boolean } = {},
): Promise<Visit> {
  const page = await rig.page({ colorScheme });
  if (!hasWallet)
    await page.addInitScript(
      () => delete (window as Partial<Window & typeof globalThis>).PaymentRequest,
    );
  const requests: string[] = [];
  const wrong: string[] = [];
  page.on('request', (request) => requests.push(request.url()));
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => message.type() === 'error' && wrong.push(message.text()));
  // A site that follows the system.
  await page.addInitScript(() => {
    new MutationObserver((_, seen) => {
      document.documentElement.style.colorScheme = 'light dark';
      seen.disconnect();
    }).observe(document, { childList: true });
  });
  await page.goto(`${site.url}/?account=${account}`);
  await page.getByRole('button', { name: 'Pay bill' }).click();
  const frame = page.frameLocator('iframe');
  // Until the bill has come, the page shows that it is loading.
  await frame.getByRole('heading', { level: 1 }).waitFor();
  return { page, frame, fund: frame.frameLocator('iframe.fund'), requests, wrong };
}

async function enter({ fund }: Visit, number: string): Promise<void> {
  await fund.frameLocator('iframe').getByLabel('Number').fill(number);
}

const paid = ({ frame }: Visit): Promise<void> =>
  frame.getByRole('heading', { name: 'Paid. Thank you!' }).waitFor();

/** What axe finds in the payment page and in the frame of the method; the processor's own frame is the processor's. */
async function shutsOut({ page }: Visit): Promise<string[]> {
  const ours = new URL(platform.platform.url).origin;
  const frames = page.frames().filter((frame) => new URL(frame.url(), ours).origin === ours);
  assert.ok(frames.length > 0);
  const found: string[] = [];
  for (const frame of frames) {
    const { pathname } = new URL(frame.url());
    // The heading and the landmarks are the page's: a frame of fields has none of its own.
    const rules = pathname.includes('/fund/') ? AXE_RULES.slice(0, -1) : AXE_RULES;
    found.push(...(await axeIn(frame, rules)).map((problem) => `${pathname}: ${problem}`));
  }
  return found;
}

async function captured(amount: number): Promise<void> {
  await until(() =>
    [...stripe.intents.values()].some(
      (intent) => intent.amount === amount && stripe.taken.get(intent.id) === 1,
    ),
  );
}

test('a card is paid from the click to the captured funds, and its number reaches Stripe alone [S1 S4]', async () => {
  const visit = await toConfirm('A-1');
  const { frame, fund, page, requests, wrong } = visit;
  const stripeLoads = (): number => requests.filter((url) => url.startsWith(stripe.url)).length;
  assert.equal(stripeLoads(), 0, 'nothing of Stripe is loaded before its method is chosen');
  /** All that leaves the browser for anybody but Stripe: address, headers and body. */
  const sent: string[] = [];
  page.on('request', (request) => {
    if (request.url().startsWith(stripe.url)) return;
    sent.push([request.url(), JSON.stringify(request.headers()), request.postData()].join(' '));
  });
  const hasNumber = (text: string): boolean =>
    text.replaceAll(/[ -]|%20/g, '').includes(NUMBERS.good.replaceAll(/[ -]/g, ''));
  assert.equal(await frame.getByText('Test mode').count(), 1, 'a key of Stripe’s test mode');
  assert.deepEqual(await shutsOut(visit), [], 'where the method is chosen');
  await frame.getByLabel('Card').check();
  // Pressed too early: Stripe's own words, and nothing is sent.
  await fund.frameLocator('iframe').getByLabel('Number').waitFor();
  await frame.getByRole('button', { name: 'Pay $120.50' }).click();
  await fund.getByText('Your card number is incomplete.').waitFor();
  assert.deepEqual(await shutsOut(visit), [], 'with the method’s frame and its error');
  assert.equal(stripe.intents.size, 0);
  await enter(visit, NUMBERS.good);
  await frame.getByRole('button', { name: 'Pay $120.50' }).click();
  await paid(visit);
  await captured(12_050);
  assert.ok(stripeLoads() > 0);
  assert.ok(sent.some((text) => text.includes('"instrument":"ctoken_')));
  assert.deepEqual(sent.filter(hasNumber), []);
  assert.deepEqual(wrong, []);
});

test('a card that asks for an approval is approved in the page, also after a reload', async () => {
  const visit = await toConfirm('A-2');
  const { frame, page, wrong } = visit;
  await frame.getByLabel('Card').check();
  await enter(visit, NUMBERS.asks);
  await frame.getByRole('button', { name: 'Pay $80.00' }).click();
  await frame.getByRole('heading', { name: 'Please approve the payment' }).waitFor();
  await visit.fund.frameLocator('iframe').getByRole('button', { name: 'Approve' }).waitFor();
  assert.deepEqual(await shutsOut(visit), [], 'at the approval');
  await page.reload();
  await page.getByRole('button', { name: 'Pay bill' }).click();
  await frame.getByRole('heading', { name: 'Please approve the payment' }).waitFor();
  await visit.fund.frameLocator('iframe').getByRole('button', { name: 'Approve' }).click();
  await paid(visit);
  await captured(8_000);
  assert.deepEqual(wrong, []);
});

test('a declined card is told as such, and the bill is then paid from a bank account', async () => {
  const visit = await toConfirm('A-3');
  const { frame, wrong } = visit;
  await frame.getByLabel('Card').check();
  await enter(visit, NUMBERS.declined);
  await frame.getByRole('button', { name: 'Pay $33.00' }).click();
  await frame.getByRole('heading', { name: 'Your payment method was declined' }).waitFor();
  await frame.getByRole('button', { name: 'Choose another way to pay' }).click();
  await frame.getByLabel('Bank account', { exact: true }).check();
  await frame
    .getByText('you authorize Acme Water and its payment provider to debit $33.00')
    .waitFor();
  await enter(visit, NUMBERS.bank);
  await frame.getByRole('button', { name: 'Pay $33.00' }).click();
  await paid(visit);
  await captured(3_300);
  assert.deepEqual(wrong, []);
});

test('a card is saved with consent, pays the next bill of the same person, and is forgotten by one press', async () => {
  const fields = ({ fund }: Visit): FrameLocator => fund.frameLocator('iframe');
  const choose = async (): Promise<Visit> => {
    const visit = await toConfirm('A-7');
    await visit.frame.getByLabel('Card').check();
    await fields(visit).getByLabel('Number').waitFor();
    return visit;
  };
  const payAgain = async ({ frame }: Visit, cents: number): Promise<void> => {
    await frame.getByRole('button', { name: 'Change' }).click();
    await frame.getByRole('textbox').fill(String(cents / 100));
    await frame.getByRole('button', { name: 'Continue' }).click();
    await frame.getByLabel('Card').waitFor();
  };
  const first = await choose();
  await payAgain(first, 1_100);
  await enter(first, NUMBERS.good);
  await fields(first).getByLabel('Save this card for next time').check();
  await first.frame.getByRole('button', { name: 'Pay $11.00' }).click();
  await paid(first);
  await captured(1_100);
  // The same person for the same account, under a new token.
  const second = await choose();
  await payAgain(second, 1_200);
  await fields(second).getByLabel('Card ending in 4242').check();
  await second.frame.getByRole('button', { name: 'Pay $12.00' }).click();
  await paid(second);
  await captured(1_200);
  // Somebody else, at another account.
  const other = await toConfirm('A-4');
  await other.frame.getByLabel('Card').check();
  await fields(other).getByLabel('Number').waitFor();
  assert.equal(await fields(other).getByLabel('Card ending in 4242').count(), 0);
  const third = await choose();
  await fields(third).getByRole('button', { name: 'Remove' }).click();
  await until(() => [...stripe.saved.values()].every((numbers) => numbers.size === 0));
  assert.deepEqual([first.wrong, second.wrong, third.wrong], [[], [], []]);
});

test('a wallet pays by one press of its own button, on a device that has one', async () => {
  const visit = await toConfirm('A-6', { hasWallet: true });
  const { frame, fund, page, wrong } = visit;
  const confirms: string[] = [];
  page.on('request', (request) => {
    if (request.url().endsWith('/v1/flow/payments')) confirms.push(request.postData() ?? '');
  });
  // Stripe's frame finds a wallet only if the site's frame, our page and the frame in it let it.
  const button = fund.frameLocator('iframe').getByRole('button', { name: 'Pay with Apple Pay' });
  await button.waitFor();
  assert.equal(await frame.getByLabel('Apple Pay or Google Pay').count(), 0, 'a button, no choice');
  assert.deepEqual(await shutsOut(visit), [], 'with the button of a wallet');
  const { headers } = await fetch(new URL('/flow/v1/acme', platform.platform.url));
  assert.equal(
    headers.get('permissions-policy'),
    `payment=(self "${stripe.url}"), camera=(), microphone=(), geolocation=()`,
  );
  await button.click();
  await paid(visit);
  await captured(6_100);
  assert.equal(confirms.length, 1);
  assert.match(confirms[0] ?? '', /"funding_method":"stripe_wallet"/);
  assert.deepEqual(wrong, []);
});

test('a wallet whose bank asks for an approval shows it as large as a card’s', async () => {
  const visit = await toConfirm('A-8', { hasWallet: true });
  const { frame, fund, wrong } = visit;
  await fund.frameLocator('iframe').getByRole('button', { name: 'Pay with Google Pay' }).click();
  await frame.getByRole('heading', { name: 'Please approve the payment' }).waitFor();
  const approve = fund.frameLocator('iframe').getByRole('button', { name: 'Approve' });
  await approve.waitFor();
  const height = (await frame.locator('iframe.fund').boundingBox())?.height ?? 0;
  assert.ok(height >= 400, `the frame of the bank is ${height} px high`);
  await approve.click();
  await paid(visit);
  await captured(6_200);
  assert.deepEqual(wrong, []);
});

test('a method that does not take the amount is not offered, and Stripe’s frame admits nothing but Stripe', async () => {
  const visit = await toConfirm('A-4', { colorScheme: 'dark' });
  const { frame, fund } = visit;
  await frame.getByLabel('Card').waitFor();
  assert.deepEqual(await shutsOut(visit), [], 'in the dark');
  assert.equal(await frame.getByLabel('Bank account', { exact: true }).count(), 0);
  await frame.getByLabel('Card').check();
  await fund.frameLocator('iframe').getByLabel('Number').waitFor();
  const scheme = await fund.locator('html').evaluate((html) => getComputedStyle(html).colorScheme);
  assert.equal(scheme, 'dark', 'another scheme than the page’s would be an opaque frame');
  const root = platform.platform.url;
  const policy = async (path: string): Promise<string> =>
    (await fetch(new URL(path, root))).headers.get('content-security-policy') ?? '';
  const own = await policy('/flow/v1/acme');
  assert.ok(own.includes("frame-src 'self'") && own.includes("trusted-types 'none'"));
  assert.ok(!own.includes(stripe.url), 'the page itself admits nothing of Stripe');
  const framed = await policy('/flow/v1/acme/fund/stripe_card');
  assert.match(framed, /default-src 'none'/);
  assert.ok(framed.includes(`script-src 'self' ${stripe.url}`));
  assert.ok(framed.includes(`frame-ancestors 'self' ${new URL(site.url).origin}`));
  assert.equal((await fetch(new URL('/flow/v1/acme/fund/sandbox_bank', root))).status, 404);
  assert.equal((await fetch(new URL('/flow/v1/nobody/fund/stripe_card', root))).status, 404);
  assert.deepEqual(visit.wrong, []);
});

test('a customer at the bank closes its window, loads the site again, and pays once', async () => {
  const visit = await toConfirm('A-5');
  const { frame, page } = visit;
  const toBank = async (): Promise<Page> => {
    const opened = page.waitForEvent('popup');
    await frame.getByRole('button', { name: 'Continue at your bank' }).click();
    return opened;
  };
  await frame.getByLabel('Card').check();
  await enter(visit, NUMBERS.redirects);
  await frame.getByRole('button', { name: 'Pay $64.00' }).click();
  await frame.getByRole('button', { name: 'Continue at your bank' }).waitFor();
  assert.deepEqual(await shutsOut(visit), [], 'before the bank');
  const left = await toBank();
  assert.equal(await left.evaluate(() => window.opener as unknown), null, 'the bank has our page');
  await left.close();
  await page.reload();
  await page.getByRole('button', { name: 'Pay bill' }).click();
  const window_ = await toBank();
  await window_.getByRole('button', { name: 'Approve' }).click();
  await paid(visit);
  assert.deepEqual(visit.wrong, []);
});
