/**
 * Three browser engines behind one small driver: Chromium by its own protocol, Firefox by WebDriver BiDi, WebKit by classic
 * WebDriver. Only what all three can do the same way is here; what needs more stays with Chromium (`rig.ts`).
 *
 * Firefox and WebKit come from Debian (`firefox-esr`, `webkit2gtk-driver` and `xvfb`). An engine that is not installed is
 * undefined, and the test that asked for it says so.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, globSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser as Chromium, Page as ChromiumPage } from 'playwright-core';
import { launchChromium } from './chromium.ts';
import { DriverLost, WebDriverSession } from './webdriver.ts';

export const ENGINES = ['chromium', 'firefox', 'webkit'] as const;
export type EngineName = (typeof ENGINES)[number];

/**
 * Where a script runs: in the site's page, in the payment page that stands in it, or in a frame within that: how the addresses of the
 * frames on the way start, from the payment page inwards.
 */
export type Where = 'page' | 'frame' | readonly string[];

/** A function that is sent to the browser as text: it sees its arguments and the window, nothing else. */
export type Script<A extends readonly unknown[], T> = (...given: A) => T | Promise<T>;

/** A window of one browser, with storage of its own. */
export interface Tab {
  goto(url: string): Promise<void>;
  /** Runs a script; its arguments and its answer are JSON. Rejects when the frame is not there. */
  run<A extends readonly unknown[], T>(where: Where, script: Script<A, T>, ...given: A): Promise<T>;
  /** Presses the mouse on the first element of a selector, as a person does: the browser counts it as theirs. */
  click(where: Where, selector: string): Promise<void>;
  /** Presses a key (`Tab`, `Enter`, `Escape`, …) or types a text, wherever the focus is. */
  press(key: string): Promise<void>;
  type(text: string): Promise<void>;
  /** The window that a script or a link opened, once it is there. */
  popup(): Promise<Tab>;
  /** Whether the browser, or what drives it, is gone: then a step's failure says nothing about the page. */
  lost(): boolean;
  close(): Promise<void>;
}

/** The steps of a tab, before they have a limit. */
type Steps = Omit<Tab, 'lost' | 'popup'> & { popup(): Promise<Steps> };

export interface Engine {
  readonly name: EngineName;
  /** For the log: what was tested. */
  readonly version: string;
  /** `frameUrl`: how the address of the payment page starts. */
  open(frameUrl: string): Promise<Tab>;
  stop(): Promise<void>;
}

const NOT_THERE = 'the frame is not there';

/** The longest that any one step may take; the machine may be busy. */
const PATIENCE_MS = 20_000;

/** Starts an engine; undefined when this machine has none of that name. */
export async function startEngine(name: EngineName): Promise<Engine | undefined> {
  switch (name) {
    case 'chromium':
      return startChromium();
    case 'firefox':
      return startFirefox();
    case 'webkit':
      return startWebKit();
  }
}

/** What to say where an engine is missing. */
export const MISSING: Readonly<Record<EngineName, string>> = {
  chromium: 'Chromium is not installed (npm package @sparticuz/chromium): not tested in it',
  firefox: 'Firefox is not installed (Debian package firefox-esr): not tested in it',
  webkit:
    'WebKitGTK is not installed (Debian packages webkit2gtk-driver and xvfb): not tested in it',
};

// Chromium --------------------------------------------------------------------------------------------------------------------

async function startChromium(): Promise<Engine> {
  const browser: Chromium = await launchChromium();
  return {
    name: 'chromium',
    version: `Chromium ${browser.version()}`,
    open: (frameUrl) =>
      guarded(async () => {
        const context = await browser.newContext();
        context.setDefaultTimeout(PATIENCE_MS);
        return chromiumTab(await context.newPage(), frameUrl);
      }),
    stop: () => within('stop', browser.close()),
  };
}

