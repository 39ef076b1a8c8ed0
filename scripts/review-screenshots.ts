/**
 * The right halves of the pictures of docs/page-review.md: the page as it is now. The left halves show an early commit, so they
 * stay as they are in the file. `npm run screenshots` calls this.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import type { Tag } from '../packages/web/src/flow/tags.ts';
import type { ScriptedFlow } from '../test/browser/scripted-flow.ts';
import { SCREENS, walkTo } from '../test/browser/screens.ts';

const IMAGES = join(import.meta.dirname, '../docs/images/page-review');
/** The bill of all of them. */
const BILL = { amount_due_in_cents: 17_084, due_date: '2099-12-03' };
const [WIDTH, NARROW_WIDTH, HEIGHT] = [360, 320, 640];
/** Where a picture stands in its file: below a line of words, with an edge on each side. */
const [EDGE, GAP, TOP] = [12, 16, 37];

/** A picture: the screen that it shows, and what is special about it. */
interface ReviewCase {
  readonly screen: string;
  readonly world?: Parameters<ScriptedFlow['world']>[0];
  readonly language?: Tag;
  readonly direction?: 'rtl';
  /** A customer of a dark site who sees the page before any of its files have come. */
  readonly firstBytes?: boolean;
  /** Twice the size of text, and the narrowest phone; the amount is the largest that needs to fit. */
  readonly largeText?: boolean;
}

const REVIEW: Readonly<Record<string, ReviewCase>> = {
  'first-bytes': { screen: 'review', firstBytes: true },
  'coming-back': {
    screen: 'review',
    world: {
      more: {
        last_paid: {
          platform_payment_id: '0190-before',
          amount_in_cents: BILL.amount_due_in_cents,
          posted_at: '2026-03-01T18:00:02.000Z',
        },
      },
    },
  },
  'far-above': { screen: 'amount-far-above' },
  status: { screen: 'status-accepted' },
  done: { screen: 'left' },
  confirm: { screen: 'confirm' },
  sheet: { screen: 'review' },
  receipt: { screen: 'receipt' },
  'large-text': { screen: 'review', largeText: true },
  'right-to-left': { screen: 'confirm', direction: 'rtl' },
  french: { screen: 'review', language: 'fr' },
};

/** The functions that the test site defines on its window. */
interface Site {
  start(options: object): Promise<string>;
}

/** Takes the pictures of the screens that are `wanted`, and writes them to docs/images. Returns how many. */
export async function takeReviewPictures(
  browser: Browser,
  flow: ScriptedFlow,
  wanted: (screen: string) => boolean,
): Promise<number> {
  const cases = Object.entries(REVIEW).filter(([, { screen }]) => wanted(screen));
  for (const [name, one] of cases) {
    const width = one.largeText === true ? NARROW_WIDTH : WIDTH;
    const context = await browser.newContext({
      viewport: { width, height: HEIGHT },
      colorScheme: one.firstBytes === true ? 'dark' : 'light',
      timezoneId: 'America/Chicago',
      reducedMotion: 'reduce',
    });
    try {
      const file = join(IMAGES, `${name}.png`);
      const page = await context.newPage();
      await show(page, flow, one);
      const now = await page.screenshot();
      writeFileSync(file, await place(browser, readFileSync(file), now, width));
    } finally {
      await context.close();
    }
  }
  return cases.length;
}

/** Opens the page on its screen. */
async function show(page: Page, flow: ScriptedFlow, one: ReviewCase): Promise<void> {
  const screen = SCREENS.find(({ name }) => name === one.screen);
  if (screen === undefined) throw new Error(`there is no screen ${one.screen}`);
  const world = flow.world({ ...screen.world, ...one.world });
  const amount_due_in_cents = one.largeText === true ? 9_999_999_999 : BILL.amount_due_in_cents;
  world.bill = { ...world.bill, balance: { ...world.bill.balance, ...BILL, amount_due_in_cents } };
  if (one.firstBytes === true) await page.route('**/flow/assets/**', () => {});
  await page.goto(`${flow.site(screen.site ?? 'acme')}/`);
  await page.waitForFunction(() => 'siteReady' in globalThis);
  const language = one.language ?? 'en';
  const settings = {
    partner: world.partner,
    frameOrigin: flow.payOrigin,
    // Only a frame in the page stays after Done.
    display: one.screen === 'left' ? 'inline' : 'modal',
    locale: language,
    appearance: one.direction === undefined ? {} : { direction: one.direction },
  };
  const mounted = page.evaluate(
    async (given) => (globalThis as unknown as Site).start(given),
    settings,
  );
  const frame = page.frameLocator('iframe');
  if (one.firstBytes === true) {
    // It is never mounted: the context closes before.
    mounted.catch(() => {});
    await frame.locator('.bone.button').waitFor();
    return;
  }
  await mounted;
  if (one.largeText === true)
    await frame.locator('html').evaluate((html) => {
      html.style.fontSize = '200%';
    });
  await walkTo(screen, page, language);
}

/** `picture` with `now` in place of its right half. */
async function place(
  browser: Browser,
  picture: Buffer,
  now: Buffer,
  width: number,
): Promise<Buffer> {
  const viewport = { width: EDGE + width + GAP + width + EDGE, height: TOP + HEIGHT + EDGE };
  const page = await browser.newPage({ viewport });
  try {
    const image = (data: Buffer, left: number, top: number): string =>
      `<img style="position:absolute;left:${left}px;top:${top}px" src="data:image/png;base64,${data.toString('base64')}">`;
    await page.setContent(image(picture, 0, 0) + image(now, EDGE + width + GAP, TOP));
    return await page.screenshot();
  } finally {
    await page.close();
  }
}
