/**
 * Nothing scripted: a real platform, a real partner on its ledger, real databases, and sites that a partner would write. First the
 * demo's site, then the guide for a partner's web engineer, block by block.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { freePort } from '@duebridge/runtime/testing';
import type { Page } from 'playwright-core';
import { startDemoSite } from '../../demo/site/server.ts';
import { around } from '../support/around.ts';
import { BothSides } from '../support/both-sides.ts';
import type { Client } from '../support/customer.ts';
import type { Manifest } from '../../packages/web/build.ts';
import { startBiller, type Biller } from './biller.ts';
import { bundled } from './bundled.ts';
import { useRig } from './rig.ts';

const root = join(import.meta.dirname, '../..');
const guide = readFileSync(join(root, 'docs', 'embed.md'), 'utf8');
const rig = useRig({ withRelease: true });
const sides = new BothSides();

let biller: Biller;
let client: Client;
let guidePort: number;

around(
  async () => {
    guidePort = await freePort();
    const due = { 'A-1': '120.50', 'A-5': '111.00' };
    biller = await startBiller(sides, rig.dist, due, [await freePort(), guidePort]);
    ({ client } = biller);
  },
  async () => {
    await sides.stop();
  },
);

/** A page that fails the test on anything its policy had to stop. */
async function open(address: string): Promise<{ page: Page; wrong: string[] }> {
  const page = await rig.page();
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => message.type() === 'error' && wrong.push(message.text()));
  await page.goto(address);
  return { page, wrong };
}

async function payInFrame(page: Page, amount: string): Promise<void> {
  const frame = page.frameLocator('iframe');
  await frame.getByRole('button', { name: `Pay ${amount}`, exact: true }).click();
  await frame.getByRole('heading', { name: 'Paid. Thank you!' }).waitFor();
}

test('a page that pins the SDK of the last release pays with this platform, and the ledger has it [S1 S4]', async (t) => {
  const manifest = readFileSync(join(rig.dist, 'manifest.json'), 'utf8');
  const before = (JSON.parse(manifest) as Manifest).releases.at(-1);
  assert.ok(before, 'the build has the files of the last release');
  const pinned = await startDemoSite({ ...biller.siteOptions, sdk: before.sdk });
  t.after(() => pinned.stop());
  const scripts: string[] = [];
  const { page, wrong } = await open('about:blank');
  page.on('request', (request) => scripts.push(new URL(request.url()).pathname));
  await page.goto(`${pinned.url}/?account=A-5`);
  await page.getByRole('button', { name: 'Pay bill' }).click();
  await payInFrame(page, '$111.00');
  await page.frameLocator('iframe').getByRole('button', { name: 'Done' }).click();
  await page.getByText('Thank you. Your payment is posted.').waitFor();
  assert.equal(await biller.due('A-5'), 0);
  assert.deepEqual(
    scripts.filter((path) => path.startsWith('/sdk/')),
    [`/sdk/v1/${before.sdk.file}`],
  );
  // A page that was open during the upgrade still asks for the parts that came with it.
  for (const name of before.flow.assets) {
    assert.equal((await fetch(`${client.platformUrl}/flow/assets/${name}`)).status, 200, name);
  }
  assert.deepEqual(wrong, []);
});

// The guide -------------------------------------------------------------------------------------------------------------------