function chromiumTab(page: ChromiumPage, frameUrl: string): Steps {
  const opened: ChromiumPage[] = [];
  page.on('popup', (popup) => opened.push(popup));
  const at = (where: Where): ChromiumPage | import('playwright-core').Frame => {
    if (where === 'page') return page;
    const wanted = where === 'frame' ? frameUrl : (where.at(-1) ?? frameUrl);
    const frame = page
      .frames()
      .find((one) => one !== page.mainFrame() && one.url().startsWith(wanted));
    if (!frame) throw new Error(NOT_THERE);
    return frame;
  };
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    click: async (where, selector) => at(where).locator(selector).first().click(),
    press: (key) => page.keyboard.press(key),
    type: (text) => page.keyboard.type(text),
    popup: async () => chromiumTab(await eventually(() => opened.shift()), frameUrl),
    close: () => page.context().close(),
  };
}

// Firefox ---------------------------------------------------------------------------------------------------------------------

async function startFirefox(): Promise<Engine | undefined> {
  const executablePath = onPath(['firefox-esr', 'firefox']);
  if (executablePath === undefined) return undefined;
  const { default: puppeteer } = await import('puppeteer-core');
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath,
    headless: true,
    protocolTimeout: PATIENCE_MS + 5_000,
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
    name: 'firefox',
    version: await browser.version(),
    open: (frameUrl) =>
      guarded(async () => {
        const context = await browser.createBrowserContext();
        return firefoxTab(await context.newPage(), frameUrl);
      }),
    stop: () => within('stop', browser.close()),
  };
}

function firefoxTab(page: import('puppeteer-core').Page, frameUrl: string): Steps {
  page.setDefaultTimeout(PATIENCE_MS);
  const at = (where: Where): import('puppeteer-core').Frame => {
    if (where === 'page') return page.mainFrame();
    const wanted = where === 'frame' ? frameUrl : (where.at(-1) ?? frameUrl);
    const frame = page
      .frames()
      .find((one) => one !== page.mainFrame() && one.url().startsWith(wanted));
    if (!frame) throw new Error(NOT_THERE);
    return frame;
  };
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    async click(where, selector) {
      const element = await at(where).waitForSelector(selector);
      await element?.click();
      await element?.dispose();
    },
    press: (key) => page.keyboard.press(key as import('puppeteer-core').KeyInput),
    type: (text) => page.keyboard.type(text),
    // Not by its event, which does not come for a window that a frame opened.
    popup: async () =>
      firefoxTab(
        await eventually(async () =>
          (await page.browserContext().pages()).find((one) => one !== page),
        ),
        frameUrl,
      ),
    close: () => page.browserContext().close(),
  };
}

// WebKit ----------------------------------------------------------------------------------------------------------------------

