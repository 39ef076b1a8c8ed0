/**
 * Three browser engines behind one small driver: Chromium by playwright, Firefox by puppeteer (WebDriver BiDi), WebKit by selenium
 * (WebDriver). Only what all three can do the same way is here.
 *
 * Firefox and WebKit come from Debian (`firefox-esr`, `webkit2gtk-driver` and `xvfb`). An engine that is not installed is
 * undefined, and the test that asked for it says so.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, globSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '@duebridge/runtime/testing';
import type { Page as ChromiumPage } from 'playwright-core';
import { importTool } from '../../scripts/tool.ts';
import { launchChromium } from './chromium.ts';
import { spawnWithUs, WITH_US } from './with-us.ts';

export const ENGINES = ['chromium', 'firefox', 'webkit'] as const;
export type EngineName = (typeof ENGINES)[number];

/** Where a script runs: in the site's page, or in the payment page that stands in it. */
export type Where = 'page' | 'frame';

/** A function that is sent to the browser as text: it sees its arguments and the window, nothing else. */
export type Script<A extends readonly unknown[], T> = (...given: A) => T | Promise<T>;

/** A window of one browser, with storage of its own. */
export interface Tab {
  goto(url: string): Promise<void>;
  /** Runs a script; its arguments and its answer are JSON. Rejects when the frame is not there. */
  run<A extends readonly unknown[], T>(where: Where, script: Script<A, T>, ...given: A): Promise<T>;
  /** Presses the mouse on the first element of a selector, as a person does: the browser counts it as theirs. */
  click(where: Where, selector: string): Promise<void>;
  /** Presses the mouse at a point of the window, in CSS pixels from its top left, whatever is there. */
  clickAt(x: number, y: number): Promise<void>;
  /** Gives the window a phone's size (WebKit's is 447 pixels wide at least), or the one that it was opened with. */
  resize(to: 'phone' | 'opened'): Promise<void>;
  /** Presses a key (`Tab`, `Enter`, `Escape`, …) or types a text, wherever the focus is. */
  press(key: string): Promise<void>;
  type(text: string): Promise<void>;
  /** Its time, of the site and of the payment page, which a test may move: Chromium's driver alone can. */
  readonly clock?: ChromiumPage['clock'];
  close(): Promise<void>;
}

/** A browser. */
interface Engine {
  /** `frameUrl`: how the address of the payment page starts. */
  open(frameUrl: string): Promise<Tab>;
  stop(): Promise<void>;
}

const PHONE = { width: 390, height: 844 } as const;

/** What to say where an engine is missing. */
const MISSING: Readonly<Record<EngineName, string>> = {
  chromium: 'Chromium is not installed (npm package @sparticuz/chromium): not tested in it',
  firefox: 'Firefox is not installed (Debian package firefox-esr): not tested in it',
  webkit:
    'WebKitGTK is not installed (Debian packages webkit2gtk-driver and xvfb): not tested in it',
};

// Visits ----------------------------------------------------------------------------------------------------------------------

/** Browsers of Debian crash, hang, or drop a key now and then: the last of these visits fails the test. */
const VISITS = 3;
/**
 * A visit outside Chromium that takes longer hangs. All of them take less than the ten minutes after which a file without progress is ended.
 */
const VISIT_MS = 150_000;
/** The longest for a step: less than a visit, so that a failure names the step. */
const STEP_MS = 100_000;
/** The longest for the end of a browser, which may hang. */
const END_MS = 10_000;

/**
 * One engine for any number of visits, started at the first. The first tab of a visit that passed is the first of the next one too, with
 * whatever its site has stored: WebKit starts a browser for each tab, so this is much faster.
 */
export class Visitor {
  readonly #name: EngineName;
  #engine: Engine | undefined;
  #kept: Tab | undefined;

  constructor(name: EngineName) {
    this.#name = name;
  }

