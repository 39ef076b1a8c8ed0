/**
 * What the browser tests share: one browser and one scripted platform a file, a fresh context a visit,
 * and an eye on everything that must never happen (policy violations, errors in the console).
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach } from 'node:test';
import type { Browser, BrowserContextOptions, FrameLocator, Page } from 'playwright-core';
import type { DuebridgeOptions, FrameDouble } from '../../packages/web/src/embed/types.ts';
import { buildWeb, release } from '../../packages/web/build.ts';
import { around } from '../support/around.ts';
import { launchChromium } from './chromium.ts';
import type { EngineName, Tab } from './engines.ts';
import { startScriptedFlow, type ScriptedFlow, type World } from './scripted-flow.ts';

/** What the site's script of these tests puts on its window. */
interface SiteWindow {
  heard: { event: string; value: never }[];
  siteReady?: boolean;
  start: (options: object, target?: string) => Promise<string>;
}

/** An event as the site heard it, in order. */
export interface Heard {
  readonly event: string;
  readonly value: unknown;
}

export interface Visit {
  readonly page: Page;
  /** The payment page. */
  readonly frame: FrameLocator;
  /** Opens the SDK; gives "mounted" or the code of the error. */
  start(options?: SiteOptions, target?: string): Promise<string>;
  heard(): Promise<Heard[]>;
  /** The h1 of the screen, once it is this one. */
  title(text: string | RegExp): Promise<void>;
  press(name: string | RegExp): Promise<void>;
  close(): Promise<void>;
}
export type SiteOptions = Omit<Partial<DuebridgeOptions>, 'fetchToken' | 'frame' | 'signal'> & {
  frame?: FrameDouble;
};

export interface VisitOptions extends BrowserContextOptions {
  /** Part of the site's address: `?tag`, `?coep`, `?hostile`. */
  readonly query?: string;
  readonly site?: string;
  /** Messages of the console that this visit is about; any other fails the test. */
  readonly expect?: RegExp;
}

/** The longest that any one thing may take in these tests: as long as on a machine that is ten times too slow. */
const PATIENCE_MS = 60_000;

/** The browser files of real releases; absent until the first. */
const RELEASED = join(import.meta.dirname, '../../packages/web/released');

export interface Rig {
  readonly flow: ScriptedFlow;
  /** A scripted platform for one engine alone, started when it is first asked for. */
  flowIn(name: EngineName): Promise<ScriptedFlow>;
  readonly browser: Browser;
  /** What the build made for these tests. */
  readonly dist: string;
  visit(world: World, options?: VisitOptions): Promise<Visit>;
}

/**
 * Call once a test file. `withRelease`: the build keeps the files of a release before it; before the first, of one made up.
 * `withChromium: false`: for a file that only drives engines (site-visit.ts), which start by themselves; then there is no `browser`
 * and no `visit`.
 */
export function useRig({ withRelease = false, withChromium = true } = {}): Rig {
  let flow: ScriptedFlow;
  const flows = new Map<EngineName, Promise<ScriptedFlow>>();
  let browser: Browser;
  let folder: string;
  let dist: string;
  const open = async (): Promise<void> => {
    folder = mkdtempSync(join(tmpdir(), 'duebridge-web-'));
    dist = join(folder, 'dist');
    const build = async (): Promise<void> => {
      let released = RELEASED;
      if (withRelease && !existsSync(RELEASED)) {
        released = join(folder, 'released');
        await release({ dist: join(folder, 'before'), released, as: '0.0.1' });
      }
      await buildWeb(dist, released);
    };
    const [launched, built] = await Promise.allSettled([
      withChromium ? launchChromium() : undefined,
      build(),
    ]);
    // Kept even when the build failed: a browser that nobody closes would keep the test file running.
    if (launched.status === 'fulfilled' && launched.value) browser = launched.value;
    for (const step of [launched, built]) if (step.status === 'rejected') throw step.reason;
    flow = await startScriptedFlow(dist);
  };
  // A test that failed leaves its pages open, and those would go on asking.
  afterEach(async () => {
    for (const context of browser?.contexts() ?? []) await context.close();
  });
  around(open, async () => {
    await browser?.close();
    await flow?.stop();
    for (const one of flows.values()) await (await one).stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    get flow() {
      return flow;
    },
    flowIn(name) {
      const started = flows.get(name) ?? startScriptedFlow(dist);
      flows.set(name, started);
      return started;
    },
    get browser() {
      return browser;
    },
    get dist() {
      return dist;
    },
    visit: (world, options = {}) => visit(browser, flow, world, options),
  };
}

async function visit(
  browser: Browser,
  flow: ScriptedFlow,
  world: World,
  { query = '', site = 'acme', expect: expected, ...context }: VisitOptions,
): Promise<Visit> {
  const opened = await browser.newContext({ acceptDownloads: true, ...context });
  opened.setDefaultTimeout(PATIENCE_MS);
  const page = await opened.newPage();
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('console', (message) => {
    const text = message.text();
    if (message.type() === 'error' && !expected?.test(text)) wrong.push(`console: ${text}`);
    for (const token of world.tokens) assert.ok(!text.includes(token), 'a token in the console');
  });
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) =>
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  await page.goto(`${flow.site(site)}/${query}`);
  await page.waitForFunction(() => (window as unknown as SiteWindow).siteReady);
  const frame = page.frameLocator('iframe');
  return {
    page,
    frame,
    start: (given = {}, target = '#place') =>
      page.evaluate(
        ([settings, place]) => (window as unknown as SiteWindow).start(settings, place),
        [{ partner: world.partner, frameOrigin: flow.payOrigin, ...given }, target] as const,
      ),
    heard: () => page.evaluate(() => (window as unknown as SiteWindow).heard),
    title: (text) => frame.getByRole('heading', { level: 1, name: text }).waitFor(),
    press: (name) => frame.getByRole('button', { name, exact: typeof name === 'string' }).click(),
    async close() {
      await opened.close();
      assert.deepEqual(wrong, []);
    },
  };
}

/** The values of one kind of event. */
export function values(heard: readonly Heard[], event: string): unknown[] {
  return heard.filter((one) => one.event === event).map((one) => one.value);
}

/** A gate that holds whoever awaits it until it is opened. */
export function gate(): { readonly held: Promise<undefined>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  return { held: promise, open: () => resolve(undefined) };
}

/** Waits until a condition of the test's own process holds; for what no page shows. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const begun = Date.now();
  while (!(await holds())) {
    const waited = Date.now() - begun;
    assert.ok(waited < PATIENCE_MS, `never came true: ${holds.toString()}`);
    // Each question costs the browser a message between its processes: what takes long is asked less often.
    await new Promise((resolve) => setTimeout(resolve, Math.min(20 + waited / 4, 120)));
  }
}

/** Waits until an element of the payment page, or of the site, has this text; in any engine. */
export function reads(
  tab: Tab,
  where: 'page' | 'frame',
  selector: string,
  text: string,
): Promise<void> {
  return until(() =>
    tab
      .run(
        where,
        (wanted, inside) => document.querySelector(wanted)?.textContent === inside,
        selector,
        text,
      )
      // A page that is being left, or a frame that is not there yet, cannot be asked.
      .catch((error: unknown) => {
        if (tab.lost()) throw error;
        return false;
      }),
  );
}
