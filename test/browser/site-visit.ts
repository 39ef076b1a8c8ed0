/**
 * A site with the payment page in it, open in an engine: what a customer does there and what the site hears. What holds in any browser
 * is tested in Chromium; what engines do each in a way of their own, in every engine that is installed.
 */
import assert from 'node:assert/strict';
import test, { after, suite } from 'node:test';
import type { Duebridge, DuebridgeOptions } from '../../packages/web/src/embed/types.ts';
import { ENGINES, type EngineName, type Script, type Tab, Visitor } from './engines.ts';
import { until, values, type Heard, type Rig, type SiteOptions } from './rig.ts';
import type { Standing } from './screens.ts';
import type { ScriptedFlow, World } from './scripted-flow.ts';

/** What the site's script puts on its window. */
export interface SiteWindow {
  heard: Heard[];
  siteReady?: boolean;
  onOpen?: () => void;
  instance: Duebridge;
  make: (options: object) => Duebridge;
  sdk: { createDuebridge: (options: DuebridgeOptions) => Duebridge };
  start: (options: object, target?: string) => Promise<string>;
}

/** A site open in one engine. */
export type EngineVisit = Awaited<ReturnType<typeof visitSite>>;

/** One test in one engine. */
interface InOneEngine {
  readonly name: EngineName;
  /** A platform of the engine's own: its accidents reach no other engine. */
  readonly flow: ScriptedFlow;
  /** Opens the site; `query` as `VisitOptions` has it. */
  readonly visit: (world: World, query?: string, site?: string) => Promise<EngineVisit>;
}

export type InEngine = (title: string, body: (engine: InOneEngine) => Promise<void>) => void;

/** Settings of the tests of a file. */
interface Suite {
  /** An error of a page, a breach of its policy and a token in its console fail the test. */
  readonly isWatched?: boolean;
  /** The tests move the time of their pages. */
  readonly isTimed?: boolean;
}

/** Defines tests in Chromium. */
export function inChromium(
  rig: Pick<Rig, 'flowIn'>,
  define: (inEngine: InEngine) => void,
  options: Suite = {},
): void {
  inEngines(['chromium'], rig, define, options);
}

/** Defines tests in every engine; for a `*.full.test.ts`. */
export function inEachEngine(
  rig: Pick<Rig, 'flowIn'>,
  define: (inEngine: InEngine, name: EngineName) => void,
  options: Suite = {},
): void {
  inEngines(ENGINES, rig, define, options);
}

/**
 * Defines tests in engines, side by side: most of each test is waiting. The tests of an engine share one browser and
 * one tab of it; each begins with a site that is loaded anew.
 */
function inEngines(
  engines: readonly EngineName[],
  rig: Pick<Rig, 'flowIn'>,
  define: (inEngine: InEngine, name: EngineName) => void,
  { isWatched = false, isTimed = false }: Suite,
): void {
  void suite('in a browser', { concurrency: engines.length }, () => {
    for (const name of engines)
      void suite(name, { concurrency: 1 }, () => {
        const visitor = new Visitor(name);
        after(() => visitor.stop());
        define((title, body) => {
          void test(title, async (t) => {
            const flow = await rig.flowIn(name);
            await visitor.visit(t, flow.payOrigin, async (open) => {
              flow.wire = undefined;
              const worlds = new Set<World>();
              const visit: InOneEngine['visit'] = async (world, query = '', site = 'acme') => {
                worlds.add(world);
                if (isWatched) world.before ??= watched(world.partner);
                const address = addressOf(flow.site(site), world, query);
                const tab = await open();
                if (isTimed) await tab.clock?.install();
                return visitSite(flow, tab, world, address);
              };
              await body({ name, flow, visit });
              for (const { wrong } of worlds) assert.deepEqual(wrong, []);
            });
          });
        }, name);
      });
  });
}

/** A script that tells the platform what went wrong in its page. */
function watched(partner: string): string {
  return `
    const wrong = (text) => navigator.sendBeacon('/wrong?${partner}', text);
    // A slow machine lays the page out again while its height is told, and tells the new one in the next frame: nothing went wrong.
    addEventListener('error', ({ message }) => {
      if (!message.startsWith('ResizeObserver loop')) wrong('error: ' + message);
    });
    addEventListener('unhandledrejection', ({ reason }) => wrong('rejection: ' + reason));
    document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => {
      // The site of these tests has no icon, which Firefox and WebKit look for by themselves.
      if (!blockedURI.endsWith('/favicon.ico')) wrong('policy: ' + violatedDirective + ' ' + blockedURI);
    });
    for (const way of ['debug', 'log', 'info', 'warn', 'error', 'trace', 'dir', 'table']) {
      const write = console[way].bind(console);
      console[way] = (...said) => {
        const text = said.map(String).join(' ');
        if (way === 'error' || /db[ts]_/.test(text)) wrong('console: ' + text);
        write(...said);
      };
    }`;
}

function addressOf(site: string, { before, partner }: World, query: string): string {
  return `${site}/${query === '' ? '?' : `${query}&`}${before === undefined ? '' : `before=${partner}`}`;
}