async function startWebKit(): Promise<Engine | undefined> {
  const program = onPath(['WebKitWebDriver']);
  const xvfb = onPath(['Xvfb']);
  const [binary] = globSync('/usr/lib/*/webkit2gtk-4.*/MiniBrowser').sort().toReversed();
  if (program === undefined || xvfb === undefined || binary === undefined) return undefined;
  const display = spawn(
    xvfb,
    ['-displayfd', '3', '-screen', '0', '1280x1600x24', '-nolisten', 'tcp'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
  );
  const number = await within('Xvfb', displayNumber(display));
  let version = 'WebKitGTK';
  return {
    name: 'webkit',
    get version() {
      return version;
    },
    // A session each: it is what keeps storage apart.
    async open(frameUrl) {
      const session = await WebDriverSession.start({
        program,
        patienceMs: PATIENCE_MS,
        capabilities: {
          browserName: 'MiniBrowser',
          'webkitgtk:browserOptions': { binary, args: ['--automation'] },
        },
        environment: {
          ...process.env,
          DISPLAY: `:${number}`,
          LANG: 'C.UTF-8',
          // In a container there is neither a session bus nor an accessibility bus to be found.
          NO_AT_BRIDGE: '1',
          GTK_A11Y: 'none',
        },
      });
      version = `WebKitGTK ${session.browserVersion}`;
      try {
        // The driver does not scroll the site to show what it clicks in a frame: everything has to be in view.
        const view = { x: 0, y: 0, width: 1200, height: 1500 };
        await session.command('POST', '/window/rect', view);
        const tab = webkitTab(session, await session.command('GET', '/window'), frameUrl);
        return { ...tab, close: () => session.end() };
      } catch (error) {
        await session.end();
        throw error;
      }
    },
    async stop() {
      await ended(display);
    },
  };
}

/** Xvfb chooses a display that is free and tells its number. */
async function displayNumber(display: ChildProcess): Promise<string> {
  const [number] = (await once(display.stdio[3] as NodeJS.ReadableStream, 'data')) as [Buffer];
  return number.toString().trim();
}

/** WebDriver's names of the keys that are not characters. */
const KEYS: Readonly<Record<string, string>> = {
  Tab: '\uE004',
  Enter: '\uE007',
  Escape: '\uE00C',
};

function webkitTab(session: WebDriverSession, handle: string, frameUrl: string): Tab {
  const to = async (where: Where): Promise<void> => {
    await session.command('POST', '/window', { handle });
    await session.command('POST', '/frame', { id: null });
    if (where === 'page') return;
    for (const start of [frameUrl, ...(where === 'frame' ? [] : where)]) {
      const [frame] = await session.elements(`iframe[src^="${start}"]`);
      if (!frame) throw new Error(NOT_THERE);
      await session.command('POST', '/frame', { id: frame });
    }
  };
  return {
    lost: () => session.lost,
    async goto(url) {
      await to('page');
      await session.command('POST', '/url', { url });
    },
    async run(where, script, ...given) {
      await to(where);
      const answer = await session.command<{ value?: string | null; error?: string }>(
        'POST',
        '/execute/async',
        {
          args: [],
          script: `const done = arguments[arguments.length - 1];
            Promise.resolve().then(() => ${call(script, given)}).then(
              (value) => done({ value: value === undefined ? null : JSON.stringify(value) }),
              (error) => done({ error: String(error && error.stack || error) }));`,
        },
      );
      if (answer.error !== undefined) throw new Error(answer.error);
      return (typeof answer.value === 'string' ? JSON.parse(answer.value) : undefined) as never;
    },
    async click(where, selector) {
      await to(where);
      await session.click(await eventually(async () => (await session.elements(selector))[0]));
    },
    press: (key) => session.keys([KEYS[key] ?? key]),
    type: (text) => session.keys(text.split('')),
    async popup() {
      const opened = await eventually(async () =>
        (await session.command<string[]>('GET', '/window/handles')).find((one) => one !== handle),
      );
      return webkitTab(session, opened, frameUrl);
    },
    async close() {
      await session.command('POST', '/window', { handle });
      await session.command('DELETE', '/window');
    },
  };
}

// Help ------------------------------------------------------------------------------------------------------------------------

/** A step that takes longer than this will not come back: scripts and loads have a limit of their own below it. */
const STEP_MS = PATIENCE_MS + 10_000;

async function within<T>(what: string, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new DriverLost(`${what}: no answer`)), STEP_MS);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What playwright and puppeteer say when the browser or its page crashed. */
const GONE = /TargetCloseError|ConnectionClosedError|Target crashed|has been closed|Session closed/;

/** Opens a tab whose steps have a limit. A tab that does not open, or a step without an answer, means that its browser is gone. */
async function guarded(opening: () => Promise<Steps>): Promise<Tab> {
  const state = { lost: false };
  try {
    return guardedTab(await within('open', opening()), state);
  } catch (error) {
    throw error instanceof DriverLost ? error : new DriverLost(`open: ${String(error)}`);
  }
}

function guardedTab(tab: Steps, state: { lost: boolean }): Tab {
  const step = async <T>(what: string, answer: Promise<T>): Promise<T> => {
    try {
      return await within(what, answer);
    } catch (error) {
      if (error instanceof DriverLost || GONE.test(String(error))) state.lost = true;
      throw error;
    }
  };
  return {
    lost: () => state.lost,
    goto: (url) => step('goto', tab.goto(url)),
    run: (where, script, ...given) => step('run', tab.run(where, script, ...given)),
    click: (where, selector) => step('click', tab.click(where, selector)),
    press: (key) => step('press', tab.press(key)),
    type: (text) => step('type', tab.type(text)),
    popup: async () => guardedTab(await step('popup', tab.popup()), state),
    close: () => step('close', tab.close()),
  };
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

/** Waits for something to be there. */
async function eventually<T>(look: () => T | undefined | Promise<T | undefined>): Promise<T> {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    assert.ok(Date.now() < end, `never there: ${look.toString()}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 20);
    });
  }
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

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill();
  await once(child, 'exit');
}
