/**
 * `npm run screenshots:console`: a picture of every page of the operator console on a platform with sample data of one working day. Writes
 * to `dist/screenshots` (git-ignored), and those that the documents show to `docs/images`.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { buildWeb } from '../packages/web/build.ts';
import { launchChromium } from '../test/browser/chromium.ts';
import { CONFORMANCE_REPORT, startWorkingDay } from '../test/browser/console-rig.ts';

/** The pages whose pictures the documents show. */
const DOCUMENTED: ReadonlySet<string> = new Set(['overview', 'payment', 'payments']);
/** A document's picture is no larger, so that a page is quick to load. */
const MAX_IMAGE_BYTES = 150_000;

const folder = join(import.meta.dirname, '../dist/screenshots');
mkdirSync(folder, { recursive: true });
const build = mkdtempSync(join(tmpdir(), 'duebridge-pictures-'));
await buildWeb(join(build, 'dist'));
const closers: (() => Promise<void>)[] = [];
const work = await startWorkingDay(
  { after: (close) => closers.push(close) },
  pathToFileURL(join(build, 'dist/')),
);
const browser = await launchChromium();
try {
  for (const [index, amount] of [2_500, 12_345, 8_000, 4_310, 9_999, 1_250].entries()) {
    await work.pay('pays-1', amount, `customer-${index}@example.com`);
  }
  await work.pay('waits-1', 7_700, 'waits@example.com');
  const refused = await work.pay('refuses-1', 3_100, 'refused@example.com');
  const { body } = await work.platform.admin('GET', `/admin/v1/payments/${refused}`);
  const batch = (body['payment'] as { platform_batch_id: string }).platform_batch_id;
  await work.platform.admin('POST', `/admin/v1/batches/${batch}/reconcile`, {});
  const report = '/admin/v1/partners/springfield-water/conformance-report';
  await work.platform.admin('PUT', report, {
    ...CONFORMANCE_REPORT,
    started_at: new Date().toISOString(),
  });
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    colorScheme: 'light',
    locale: 'en-US',
    timezoneId: 'America/Chicago',
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  await page.goto(`${work.platform.adminUrl}/console`);
  const key = page.getByLabel('Operator key');
  await key.waitFor();
  await page.screenshot({ path: join(folder, 'console-sign-in.png') });
  await key.fill(work.keys.ada);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  // What is opened on a page before its picture is taken.
  const acts: Readonly<Record<string, () => Promise<void>>> = {
    search: () => page.getByRole('combobox', { name: 'Search' }).fill('25'),
    dialog: () => page.getByRole('button', { name: 'Close as failed' }).click(),
  };
  const pages = {
    overview: '',
    search: '',
    dialog: `/payments/${refused}`,
    payments: '/payments?last=24h',
    payment: `/payments/${refused}`,
    partners: '/partners',
    partner: '/partners/springfield-water',
    batches: '/batches',
    batch: `/batches/${batch}`,
    reconciliation: '/reconciliation',
    audit: '/audit',
    people: '/people',
    money: '/money',
  };
  for (const [name, at] of Object.entries(pages)) {
    await page.goto(`${work.platform.adminUrl}/console${at}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForLoadState('networkidle');
    await acts[name]?.();
    const path = join(folder, `console-${name}.png`);
    // Its lower half has the conformance report.
    const picture = await page.screenshot({ path, fullPage: name === 'partner' });
    if (DOCUMENTED.has(name)) {
      if (picture.length > MAX_IMAGE_BYTES) {
        throw new RangeError(`${path} has ${picture.length} bytes, may have ${MAX_IMAGE_BYTES}`);
      }
      writeFileSync(join(import.meta.dirname, `../docs/images/console-${name}.png`), picture);
    }
  }
  console.log(`${Object.keys(pages).length + 1} pictures of the console in ${folder}`);
} finally {
  await browser.close();
  for (const close of closers) await close();
  rmSync(build, { recursive: true, force: true });
}