/** The blocks of docs/embed.md, in order. */
const blocks = [...guide.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(
  ([, language = '', text = '']) => ({ language, text }),
);
const block = (index: number, language: string): string => {
  const found = blocks[index];
  assert.equal(found?.language, language, `block ${index} of the guide 'embed.md'`);
  return found.text;
};

test('the guide leads from nothing to a paid bill with the files it shows', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-guide-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'server.mjs'), block(0, 'js'));
  writeFileSync(join(folder, 'index.html'), block(1, 'html'));
  writeFileSync(join(folder, 'pay.js'), block(2, 'js'));
  const words = block(3, 'sh')
    .trim()
    .split(' ')
    .map((word) =>
      word
        .replace('http://127.0.0.1:4000', client.platformUrl)
        .replace('$CLIENT_ID', client.client_id)
        .replace('$API_KEY', client.api_key),
    );
  const command = words.indexOf('node');
  const environment = Object.fromEntries(
    words.slice(0, command).map((word) => word.split(/=(.*)/, 2) as [string, string]),
  );
  const server: ChildProcess = spawn(process.execPath, words.slice(command + 1), {
    cwd: folder,
    env: { ...environment, PORT: String(guidePort) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(async () => {
    if (server.exitCode !== null) return;
    server.kill();
    await once(server, 'exit');
  });
  assert.ok(server.stdout);
  await once(server.stdout, 'data');

  await biller.partner.importAccounts(
    'biller_id,account_id,status,amount_due,due_date\nacme,A-1,active,42.42,2099-12-01\n',
    new Date().toISOString(),
  );
  const due = (await biller.due('A-1')) ?? 0;
  assert.ok(due > 0);
  const { page, wrong } = await open(`http://localhost:${guidePort}`);
  await page.getByRole('button', { name: 'Pay bill' }).click();
  await payInFrame(page, `$${(due / 100).toFixed(2)}`);
  await page.frameLocator('iframe').getByRole('button', { name: 'Done' }).click();
  await page.getByText('Thank you. Your payment is posted.').waitFor();
  assert.equal(await biller.due('A-1'), 0);
  assert.deepEqual(wrong, []);
  // A content blocker that stops the SDK: the page itself has to say so.
  await page.route('**/sdk/v1/duebridge.js', (route) => route.abort('blockedbyclient'));
  await page.reload();
  await page.getByRole('button', { name: 'Pay bill' }).click();
  await page.getByText('If you use a content blocker, allow it here.').waitFor();
});

/** Bundles files as a partner does once `@duebridge/web` is installed. */
async function bundle(files: Readonly<Record<string, string>>, entry: string): Promise<string> {
  // Inside the repository, so that React is found; the names are of this process alone.
  const cache = join(root, 'node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'duebridge-guide-'));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const modules = ['embed/react', 'embed/testing', 'embed'].map((path) => [
      `@duebridge/web/${path}`,
      join(rig.dist, 'npm', `${path.split('/').at(-1)}.js`),
    ]);
    return await bundled(
      join(folder, entry),
      Object.fromEntries(modules) as Record<string, string>,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test('the module, the React component and the test of the guide work as they are shown', async () => {
  const code = await bundle(
    {
      'show.js': block(4, 'js'),
      'bill.jsx': block(5, 'jsx'),
      'kit.js': block(6, 'js'),
      'main.jsx': `import { showPayment } from './show.js';
        import { Bill } from './bill.jsx';
        import { failedPaymentIsShown } from './kit.js';
        import { renderStrictly } from '${join(import.meta.dirname, 'site/strict.tsx')}';
        const renderBill = (element, props) => renderStrictly(Bill, element, props);
        Object.assign(window, { showPayment, renderBill, failedPaymentIsShown });`,
    },
    'main.jsx',
  );
  assert.equal(blocks.length, 7, 'a block of the guide that no test runs');
  rig.flow.files.set('/guide.js', code);
  const world = rig.flow.world();
  const { page, wrong } = await open(`${rig.flow.site('acme')}/`);
  const given = { platform: rig.flow.payOrigin, partner: world.partner };
  const kit = await page.evaluate(async (options) => {
    const path = '/guide.js';
    await import(path);
    const guideWindow = window as unknown as Record<string, (...given: unknown[]) => unknown>;
    const tokenOf = (partner: string) => async (): Promise<string> =>
      ((await (await fetch(`/token?partner=${partner}`)).json()) as { token: string }).token;
    const fetchToken = tokenOf(options.partner);
    const paid: unknown[] = [];
    Object.assign(window, { paid });
    const place = document.querySelector('#place');
    const shown = (await guideWindow['failedPaymentIsShown']?.(place)) as object;
    const made = (await guideWindow['showPayment']?.(place, { ...options, fetchToken })) as {
      state: string;
      destroy: () => void;
    };
    const { state } = made;
    made.destroy();
    const bill = guideWindow['renderBill']?.(place, { ...options, fetchToken, onPaid: () => {} });
    Object.assign(window, { bill, tokenOf });
    return { ...shown, state };
  }, given);
  assert.deepEqual(kit, {
    reasons: ['Account not found or inactive'],
    tokens: ['a token'],
    state: 'ready',
  });
  const frame = page.frameLocator('iframe');
  await frame.getByRole('button', { name: 'Pagar $123.45', exact: true }).waitFor();
  interface BillWindow {
    readonly bill: { show(more: object): void; leave(): void };
    readonly tokenOf: (partner: string) => () => Promise<string>;
    paid: unknown[];
  }
  // StrictMode mounts twice: one page, one token. A new callback is heard, and restarts nothing.
  assert.equal(await page.locator('iframe').count(), 1);
  const { length: tokens } = world.tokens;
  await page.evaluate(() => {
    const { bill, paid } = window as unknown as BillWindow;
    bill.show({ onPaid: (payment: unknown) => paid.push(payment) });
  });
  await frame.getByRole('button', { name: 'Pagar $123.45', exact: true }).click();
  await frame.getByRole('heading', { name: 'Pagado. ¡Gracias!' }).waitFor();
  const paid = await page.evaluate(() => (window as unknown as { paid: unknown[] }).paid);
  assert.equal(paid.length, 1);
  assert.equal(world.tokens.length, tokens);
  // Another partner is another page, and none is left of what is not rendered.
  await page.evaluate((partner) => {
    const { bill, tokenOf } = window as unknown as BillWindow;
    bill.show({ partner, fetchToken: tokenOf(partner) });
  }, rig.flow.world().partner);
  await frame.getByRole('button', { name: 'Pagar $123.45', exact: true }).waitFor();
  await page.evaluate(() => (window as unknown as BillWindow).bill.leave());
  await page.locator('iframe').waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
});
