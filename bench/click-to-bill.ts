/**
 * From the click on "Pay bill" to the bill on the screen, as a slow phone on a slow line has it: CPU four times slower, Chrome's
 * "Slow 4G", a browser with nothing in its cache; without preload(), with it, and with the session as well. The ways take turns, so
 * that whatever else the machine does falls on all of them. The biller answers at once: its own time comes on top.
 *
 *   node_modules/.bin/node bench/click-to-bill.ts
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import { buildWeb } from '../packages/web/build.ts';
import { launchChromium } from '../test/browser/chromium.ts';
import { startScriptedFlow, type ScriptedFlow } from '../test/browser/scripted-flow.ts';

const ROUNDS = 3;
const CPU_SLOWDOWN = 4;
/** Both are called "slow 4G": the values of Lighthouse, and those of Chrome's developer tools. Bytes and milliseconds. */
const LINES = {
  'Lighthouse, 150 ms': { latency: 150, downloadThroughput: 204_800, uploadThroughput: 96_000 },
  'developer tools, 562 ms': {
    latency: 562.5,
    downloadThroughput: 180_000,
    uploadThroughput: 84_375,
  },
} as const;

/** Where the page will be shown, and how much is there before the click. */
interface Preload {
  readonly target: string;
  readonly session: boolean;
}
const WAYS: Readonly<Record<string, Preload | undefined>> = {
  'without preload()': undefined,
  'with preload()': { target: '#place', session: false },
  'with preload({ session: true })': { target: '#place', session: true },
};

/** The variables that the test site sets on its window. */
interface Site {
  make(options: object): {
    preload(options?: Preload): void;
    mount(target: string): Promise<void>;
    destroy(): void;
  };
  siteReady?: boolean;
}

const folder = mkdtempSync(join(tmpdir(), 'duebridge-click-'));
const dist = join(folder, 'dist');
await buildWeb(dist);
const flow = await startScriptedFlow(dist);
flow.keepsFiles = true;
// One process for site and frame: CPU throttling affects both.
const browser = await launchChromium([
  '--disable-site-isolation-trials',
  '--disable-features=IsolateOrigins,site-per-process',
]);
try {
  console.log(`load average ${loadavg()[0]?.toFixed(1)}, ${ROUNDS} rounds, median (least)`);
  for (const [name, line] of Object.entries(LINES)) {
    const times = new Map<string, number[]>();
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [way, preload] of Object.entries(WAYS)) {
        const took = await clickToBill(browser, flow, line, preload);
        times.set(way, [...(times.get(way) ?? []), took]);
      }
    }
    for (const [way, all] of times) {
      all.sort((a, b) => a - b);
      const [least = 0] = all;
      const median = all[Math.floor(ROUNDS / 2)] ?? 0;
      console.log(`${name}, ${way}: ${median.toFixed(0)} ms (${least.toFixed(0)} ms)`);
    }
  }
} finally {
  await browser.close();
  await flow.stop();
  rmSync(folder, { recursive: true, force: true });
}

async function clickToBill(
  on: Browser,
  platform: ScriptedFlow,
  line: (typeof LINES)[keyof typeof LINES],
  preload: Preload | undefined,
): Promise<number> {
  const context = await on.newContext();
  try {
    const page = await context.newPage();
    await page.goto(`${platform.site('acme')}/`);
    await page.waitForFunction(() => (globalThis as unknown as Site).siteReady);
    const devtools = await context.newCDPSession(page);
    await devtools.send('Network.enable');
    await devtools.send('Network.emulateNetworkConditions', { offline: false, ...line });
    await devtools.send('Emulation.setCPUThrottlingRate', { rate: CPU_SLOWDOWN });
    const { payOrigin } = platform;
    const { partner } = platform.world();
    const site = await page.evaluateHandle(
      ([of, frameOrigin]) => (globalThis as unknown as Site).make({ partner: of, frameOrigin }),
      [partner, payOrigin] as const,
    );
    if (preload) {
      await site.evaluate((made, how) => made.preload(how), preload);
      await page.waitForLoadState('networkidle');
      // The network is idle between two requests, too.
      await page.waitForTimeout(3_000);
    }
    return await site.evaluate(async (made) => {
      const clicked = performance.now();
      await made.mount('#place');
      return performance.now() - clicked;
    });
  } finally {
    await context.close();
  }
}