/** Loads a site in a tab. */
async function visitSite(flow: ScriptedFlow, tab: Tab, world: World, address: string) {
  await tab.goto(address);
  await ready(tab);
  /** All that the site has heard until now. It hears of a screen in a message, a little after the customer sees the screen. */
  const heard = (): Promise<Heard[]> =>
    tab.run('page', () => (window as unknown as SiteWindow).heard);
  /** The values of one kind of event, once the site has heard at least this many of them. */
  const hears = async <T>(event: string, atLeast = 1): Promise<T[]> => {
    let found: unknown[] = [];
    await until(async () => {
      found = values(await heard(), event);
      return found.length >= atLeast;
    });
    return found as T[];
  };
  return {
    tab,
    ...pageActs(tab, 'frame'),
    /** Waits until a script of the payment page, or of the site, gives true. */
    holds: <A extends readonly unknown[]>(
      where: 'page' | 'frame',
      script: Script<A, boolean>,
      ...given: A
    ): Promise<void> => holds(() => tab.run(where, script, ...given)),
    /** Opens the SDK; gives "mounted" or the code of the error. */
    start(given: SiteOptions = {}, target = '#place'): Promise<string> {
      const settings = { partner: world.partner, frameOrigin: flow.payOrigin, ...given };
      const mounted = tab.run(
        'page',
        (options, place) => (window as unknown as SiteWindow).start(options, place),
        settings,
        target,
      );
      // A test that fails before it awaits this closes the tab: the visit may be made again, and this says nothing more.
      mounted.catch(() => {});
      return mounted;
    },
    heard,
    hears,
    /** The codes of its errors, once it has heard at least this many. */
    codes: async (atLeast: number): Promise<string[]> =>
      (await hears<{ code: string }>('error', atLeast)).map(({ code }) => code),
    /** The statuses of its payments, once it has heard that one succeeded. */
    async statuses(): Promise<string[]> {
      let found: string[] = [];
      await until(async () => {
        found = (await hears<{ status: string }>('payment')).map(({ status }) => status);
        return found.includes('succeeded');
      });
      return found;
    },
  };
}

/** Whatever the SDK could have left behind in the site. */
export const leftovers = ({ tab }: Pick<EngineVisit, 'tab'>): Promise<number> =>
  tab.run(
    'page',
    () =>
      document.querySelectorAll('iframe, dialog').length +
      (document.documentElement.style.overflow === '' ? 0 : 1),
  );

/** From now on the site's button opens the payment page over it. */
export async function opensModal(at: EngineVisit, world: World, flow: ScriptedFlow): Promise<void> {
  await at.tab.run(
    'page',
    (settings) => {
      const site = window as unknown as SiteWindow;
      site.onOpen = () => void site.start(settings);
    },
    { partner: world.partner, frameOrigin: flow.payOrigin, display: 'modal' },
  );
}

/** Waits for the site's script. */
export const ready = (tab: Tab): Promise<void> =>
  until(() => tab.run('page', () => (window as unknown as SiteWindow).siteReady === true));

/** Waits until a page says yes. A frame that is being replaced cannot be asked: not yet. */
const holds = (asked: () => Promise<boolean>): Promise<void> =>
  until(() => asked().catch(() => false));

/** What a customer does on the payment page, in the frame or in a window of its own. */
export function pageActs(tab: Tab, where: 'page' | 'frame') {
  /** Waits for the screen with this h1. */
  const title = (text: string): Promise<void> =>
    holds(() =>
      tab.run(where, (wanted) => document.querySelector('h1')?.textContent === wanted, text),
    );
  /** Presses the button with this name. */
  const press = async (name: string): Promise<void> => {
    await holds(async () => {
      const look = await tab.run(
        where,
        (wanted) => {
          const buttons = [...document.querySelectorAll('button')];
          const found = buttons.find(({ textContent }) => textContent === wanted);
          for (const button of buttons) button.toggleAttribute('data-wanted', button === found);
          const isAsTall = innerHeight === Math.ceil(document.body.offsetHeight);
          return { isThere: found !== undefined, isAsTall };
        },
        name,
      );
      // The site makes the frame as tall as the screen a moment later; until then a click may miss. Not where it cannot be taller.
      const isSettled = where === 'page' || look.isAsTall || (await tab.run('page', isFull));
      return look.isThere && isSettled;
    });
    await tab.click(where, '[data-wanted]');
  };
  return {
    title,
    press,
    /** Waits for a text of the payment page. */
    sees: (text: string): Promise<void> =>
      holds(() => tab.run(where, (wanted) => document.body.innerText.includes(wanted), text)),
    async pay(): Promise<void> {
      await press('Pay $123.45');
      await title('Paid. Thank you!');
    },
  };
}

/** Runs in the site: whether the payment page is in a sheet, whose height does not change, or as tall as the window. */
function isFull(): boolean {
  const frame = document.querySelector('dialog iframe');
  return (
    frame !== null &&
    (matchMedia('(max-width: 600px)').matches || frame.clientHeight >= innerHeight)
  );
}

/**
 * Walks in any engine, by script, so that 33 walks take no time: how a person presses and types is tested elsewhere (pay.test.ts).
 */
export function standing(
  { tab, holds }: Pick<EngineVisit, 'tab' | 'holds'>,
  flow: ScriptedFlow,
): Standing {
  return {
    press: (selector) =>
      holds(
        'frame',
        (wanted) => {
          const button = document.querySelector<HTMLButtonElement>(wanted);
          button?.click();
          return button !== null;
        },
        selector,
      ),
    write: (text) =>
      holds(
        'frame',
        (typed) => {
          const input = document.querySelector('input');
          if (input) input.value = typed;
          input?.dispatchEvent(new Event('input', { bubbles: true }));
          return input !== null;
        },
        text,
      ),
    there: (selector) =>
      holds('frame', (wanted) => document.querySelector(wanted) !== null, selector),
    offline() {
      // Refused, not cut: each engine repeats a cut request in its own way and for its own time.
      flow.wire = (path) => (path.startsWith('/v1/') ? 'SERVICE_UNAVAILABLE' : undefined);
      return tab.run('frame', () => {
        Object.defineProperty(navigator, 'onLine', { configurable: true, get: () => false });
        dispatchEvent(new Event('offline'));
      });
    },
  };
}
