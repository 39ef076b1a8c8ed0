/**
 * `npm run screenshots [-- --only receipt]`: a picture of every screen of the payment page, in light and dark, as a phone and a desktop show
 * it, then of every page of the operator console, for people to look at. Writes to `dist/screenshots` (git-ignored), and those that the
 * documents show to `docs/images`.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accountBody } from '../demo/site/account-page.ts';
import { buildWeb } from '../packages/web/build.ts';
import { launchChromium } from '../test/browser/chromium.ts';
import { startScriptedFlow } from '../test/browser/scripted-flow.ts';
import { drawSite, SCREENS, walkTo } from '../test/browser/screens.ts';
import { readWords } from './words.ts';

/** The functions that the test site defines on its window. */
interface Site {
  start(options: object): Promise<string>;
}

const HELP = `Usage: npm run screenshots -- [--only NAME]...

Pictures of the payment page and of the console, in dist/screenshots. --only takes the screens of the page whose name contains NAME.`;

const { values: options } = readWords('screenshots', HELP, {
  options: { only: { type: 'string', multiple: true } },
});
const language = 'en';
const folder = join(import.meta.dirname, '../dist/screenshots');
const DEVICES = [
  { device: 'phone', viewport: { width: 390, height: 844 }, display: 'modal', scale: 2 },
  { device: 'desktop', viewport: { width: 1280, height: 900 }, display: 'modal', scale: 1 },
] as const;

/** What the documents show: screen and device, and the name there. A page of text should not wait for them. */
const IMAGES: Readonly<Record<string, string>> = {
  'review.phone': 'pay-bill-phone.png',
  'receipt.phone': 'pay-receipt-phone.png',
  'review.desktop': 'pay-bill-desktop.png',
};
/** The biller's site around the page: that of the demo, with the bill of the scripted platform. */
const SITE_STYLE = readFileSync(join(import.meta.dirname, '../demo/site/style.css'), 'utf8');
const SITE_BODY = accountBody({
  billerName: 'Acme Water',
  account_id: '10034417',
  firstName: 'Ada',
  name: 'Ada Lovelace',
  place: '1 Main St, Austin, TX 78701',
  amount: '$123.45',
  due: 'Due December 3, 2099',
  others: [],
});
const MAX_IMAGE_BYTES = 150_000;

mkdirSync(folder, { recursive: true });
const build = mkdtempSync(join(tmpdir(), 'duebridge-pictures-'));
await buildWeb(join(build, 'dist'));
const flow = await startScriptedFlow(join(build, 'dist'));
const browser = await launchChromium();
try {
  const isWanted = (name: string): boolean =>
    options.only === undefined || options.only.some((part) => name.includes(part));
  const pictures = (['light', 'dark'] as const).flatMap((colorScheme) =>
    DEVICES.map((device) => ({ ...device, colorScheme })),
  );
  const wanted = SCREENS.filter(({ name }) => isWanted(name));
  for (const screen of wanted) {
    for (const { colorScheme, device, viewport, display, scale } of pictures) {
      const world = flow.world(screen.world);
      const context = await browser.newContext({
        viewport,
        colorScheme,
        deviceScaleFactor: scale,
        timezoneId: 'America/Chicago',
        reducedMotion: 'reduce',
        // The site behind the page is drawn into the test site, whose policy would not have it.
        bypassCSP: true,
      });
      const page = await context.newPage();
      await page.goto(`${flow.site('acme')}/`);
      await page.waitForFunction(() => 'siteReady' in globalThis);
      await drawSite(page, SITE_STYLE, SITE_BODY);
      // Only a frame in the page stays after Done.
      const settings = {
        partner: world.partner,
        frameOrigin: flow.payOrigin,
        display: screen.name === 'left' ? 'inline' : display,
      };
      await page.evaluate(async (given) => (globalThis as unknown as Site).start(given), {
        ...settings,
        locale: language,
        appearance: { theme: colorScheme },
      });
      await walkTo(screen, page, language);
      const name = [screen.name, device, colorScheme].join('.');
      const picture = await page.screenshot({ path: join(folder, `${name}.png`) });
      const image = IMAGES[`${screen.name}.${device}`];
      if (image !== undefined && colorScheme === 'light') {
        if (picture.length > MAX_IMAGE_BYTES)
          throw new RangeError(`${image} has ${picture.length} bytes, may have ${MAX_IMAGE_BYTES}`);
        writeFileSync(join(import.meta.dirname, '../docs/images', image), picture);
      }
      await context.close();
    }
  }
  console.log(`${wanted.length * pictures.length} pictures in ${folder}`);
} finally {
  await browser.close();
  await flow.stop();
  rmSync(build, { recursive: true, force: true });
}
if (options.only === undefined) await import('./console-screenshots.ts');
