/**
 * From the click on "Pay bill" to the bill on the screen, as a slow phone on a slow line has it: CPU four times slower, Chrome's
 * "Slow 4G", a browser with nothing in its cache; with and without preload(). The biller answers at once: its own time comes on top.
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

/** The variables that the test site sets on its window. */
interface Site {
  make(options: object): {
    preload(): void;
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
    for (const preloaded of [false, true]) {
      const times: number[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        times.push(await clickToBill(browser, flow, line, preloaded));
      }
      times.sort((a, b) => a - b);
      const [least = 0] = times;
      const median = times[Math.floor(ROUNDS / 2)] ?? 0;
      const how = preloaded ? 'with preload()' : 'without';
      console.log(`${name}, ${how}: ${median.toFixed(0)} ms (${least.toFixed(0)} ms)`);
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
  preloaded: boolean,
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
    if (preloaded) {
      await page.evaluate(
        ([of, frameOrigin]) =>
          (globalThis as unknown as Site).make({ partner: of, frameOrigin }).preload(),
        [partner, payOrigin] as const,
      );
      await page.waitForLoadState('networkidle');
    }
    return await page.evaluate(
      async ([of, frameOrigin]) => {
        const clicked = performance.now();
        await (globalThis as unknown as Site).make({ partner: of, frameOrigin }).mount('#place');
        return performance.now() - clicked;
      },
      [partner, payOrigin] as const,
    );
  } finally {
    await context.close();
  }
}
