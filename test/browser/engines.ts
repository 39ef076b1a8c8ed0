/**
 * Three browser engines behind one small driver: Chromium by its own protocol, Firefox by WebDriver BiDi, WebKit by classic
 * WebDriver. Only what all three can do the same way is here; what needs more stays with Chromium (`rig.ts`).
 *
 * Firefox and WebKit come from Debian (`firefox-esr`, `webkit2gtk-driver` and `xvfb`). An engine that is not installed is
 * undefined, and the test that asked for it says so.
 *
 * One file because the three are compared line by line: what one of them needs differently stands beside what the others do.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  accessSync,
  constants,
  globSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser as Chromium, Page as ChromiumPage } from 'playwright-core';
import { importTool } from '../../scripts/tool.ts';
import { launchChromium } from './chromium.ts';
import { DriverLost, WebDriverSession } from './webdriver.ts';
import { spawnWithUs, WITH_US } from './with-us.ts';

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
  /** Presses the mouse at a point of the window, in CSS pixels from its top left, whatever is there; `times`: so often, without a pause. */
  clickAt(x: number, y: number, times?: number): Promise<void>;
  /** Gives the window a phone's size (WebKit's is 447 pixels wide at least), or the one that it was opened with. */
  resize(to: 'phone' | 'opened'): Promise<void>;
  /** Presses a key (`Tab`, `Enter`, `Escape`, …) or types a text, wherever the focus is. */
  press(key: string): Promise<void>;
  type(text: string): Promise<void>;
  /** The page on paper, as a PDF. Undefined: this engine's driver cannot print (WebKitGTK). */
  printed(): Promise<Uint8Array | undefined>;
  /** The window that a script or a link opened, once it is there. */
  popup(): Promise<Tab>;
  /** Whether the browser, or what drives it, is gone: then a step's failure says nothing about the page. */
  lost(): boolean;
  close(): Promise<void>;
}

/** The steps of a tab, before they have a limit. */
type Steps = Omit<Tab, 'lost' | 'popup'> & { popup(): Promise<Steps> };

/** What a person has set in their system or browser. */
export interface Settings {
  /** IANA name. */
  readonly timeZone?: string;
  readonly colorScheme?: 'dark';
  readonly reducedMotion?: true;
  /** The system's own colours. WebKit has none (`forced-colors` matches in no theme of GTK): it gets GTK's theme of high contrast. */
  readonly forcedColors?: true;
  /** The folder where files are saved. */
  readonly downloads?: string;
}

export interface Engine {
  readonly name: EngineName;
  /** For the log: what was tested. */
  readonly version: string;
  /** `frameUrl`: how the address of the payment page starts. */
  open(frameUrl: string): Promise<Tab>;
  stop(): Promise<void>;
}

const PHONE = { width: 390, height: 844 } as const;

/** What a person in the United States prints on, with the margins of a browser. */
const PAPER = {
  format: 'letter',
  margin: { top: '0.5in', right: '0.5in', bottom: '0.5in', left: '0.5in' },
} as const;

const NOT_THERE = 'the frame is not there';

/** The longest that any one step may take; the machine may be busy. */
const PATIENCE_MS = 60_000;

