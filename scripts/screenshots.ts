/**
 * `npm run screenshots [-- --only receipt]`: a picture of every screen of the payment page, in light and dark, as a phone and a desktop show
 * it, and of every page of the operator console on a platform with sample data of one working day, for people to look at. Writes to
 * `dist/screenshots` (git-ignored), and those that the documents show to `docs/images`.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { accountBody } from '../demo/site/account-page.ts';
import { buildWeb } from '../packages/web/build.ts';
import { launchChromium } from '../test/browser/chromium.ts';
import { CONFORMANCE_REPORT, startWorkingDay } from '../test/browser/console-rig.ts';
import { startScriptedFlow } from '../test/browser/scripted-flow.ts';
import { drawSite, SCREENS, walkTo } from '../test/browser/screens.ts';
import { readWords } from './words.ts';

/** The functions that the test site defines on its window. */
interface Site {
  start(options: object): Promise<string>;
}

const HELP = `Usage: npm run screenshots -- [--only NAME]...

Pictures of the payment page and of the console, in dist/screenshots. --only takes those whose name contains NAME, such as receipt or console.`;

const { values: options } = readWords('screenshots', HELP, {
  options: { only: { type: 'string', multiple: true } },
});
const language = 'en';
/** What pages of both kinds are opened with. */
const READER = { timezoneId: 'America/Chicago', reducedMotion: 'reduce' } as const;
const folder = join(import.meta.dirname, '../dist/screenshots');

const DEVICES = [
  { device: 'phone', viewport: { width: 390, height: 844 }, display: 'modal', scale: 2 },
  { device: 'desktop', viewport: { width: 1280, height: 900 }, display: 'modal', scale: 1 },
] as const;

/** What the documents show: the picture, and its name there. A page of text should not wait for them. */
const IMAGES: Readonly<Record<string, string>> = {
  'review.phone.light': 'pay-bill-phone.png',
  'receipt.phone.light': 'pay-receipt-phone.png',
  'review.desktop.light': 'pay-bill-desktop.png',
  'console-overview': 'console-overview.png',
  'console-payment': 'console-payment.png',
  'console-payments': 'console-payments.png',
};
const MAX_IMAGE_BYTES = 150_000;

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

mkdirSync(folder, { recursive: true });
const build = mkdtempSync(join(tmpdir(), 'duebridge-pictures-'));
const dist = join(build, 'dist');
await buildWeb(dist);
const browser = await launchChromium();
let pictures = 0;
try {
  await paymentPage();
  await operatorConsole();
  if (pictures > 0) {
    console.log(`${pictures} pictures in ${folder}`);
  } else {
    console.error(`screenshots: no picture has ${options.only?.join(' or ')} in its name`);
    process.exitCode = 3;
  }
} finally {
  await browser.close();
  rmSync(build, { recursive: true, force: true });
}

function isWanted(name: string): boolean {
  return options.only === undefined || options.only.some((part) => name.includes(part));
}

/** Keeps what `shoot` takes, for the documents too where they show it. Throws RangeError when it is too large for them. */
async function keep(name: string, shoot: (path: string) => Promise<Buffer>): Promise<void> {
  const picture = await shoot(join(folder, `${name}.png`));
  pictures += 1;
  const image = IMAGES[name];
  if (image === undefined) return;
  if (picture.length > MAX_IMAGE_BYTES) {
    throw new RangeError(`${image} has ${picture.length} bytes, may have ${MAX_IMAGE_BYTES}`);
  }
  writeFileSync(join(import.meta.dirname, '../docs/images', image), picture);
}

async function paymentPage(): Promise<void> {
  const flow = await startScriptedFlow(dist);
  const looks = (['light', 'dark'] as const).flatMap((colorScheme) =>
    DEVICES.map((device) => ({ ...device, colorScheme })),
  );
  for (const screen of SCREENS) {
    for (const { colorScheme, device, viewport, display, scale } of looks) {
      const name = [screen.name, device, colorScheme].join('.');
      if (!isWanted(name)) continue;
      const world = flow.world(screen.world);
      const context = await browser.newContext({
        ...READER,
        viewport,
        colorScheme,
        deviceScaleFactor: scale,
        // The site behind the page is drawn into the test site, whose policy would not have it.
        bypassCSP: true,
      });
      const page = await context.newPage();
      await page.goto(`${flow.site('acme')}/`);
      await page.waitForFunction(() => 'siteReady' in globalThis);
      await drawSite(page, SITE_STYLE, SITE_BODY);
      await page.evaluate(async (given) => (globalThis as unknown as Site).start(given), {
        partner: world.partner,
        frameOrigin: flow.payOrigin,
        // Only a frame in the page stays after Done.
        display: screen.name === 'left' ? 'inline' : display,
        locale: language,
        appearance: { theme: colorScheme },
      });
      await walkTo(screen, page, language);
      await keep(name, (path) => page.screenshot({ path }));
      await context.close();
    }
  }
  await flow.stop();
}

async function operatorConsole(): Promise<void> {
  const closers: (() => Promise<void>)[] = [];
  const work = await startWorkingDay(
    { after: (close) => closers.push(close) },
    pathToFileURL(`${dist}/`),
  );
  for (const [index, amount] of [2_500, 12_345, 8_000, 4_310, 9_999, 1_250].entries()) {
    await work.pay('pays-1', amount, `customer-${index}@example.com`);
  }
  await work.pay('waits-1', 7_700, 'waits@example.com');
  const refused = await work.pay('refuses-1', 3_100, 'refused@example.com');
  const { body } = await work.platform.admin('GET', `/admin/v1/payments/${refused}`);
  const batch = (body['payment'] as { platform_batch_id: string }).platform_batch_id;
  await work.platform.admin('POST', `/admin/v1/batches/${batch}/reconcile`, {});
  const report = '/admin/v1/partners/springfield-water/conformance-report';
  const started_at = new Date().toISOString();
  await work.platform.admin('PUT', report, { ...CONFORMANCE_REPORT, started_at });
  const context = await browser.newContext({
    ...READER,
    viewport: { width: 1280, height: 900 },
    colorScheme: 'light',
    locale: 'en-US',
  });
  const page = await context.newPage();
  await page.goto(`${work.platform.adminUrl}/console`);
  const key = page.getByLabel('Operator key');
  await key.waitFor();
  if (isWanted('console-sign-in'))
    await keep('console-sign-in', (path) => page.screenshot({ path }));
  await key.fill(work.keys.ada);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  // What is opened on a page before its picture is taken.
  const acts: Readonly<Record<string, () => Promise<void>>> = {
    search: () => page.getByRole('searchbox', { name: 'Search' }).fill('25'),
    dialog: () => page.getByRole('button', { name: 'Close as failed' }).click(),
  };
  const pages = {
    overview: '',
    search: '',
    dialog: `/payments/${refused}`,
    payments: '/payments?partner_id=springfield-water',
    payment: `/payments/${refused}`,
    partners: '/partners',
    partner: '/partners/springfield-water',
    batches: '/batches',
    batch: `/batches/${batch}`,
    reconciliation: '/reconciliation',
    audit: '/audit',
    money: '/money',
  };
  for (const [name, at] of Object.entries(pages)) {
    if (!isWanted(`console-${name}`)) continue;
    await page.goto(`${work.platform.adminUrl}/console${at}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForLoadState('networkidle');
    await acts[name]?.();
    // The lower half of a partner's page has the conformance report.
    const fullPage = name === 'partner';
    await keep(`console-${name}`, (path) => page.screenshot({ path, fullPage }));
  }
  for (const close of closers) await close();
}