  /**
   * Makes a visit, outside Chromium VISITS times at most, each but the first in a new browser. Says so where the engine is not installed,
   * and returns. `frameUrl`: how the address of the payment page starts. `body` opens its tabs by `open`.
   */
  async visit(
    t: { diagnostic(sentence: string): void },
    frameUrl: string,
    body: (open: () => Promise<Tab>) => Promise<void>,
  ): Promise<void> {
    for (let visits = 1; ; visits += 1) {
      const engine = (this.#engine ??= await STARTS[this.#name]());
      if (engine === undefined) return t.diagnostic(MISSING[this.#name]);
      const tabs: Tab[] = [];
      const open = async (): Promise<Tab> => {
        const tab = this.#kept ?? (await engine.open(frameUrl));
        this.#kept = undefined;
        tabs.push(tab);
        return tab;
      };
      try {
        // Chromium is slow where the machine is, and each step of a visit has its limit.
        await (this.#name === 'chromium' ? body(open) : within(VISIT_MS, body(open)));
        this.#kept = tabs.shift();
        return;
      } catch (error) {
        if (this.#name === 'chromium' || visits === VISITS) throw error;
        t.diagnostic(`the visit is made again: ${String(error)}`);
      } finally {
        for (const tab of tabs) await within(END_MS, tab.close()).catch(() => {});
      }
      await this.stop();
    }
  }

  /** Stops the browser. Calling it again is harmless. */
  async stop(): Promise<void> {
    const [engine, kept] = [this.#engine, this.#kept];
    this.#engine = this.#kept = undefined;
    // WebKit's browser is the tab's own.
    for (const end of [kept?.close(), engine?.stop()])
      if (end) await within(END_MS, end).catch(() => {});
  }
}

const STARTS: Readonly<Record<EngineName, () => Promise<Engine | undefined>>> = {
  chromium: startChromium,
  firefox: startFirefox,
  webkit: startWebKit,
};

async function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

// Chromium --------------------------------------------------------------------------------------------------------------------

async function startChromium(): Promise<Engine> {
  const browser = await launchChromium();
  return {
    async open(frameUrl) {
      const context = await browser.newContext();
      context.setDefaultTimeout(STEP_MS);
      const page = await context.newPage();
      return chromiumTab(page, frameUrl);
    },
    stop: () => browser.close(),
  };
}

function chromiumTab(page: ChromiumPage, frameUrl: string): Tab {
  const at = (where: Where) => (where === 'page' ? page : frameOf(page, frameUrl));
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    click: async (where, selector) => at(where).locator(selector).first().click(),
    clickAt: (x, y) => page.mouse.click(x, y),
    resize: (to) => page.setViewportSize(to === 'phone' ? PHONE : { width: 1280, height: 720 }),
    press: (key) => page.keyboard.press(key),
    type: (text) => page.keyboard.type(text),
    clock: page.clock,
    close: () => page.context().close(),
  };
}

// Firefox ---------------------------------------------------------------------------------------------------------------------

async function startFirefox(): Promise<Engine | undefined> {
  const executablePath = onPath(['firefox-esr', 'firefox']);
  if (executablePath === undefined) return undefined;
  const { puppeteer } = await importTool<Tools>('browser', 'test');
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: WITH_US,
    env: { ...process.env, PROGRAM: executablePath },
    headless: true,
    protocolTimeout: STEP_MS,
    // Nothing that calls home.
    extraPrefsFirefox: {
      'app.update.enabled': false,
      'network.captive-portal-service.enabled': false,
      'network.connectivity-service.enabled': false,
      'browser.safebrowsing.downloads.remote.enabled': false,
      'services.settings.server': '',
      'intl.accept_languages': 'en-US',
    },
  });
  return {
    open: async (frameUrl) =>
      firefoxTab(await (await browser.createBrowserContext()).newPage(), frameUrl),
    stop: () => browser.close(),
  };
}

function firefoxTab(page: FirefoxPage, frameUrl: string): Tab {
  page.setDefaultTimeout(STEP_MS);
  const at = (where: Where): FirefoxFrame =>
    where === 'page' ? page.mainFrame() : frameOf(page, frameUrl);
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    click: async (where, selector) => (await at(where).waitForSelector(selector))?.click(),
    clickAt: (x, y) => page.mouse.click(x, y),
    resize: (to) => page.setViewport(to === 'phone' ? PHONE : null),
    press: (key) => page.keyboard.press(key),
    type: (text) => page.keyboard.type(text),
    close: () => page.browserContext().close(),
  };
}

// WebKit ----------------------------------------------------------------------------------------------------------------------

/** The driver does not scroll the site to show what it clicks in a frame: everything has to be in view. */
const VIEW = { x: 0, y: 0, width: 1200, height: 1500 } as const;

async function startWebKit(): Promise<Engine | undefined> {
  const program = onPath(['WebKitWebDriver']);
  const xvfb = onPath(['Xvfb']);
  const [binary] = globSync('/usr/lib/*/webkit2gtk-4.*/MiniBrowser').sort().toReversed();
  if (program === undefined || xvfb === undefined || binary === undefined) return undefined;
  const screen = ['-displayfd', '3', '-screen', '0', '1280x1600x24', '-nolisten', 'tcp'];
  const display = spawnWithUs(xvfb, screen, process.env);
  // It chooses a display that is free and tells its number.
  const [number] = (await once(display.stdio[3] as NodeJS.ReadableStream, 'data')) as [Buffer];
  const environment = {
    ...process.env,
    DISPLAY: `:${number.toString().trim()}`,
    LANG: 'C.UTF-8',
    // In a container there is neither a session bus nor an accessibility bus to be found.
    NO_AT_BRIDGE: '1',
    GTK_A11Y: 'none',
    // Without a graphics card, composed layers cost three times the processor time of plain drawing.
    WEBKIT_DISABLE_COMPOSITING_MODE: '1',
  };
  const { selenium } = await importTool<Tools>('browser', 'test');
  return {
    // A driver and a browser each: that is what keeps storage apart.
    async open(frameUrl) {
      const port = await freePort();
      const service = spawnWithUs(program, [`--port=${port}`, '--host=127.0.0.1'], environment);
      try {
        await listening(port);
        const driver = await new selenium.Builder()
          .usingServer(`http://127.0.0.1:${port}`)
          .withCapabilities({
            browserName: 'MiniBrowser',
            'webkitgtk:browserOptions': { binary, args: ['--automation'] },
          })
          .build();
        // No limit of the driver's own for scripts: WebKit's is a timer of the page, and ends a script when a test moves the page's time.
        await driver.manage().setTimeouts({ script: null, pageLoad: STEP_MS });
        await driver.manage().window().setRect(VIEW);
        const close = async (): Promise<void> => {
          await within(END_MS, driver.quit()).catch(() => {});
          await ended(service);
        };
        return { ...webkitTab(driver, selenium, frameUrl), close };
      } catch (error) {
        await ended(service);
        throw error;
      }
    },
    stop: () => ended(display),
  };
}

function webkitTab(
  driver: WebDriver,
  { Key }: Tools['selenium'],
  frameUrl: string,
): Omit<Tab, 'close'> {
  const to = async (where: Where): Promise<void> => {
    await driver.switchTo().defaultContent();
    if (where === 'page') return;
    const [frame] = await driver.findElements({ css: `iframe[src^="${frameUrl}"]` });
    assert.ok(frame, NOT_THERE);
    await driver.switchTo().frame(frame);
  };
  return {
    async goto(url) {
      await to('page');
      await driver.get(url);
    },
    async run(where, script, ...given) {
      await to(where);
      const answer = await driver.executeAsyncScript(
        `const done = arguments[arguments.length - 1];
          Promise.resolve().then(() => ${call(script, given)}).then(
            (value) => done({ value: value === undefined ? null : JSON.stringify(value) }),
            (error) => done({ error: String(error && error.stack || error) }));`,
      );
      if (answer.error !== undefined) throw new Error(answer.error);
      return (typeof answer.value === 'string' ? JSON.parse(answer.value) : undefined) as never;
    },
    async click(where, selector) {
      await to(where);
      const end = Date.now() + STEP_MS;
      for (;;) {
        const [element] = await driver.findElements({ css: selector });
        if (element) return element.click();
        assert.ok(Date.now() < end, `never there: ${selector}`);
      }
    },
    async clickAt(x, y) {
      await to('page');
      await driver.actions().move({ x, y, duration: 0 }).press().release().perform();
    },
    async resize(size) {
      const rect = size === 'phone' ? { x: 0, y: 0, ...PHONE } : VIEW;
      await driver.manage().window().setRect(rect);
    },
    press: (key) =>
      driver
        .actions()
        .sendKeys(Key[key.toUpperCase()] ?? key)
        .perform(),
    type: (text) => driver.actions().sendKeys(text).perform(),
  };
}

/** Waits for a driver. */
async function listening(port: number): Promise<void> {
  const end = Date.now() + STEP_MS;
  const asks = (): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/status`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await asks())) {
    assert.ok(Date.now() < end, 'the driver does not start');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Ends a program with all that it started. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  process.kill(-child.pid, 'SIGKILL');
  await once(child, 'exit');
}

// Help ------------------------------------------------------------------------------------------------------------------------

/** What is used of puppeteer and of selenium, whose types are in tools/browser. */
interface Tools {
  readonly puppeteer: {
    launch(options: object): Promise<{
      createBrowserContext(): Promise<{ newPage(): Promise<FirefoxPage> }>;
      close(): Promise<void>;
    }>;
  };
  readonly selenium: {
    readonly Builder: new () => SeleniumBuilder;
    readonly Key: Readonly<Record<string, string>>;
  };
}
interface FirefoxFrame {
  url(): string;
  evaluate(script: string): Promise<unknown>;
  waitForSelector(selector: string): Promise<{ click(): Promise<void> } | null>;
}
interface FirefoxPage {
  readonly mouse: { click(x: number, y: number): Promise<void> };
  readonly keyboard: { press(key: string): Promise<void>; type(text: string): Promise<void> };
  setDefaultTimeout(ms: number): void;
  mainFrame(): FirefoxFrame;
  frames(): FirefoxFrame[];
  goto(url: string): Promise<unknown>;
  setViewport(size: { width: number; height: number } | null): Promise<void>;
  browserContext(): { close(): Promise<void> };
}
interface SeleniumBuilder {
  usingServer(url: string): SeleniumBuilder;
  withCapabilities(capabilities: object): SeleniumBuilder;
  build(): Promise<WebDriver>;
}
interface WebDriver {
  get(url: string): Promise<void>;
  executeAsyncScript(text: string): Promise<{ value?: string | null; error?: string }>;
  findElements(by: { css: string }): Promise<readonly { click(): Promise<void> }[]>;
  switchTo(): { defaultContent(): Promise<void>; frame(element: object): Promise<void> };
  manage(): {
    setTimeouts(limits: object): Promise<void>;
    window(): { setRect(rect: object): Promise<unknown> };
  };
  actions(): SeleniumActions;
  quit(): Promise<void>;
}
interface SeleniumActions {
  move(to: { x: number; y: number; duration: number }): SeleniumActions;
  press(): SeleniumActions;
  release(): SeleniumActions;
  sendKeys(keys: string): SeleniumActions;
  perform(): Promise<void>;
}

const NOT_THERE = 'the frame is not there';

/** A frame of a page, as both libraries list them. */
function frameOf<F extends { url(): string }>(
  page: { mainFrame(): F; frames(): F[] },
  frameUrl: string,
): F {
  const isPayment = (one: F): boolean => one !== page.mainFrame() && one.url().startsWith(frameUrl);
  return page.frames().find(isPayment) ?? assert.fail(NOT_THERE);
}

/** A library's source as a script of its own: the page's policy lets it in by no other way. */
export function scriptOf(source: string): () => void {
  const script = (): void => {};
  script.toString = () => `() => { ${source} }`;
  return script;
}

/** The text of a call: the one form that all three drivers take and await. */
function call(script: (...given: never[]) => unknown, given: readonly unknown[]): string {
  return `(${script.toString()})(...${JSON.stringify(given)})`;
}

/** The first of these programs that can be run. */
function onPath(names: readonly string[]): string | undefined {
  const folders = (process.env['PATH'] ?? '')
    .split(':')
    .filter((folder) => !folder.includes('node_modules'));
  return names
    .flatMap((name) => [...folders, '/usr/bin'].map((folder) => join(folder, name)))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