/** Starts an engine; undefined when this machine has none of that name. Firefox and WebKit take settings only when they start. */
export async function startEngine(
  name: EngineName,
  settings: Settings = {},
): Promise<Engine | undefined> {
  switch (name) {
    case 'chromium':
      return startChromium(settings);
    case 'firefox':
      return startFirefox(settings);
    case 'webkit':
      return startWebKit(settings);
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

async function startChromium(settings: Settings): Promise<Engine> {
  const { timeZone, colorScheme, reducedMotion, forcedColors, downloads } = settings;
  const browser: Chromium = await launchChromium();
  return {
    name: 'chromium',
    version: `Chromium ${browser.version()}`,
    open: (frameUrl) =>
      guarded(async () => {
        const context = await browser.newContext({
          acceptDownloads: downloads !== undefined,
          ...(timeZone && { timezoneId: timeZone }),
          ...(colorScheme && { colorScheme }),
          ...(reducedMotion && { reducedMotion: 'reduce' }),
          ...(forcedColors && { forcedColors: 'active' }),
        });
        context.setDefaultTimeout(PATIENCE_MS);
        const page = await context.newPage();
        // Its driver keeps files under names of its own.
        if (downloads !== undefined)
          page.on(
            'download',
            (file) => void file.saveAs(join(downloads, file.suggestedFilename())).catch(() => {}),
          );
        return chromiumTab(page, frameUrl);
      }),
    stop: () => within('stop', browser.close()),
  };
}

function chromiumTab(page: ChromiumPage, frameUrl: string): Steps {
  const opened: ChromiumPage[] = [];
  page.on('popup', (popup) => opened.push(popup));
  const at = (where: Where) => (where === 'page' ? page : frameOf(page, where, frameUrl));
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    click: async (where, selector) => at(where).locator(selector).first().click(),
    clickAt: (x, y, times = 1) => page.mouse.click(x, y, { clickCount: times }),
    printed: () => page.pdf(PAPER),
    resize: (to) => page.setViewportSize(to === 'phone' ? PHONE : { width: 1280, height: 720 }),
    press: (key) => page.keyboard.press(key),
    type: (text) => page.keyboard.type(text),
    popup: async () => chromiumTab(await eventually(() => opened.shift()), frameUrl),
    close: () => page.context().close(),
  };
}

// Firefox ---------------------------------------------------------------------------------------------------------------------

async function startFirefox(settings: Settings): Promise<Engine | undefined> {
  const executablePath = onPath(['firefox-esr', 'firefox']);
  if (executablePath === undefined) return undefined;
  const { puppeteer } = await importTool<{ puppeteer: Puppeteer }>('browser', 'test');
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: WITH_US,
    env: { ...process.env, ...zoneOf(settings), PROGRAM: executablePath },
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
      // It would take the keyboard from the page when a file was saved.
      'browser.download.alwaysOpenPanel': false,
      ...firefoxPrefs(settings),
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

/** What is used of puppeteer, whose types are in tools/browser. */
interface Puppeteer {
  launch(options: object): Promise<{
    version(): Promise<string>;
    createBrowserContext(): Promise<{ newPage(): Promise<FirefoxPage> }>;
    close(): Promise<void>;
  }>;
}
interface FirefoxFrame {
  url(): string;
  evaluate(script: string): Promise<unknown>;
  waitForSelector(
    selector: string,
  ): Promise<{ click(): Promise<void>; dispose(): Promise<void> } | null>;
}
interface FirefoxPage {
  readonly mouse: { click(x: number, y: number, options: { count: number }): Promise<void> };
  readonly keyboard: { press(key: string): Promise<void>; type(text: string): Promise<void> };
  setDefaultTimeout(ms: number): void;
  mainFrame(): FirefoxFrame;
  frames(): FirefoxFrame[];
  goto(url: string): Promise<unknown>;
  pdf(options: object): Promise<Uint8Array>;
  setViewport(size: { width: number; height: number } | null): Promise<void>;
  browserContext(): { pages(): Promise<FirefoxPage[]>; close(): Promise<void> };
}

function firefoxPrefs(settings: Settings): Record<string, string | number | boolean> {
  const { colorScheme, reducedMotion, forcedColors, downloads } = settings;
  return {
    ...(colorScheme && { 'layout.css.prefers-color-scheme.content-override': 0 }),
    ...(reducedMotion && { 'ui.prefersReducedMotion': 1 }),
    ...(forcedColors && { 'browser.display.document_color_use': 2 }),
    ...(downloads && { 'browser.download.folderList': 2, 'browser.download.dir': downloads }),
  };
}

/** The environment that gives a browser a time zone. */
const zoneOf = ({ timeZone }: Settings): NodeJS.ProcessEnv => (timeZone ? { TZ: timeZone } : {});

function firefoxTab(page: FirefoxPage, frameUrl: string): Steps {
  page.setDefaultTimeout(PATIENCE_MS);
  const at = (where: Where): FirefoxFrame =>
    where === 'page' ? page.mainFrame() : frameOf(page, where, frameUrl);
  return {
    goto: async (url) => void (await page.goto(url)),
    run: async (where, script, ...given) => at(where).evaluate(call(script, given)) as never,
    async click(where, selector) {
      const element = await at(where).waitForSelector(selector);
      await element?.click();
      await element?.dispose();
    },
    clickAt: (x, y, times = 1) => page.mouse.click(x, y, { count: times }),
    printed: () => page.pdf(PAPER),
    resize: (to) => page.setViewport(to === 'phone' ? PHONE : null),
    press: (key) => page.keyboard.press(key),
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

async function startWebKit(settings: Settings): Promise<Engine | undefined> {
  const program = onPath(['WebKitWebDriver']);
  const xvfb = onPath(['Xvfb']);
  const [binary] = globSync('/usr/lib/*/webkit2gtk-4.*/MiniBrowser').sort().toReversed();
  if (program === undefined || xvfb === undefined || binary === undefined) return undefined;
  const display = spawnWithUs(
    xvfb,
    ['-displayfd', '3', '-screen', '0', '1280x1600x24', '-nolisten', 'tcp'],
    process.env,
  );
  const number = await within('Xvfb', displayNumber(display));
  const configuration = gtkConfiguration(settings);
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
          // Without a graphics card, composed layers cost three times the processor time of plain drawing.
          WEBKIT_DISABLE_COMPOSITING_MODE: '1',
          XDG_CONFIG_HOME: configuration,
          ...(settings.colorScheme && { GTK_THEME: 'Adwaita:dark' }),
          ...(settings.forcedColors && { GTK_THEME: 'HighContrast' }),
          ...zoneOf(settings),
        },
      });
      version = `WebKitGTK ${session.browserVersion}`;
      try {
        await session.command('POST', '/window/rect', VIEW);
        const tab = webkitTab(session, await session.command('GET', '/window'), frameUrl);
        return { ...tab, close: () => session.end() };
      } catch (error) {
        await session.end();
        throw error;
      }
    },
    async stop() {
      await ended(display);
      rmSync(configuration, { recursive: true, force: true });
    },
  };
}

/** A folder with what GTK's programs read of a person's settings. */
function gtkConfiguration({ reducedMotion, downloads }: Settings): string {
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-gtk-'));
  mkdirSync(join(folder, 'gtk-3.0'));
  const animations = reducedMotion ? 0 : 1;
  writeFileSync(
    join(folder, 'gtk-3.0/settings.ini'),
    `[Settings]\ngtk-enable-animations=${animations}\n`,
  );
  if (downloads) writeFileSync(join(folder, 'user-dirs.dirs'), `XDG_DOWNLOAD_DIR="${downloads}"\n`);
  return folder;
}

/** Xvfb chooses a display that is free and tells its number. */
async function displayNumber(display: ChildProcess): Promise<string> {
  const [number] = (await once(display.stdio[3] as NodeJS.ReadableStream, 'data')) as [Buffer];
  return number.toString().trim();
}

/** The driver does not scroll the site to show what it clicks in a frame: everything has to be in view. */
const VIEW = { x: 0, y: 0, width: 1200, height: 1500 } as const;

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
    async clickAt(x, y, times = 1) {
      await to('page');
      await session.clickAt(x, y, times);
    },
    printed: () => Promise.resolve(undefined),
    async resize(size) {
      await session.command('POST', '/window', { handle });
      const rect = size === 'phone' ? { x: 0, y: 0, ...PHONE } : VIEW;
      await session.command('POST', '/window/rect', rect);
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

/** A frame of a page, as both libraries list them. */
function frameOf<F extends { url(): string }>(
  page: { mainFrame(): F; frames(): F[] },
  where: Exclude<Where, 'page'>,
  frameUrl: string,
): F {
  const wanted = where === 'frame' ? frameUrl : (where.at(-1) ?? frameUrl);
  const frame = page
    .frames()
    .find((one) => one !== page.mainFrame() && one.url().startsWith(wanted));
  if (!frame) throw new Error(NOT_THERE);
  return frame;
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
    clickAt: (x, y, times) => step('click', tab.clickAt(x, y, times)),
    printed: () => step('printed', tab.printed()),
    resize: (to) => step('resize', tab.resize(to)),
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
