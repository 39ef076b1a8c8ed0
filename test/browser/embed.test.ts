/**
 * The SDK in a site: its options, timeouts, events and errors, files that are
 * late, blocked or missing; a browser without storage and one whose clock is wrong.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Script } from './engines.ts';
import { gate, until, useRig } from './rig.ts';
import {
  inChromium,
  leftovers,
  type EngineVisit,
  type InEngine,
  type SiteWindow,
} from './site-visit.ts';
import { succeeds, type Trouble, type World } from './scripted-flow.ts';

const rig = useRig({ withChromium: false });

inChromium(rig, (inEngine) => {
  options(inEngine);
  mounting(inEngine);
  events(inEngine);
  dialogs(inEngine);
  files(inEngine);
  browsers(inEngine);
});

const framesOf = ({ tab }: EngineVisit): Promise<number> =>
  tab.run('page', () => document.querySelectorAll('iframe').length);

/** Runs a script in the site. */
const inSite = <A extends readonly unknown[], T>(
  { tab }: EngineVisit,
  script: Script<A, T>,
  ...given: A
): Promise<T> => tab.run('page', script, ...given);

// What the site asks for ------------------------------------------------------------------------------------------------------

function options(inEngine: InEngine): void {
  inEngine(
    'a change of language or look keeps what the customer typed',
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      await at.start({ appearance: { theme: 'light' } });
      await at.press('Change');
      await at.title('How much would you like to pay?');
      await at.tab.click('frame', '#amount');
      await at.tab.type('17.20');
      await at.holds('frame', () => document.querySelector('input')?.value === '17.20');
      await at.tab.run('page', () =>
        (window as unknown as SiteWindow).instance.update({
          locale: 'es',
          appearance: { theme: 'dark' },
        }),
      );
      await at.title('¿Cuánto desea pagar?');
      await at.holds(
        'frame',
        () =>
          document.querySelector('input')?.value === '17.20' &&
          document.documentElement.dataset['theme'] === 'dark',
      );
      // What a browser fills in by itself: the amount of a transaction, and decimals on a phone's keyboard.
      const field = await at.tab.run('frame', () => {
        const input = document.querySelector('input');
        return [input?.getAttribute('autocomplete'), input?.inputMode];
      });
      assert.deepEqual(field, ['transaction-amount', 'decimal']);
    },
  );

  inEngine(
    'the first bytes have the theme of the site, before any file of the page has come',
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      flow.wire = (path) => (path.startsWith('/flow/assets/') ? 'hang' : undefined);
      // The last ones leave it to the site: one that names no scheme is light, whatever the system is.
      for (const [theme, colorScheme, background] of [
        ['dark', '', 'rgb(20, 24, 31)'],
        ['light', 'dark', 'rgb(255, 255, 255)'],
        ['auto', '', 'rgb(255, 255, 255)'],
        ['auto', 'dark', 'rgb(20, 24, 31)'],
        ['auto', 'light dark', 'rgb(255, 255, 255)'],
      ] as const) {
        await at.tab.run(
          'page',
          (settings, scheme) => {
            const site = window as unknown as SiteWindow;
            document.documentElement.style.colorScheme = scheme;
            site.make(settings).mount('#place').catch(String);
          },
          { partner: 'p', frameOrigin: flow.payOrigin, appearance: { theme }, display: 'modal' },
          colorScheme,
        );
        const ground = (): string =>
          getComputedStyle(document.querySelector('iframe') ?? document.documentElement)
            .backgroundColor;
        assert.equal(await at.tab.run('page', ground), background);
        await at.tab.run('page', () => (window as unknown as SiteWindow).instance.destroy());
      }
    },
  );
}

// From the call to the first screen -------------------------------------------------------------------------------------------

function mounting(inEngine: InEngine): void {
  inEngine(
    'a mount that cannot work rejects with a typed error and leaves nothing behind',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      for (const target of ['#nowhere', '', '%%'])
        assert.equal(await at.start({}, target), 'config_invalid', target);
      const detached = await at.tab.run(
        'page',
        (settings) => {
          const code = (error: { code?: string }): string => error.code ?? 'no code';
          return (window as unknown as SiteWindow)
            .make(settings)
            .mount(document.createElement('div'))
            .catch(code);
        },
        { partner: world.partner, frameOrigin: flow.payOrigin },
      );
      assert.equal(detached, 'config_invalid');
      const own = await at.tab.run('page', () => location.origin);
      assert.equal(await at.start({ frameOrigin: own }), 'config_invalid');
      assert.equal(await at.start({ partner: 'unknown' }), 'frame_refused');
      assert.equal(await leftovers(at), 0);
    },
  );

  inEngine(
    'a policy of the site that only reports, or keeps out other things, takes no page away and stops no redirect',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world, '?reports');
      assert.equal(await at.start(), 'mounted');
      // The site's policy keeps this out, and not the page.
      await inSite(at, (file) => fetch(file).then(String, String), `${flow.payOrigin}/sdk/v1/a`);
      await at.pay();
      await at.tab.run(
        'page',
        (settings) => {
          const { make } = window as unknown as SiteWindow;
          make({ ...settings, display: 'redirect', returnUrl: location.href })
            .mount()
            .catch(({ code }: { code: string }) => sessionStorage.setItem('refused', code));
        },
        { partner: world.partner, frameOrigin: flow.payOrigin },
      );
      await at.holds('page', () => location.pathname.startsWith('/flow/v1/'));
      await at.tab.goto(flow.site('acme'));
      assert.equal(await at.tab.run('page', () => sessionStorage.getItem('refused')), null);
    },
  );

  inEngine(
    'a page whose first request gets no answer, or a broken one, is asked for again and pays',
    async ({ flow, visit }) => {
      for (const [trouble, display] of [
        ['hang', 'inline'],
        ['cut', 'modal'],
      ] as const) {
        const world = flow.world({
          plan: { page: (count) => (count === 1 ? trouble : undefined) },
        });
        const at = await visit(world);
        assert.equal(await at.start({ display }), 'mounted', trouble);
        assert.ok(world.counts.page > 1, trouble);
        assert.deepEqual([world.counts.token, world.counts.exchange], [1, 1]);
        await at.pay();
        assert.equal(await framesOf(at), 1, 'what looked into it is gone');
      }
    },
  );

  inEngine(
    'mounting twice, destroying while it loads, aborting, and using what is destroyed',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { page: (count) => (count === 1 ? 'hang' : undefined) },
      });
      const at = await visit(world);
      const told = await at.tab.run(
        'page',
        async (settings) => {
          const { make } = window as unknown as SiteWindow;
          const code = (error: { code?: string }): string => error.code ?? 'no code';
          const first = make(settings);
          const loading = first.mount('#place').catch(code);
          const twice = await first.mount('#place').catch(code);
          first.destroy();
          first.destroy();
          const after = await first.mount('#place').catch(code);
          const abort = new AbortController();
          const second = make({ ...settings, signal: abort.signal });
          const aborted = second.mount('#place').catch(code);
          abort.abort();
          const third = make({ ...settings, signal: abort.signal });
          const states = [first.state, second.state, third.state];
          return [
            twice,
            await loading,
            after,
            await aborted,
            await third.mount('#place').catch(code),
            ...states,
          ];
        },
        { partner: world.partner, frameOrigin: flow.payOrigin },
      );
      assert.deepEqual(told, ['config_invalid', ...Array.from({ length: 7 }, () => 'destroyed')]);
      assert.equal(await leftovers(at), 0);
    },
  );
}

// What the site hears ---------------------------------------------------------------------------------------------------------

function events(inEngine: InEngine): void {
  inEngine(
    'a backend that gives no token is told to the customer, with the cause for the engineer',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { token: (count) => (count <= 1 ? 'INTERNAL_ERROR' : undefined) },
      });
      const at = await visit(world);
      assert.equal(await at.start(), 'mounted');
      await at.title('We could not start the payment');
      const [error] = await at.hears<Record<string, unknown>>('error');
      assert.deepEqual(
        [error?.['code'], error?.['cause']],
        ['token_invalid', 'token backend: 500'],
      );
      await at.press('Try again');
      await at.title('Your bill from Acme Water');
    },
  );

  inEngine('a listener that throws does not stop the payment', async ({ flow, visit }) => {
    const at = await visit(flow.world());
    await at.start();
    await at.tab.run('page', () => {
      const told: string[] = [];
      Object.assign(window, { told });
      addEventListener('error', ({ error }) => told.push((error as Error).message));
      (window as unknown as SiteWindow).instance.on('screen', () => {
        throw new Error('the mistake of the site');
      });
    });
    await at.pay();
    const told = await at.tab.run('page', () => (window as unknown as { told: string[] }).told);
    assert.deepEqual([...new Set(told)], ['the mistake of the site']);
  });

  inEngine(
    'a modal page takes Escape, asks while it sends, and gives the page back as it was',
    async ({ flow, visit }) => {
      const pay = gate();
      const world = flow.world({ plan: { pay: () => pay.held } });
      const at = await visit(world);
      await at.start({ display: 'modal' });
      await at.press('Pay $123.45');
      await until(() => world.counts.pay === 1);
      await at.tab.press('Escape');
      await at.sees('Close the page anyway?');
      await at.press('Keep it open');
      assert.equal(await at.tab.run('page', () => document.querySelectorAll('dialog').length), 1);
      pay.open();
      await at.title('Paid. Thank you!');
      await at.tab.press('Escape');
      await until(async () => (await leftovers(at)) === 0);
      const [exit] = await at.hears<Record<string, unknown>>('exit');
      assert.deepEqual(
        [exit?.['reason'], exit?.['at'], exit?.['sessionId']],
        ['completed', 'receipt', 'session-1'],
      );
    },
  );
}

// Dialogs -------------------------------------------------------------------------------------------------------------------

function dialogs(inEngine: InEngine): void {
  inEngine(
    'a modal page that does not load can be closed with Escape and with a click beside it',
    async ({ flow, visit }) => {
      const world = flow.world({ plan: { page: () => 'hang' } });
      const at = await visit(world);
      for (const leave of [() => at.tab.press('Escape'), () => at.tab.clickAt(20, 20)]) {
        const mounted = at.start({ display: 'modal' });
        await at.holds('page', () => document.querySelector('dialog[open] iframe') !== null);
        await leave();
        assert.equal(await mounted, 'destroyed');
        assert.equal(await leftovers(at), 0);
      }
      const reasons = await at.hears<{ reason: string; at: string }>('exit', 2);
      assert.deepEqual(
        reasons.map((exit) => [exit.reason, exit.at]),
        [
          ['user', 'loading'],
          ['user', 'loading'],
        ],
      );
    },
  );

  inEngine(
    'a phone’s keyboard leaves the dialog the part of the window that is seen, and zooming changes nothing',
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      await at.tab.resize('phone');
      await at.holds('page', () => innerWidth < 600);
      await at.start({ display: 'modal' });
      await at.title('Your bill from Acme Water');
      const box = (): Promise<number[]> =>
        inSite(at, () => {
          const dialog = document.querySelector('dialog')?.getBoundingClientRect();
          return [dialog?.top ?? -1, dialog?.height ?? -1];
        });
      /** What a phone tells of its window: no driver has a keyboard to show. */
      const tell = (height: number, scale: number, offsetTop = 0, change = 'resize') =>
        inSite(
          at,
          (changed, told) => {
            const view = visualViewport as VisualViewport;
            for (const [name, value] of Object.entries(told))
              Object.defineProperty(view, name, { configurable: true, value });
            view.dispatchEvent(new Event(changed));
          },
          change,
          { height, scale, offsetTop },
        );
      const full = await inSite(at, () => innerHeight);
      assert.deepEqual(await box(), [0, full]);
      await at.tab.run('frame', () => document.querySelector<HTMLElement>('.due button')?.click());
      await at.title('How much would you like to pay?');
      await tell(480, 1);
      assert.deepEqual(await box(), [0, 480]);
      const bottom = await at.tab.run('frame', () => {
        const button = document.querySelector('.actions .main');
        button?.scrollIntoView({ block: 'nearest' });
        return button?.getBoundingClientRect().bottom ?? Infinity;
      });
      const top = await inSite(
        at,
        () => document.querySelector('iframe')?.getBoundingClientRect().top ?? Infinity,
      );
      assert.ok(top + bottom <= 480, 'the button is above the keyboard');
      // Safari moves what is seen down to the field, over a page that stays where it was: the dialog moves along.
      await tell(480, 1, 300, 'scroll');
      assert.deepEqual(await box(), [300, 480]);
      await tell(full / 2, 2, 150, 'scroll');
      assert.deepEqual(await box(), [0, full]);
      await at.tab.resize('opened');
      await at.holds('page', () => innerWidth > 600);
    },
  );
}

// Files that are late or blocked ----------------------------------------------------------------------------------------------

function files(inEngine: InEngine): void {
  inEngine(
    'the session and the text come before the files of the page, and what the site says meanwhile is heard then',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      const page = gate();
      const asked: string[] = [];
      // No style is among them: Firefox would send nothing else before it has come.
      const late = /\/flow-[^/]*$/;
      flow.wire = (path) => {
        asked.push(path);
        return late.test(path) ? page.held : undefined;
      };
      const mounted = at.start({ locale: 'fr' });
      await until(() => world.sessions.size === 1);
      await until(() => asked.some((path) => path.startsWith('/flow/assets/words-fr-')));
      await at.tab.run('page', () =>
        (window as unknown as SiteWindow).instance.update({ appearance: { theme: 'dark' } }),
      );
      page.open();
      assert.equal(await mounted, 'mounted');
      await at.title('Votre facture de Acme Water');
      await at.holds('frame', () => document.documentElement.dataset['theme'] === 'dark');
      assert.deepEqual([world.counts.token, world.counts.exchange, world.counts.read], [1, 1, 0]);
      // What the inline script held is in no variable that another script could read.
      assert.equal(await at.tab.run('frame', () => 'begun' in window), false);
    },
  );

  inEngine(
    'a blocker that stops one of our files or calls leaves no blank card: somebody is told, or nothing is missed',
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      const blocks = (blocked: RegExp): void => {
        flow.wire = (path): Trouble | undefined => (blocked.test(path) ? 'cut' : undefined);
      };
      // The page, its script: the SDK tells the site, which has words of its own for the customer.
      for (const [blocked, code] of [
        [/^\/flow\/v1\//, 'frame_refused'],
        [/\/flow-[^/]*\.js$/, 'platform_unreachable'],
      ] as const) {
        blocks(blocked);
        assert.equal(await at.start(), code, String(blocked));
        assert.equal(await leftovers(at), 0);
      }
      // The calls: the page cannot tell a blocker from a lost network, and names both.
      blocks(/^\/v1\/flow\/session/);
      assert.equal(await at.start(), 'mounted');
      await at.title('No connection');
      await at.sees('turn off your ad blocker for this page');
      flow.wire = undefined;
      await at.title('Your bill from Acme Water');
    },
  );
}

// Browsers that are not as others ---------------------------------------------------------------------------------------------

function browsers(inEngine: InEngine): void {
  inEngine(
    'an app’s web view without cookies, storage, windows and printing pays a bill, and says what it cannot do',
    async ({ flow, visit }) => {
      const world = flow.world({
        outcome: [],
        fundingMethods: [{ funding_method: 'bank', label: 'Your bank', sandbox: true }],
        // A browser that blocks another site's storage throws at the first touch.
        before: `
          const denied = () => { throw new DOMException('denied', 'SecurityError'); };
          for (const name of ['localStorage', 'sessionStorage', 'indexedDB', 'caches'])
            Object.defineProperty(window, name, { get: denied });
          Object.defineProperty(Document.prototype, 'cookie', { get: denied, set: denied });
          window.open = () => null;
          Object.defineProperty(window, 'print', { value: undefined });`,
      });
      const at = await visit(world);
      await at.tab.resize('phone');
      await at.holds('page', () => innerWidth < 600);
      assert.equal(await at.start({ display: 'modal' }), 'mounted');
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      world.change({ action: { kind: 'redirect', url: 'http://bank.localhost:9/' } });
      await at.title('Please approve the payment');
      await at.press('Continue at your bank');
      await at.sees('No window opened.');
      // Approved elsewhere: the page that stayed here hears of it.
      approved(world);
      await at.title('Paid. Thank you!');
      await at.tab.click('frame', 'summary');
      await at.sees('Reference');
      const buttons = await at.tab.run('frame', () =>
        [...document.querySelectorAll('button')].map(({ textContent }) => textContent),
      );
      // The cross has no text.
      assert.deepEqual(buttons, ['', 'Done'], 'no button that does nothing');
      await at.tab.resize('opened');
      await at.holds('page', () => innerWidth > 600);
    },
  );

  inEngine(
    'a clock that is wrong by days shows the same bill, waits and pays as any other',
    async ({ flow, visit }) => {
      const now = Date.now();
      const day = 86_400_000;
      for (const wrong of [-2 * day, 2 * day]) {
        const world = flow.world({
          outcome: [],
          before: `
            const True = Date;
            const now = () => True.now() + ${wrong};
            window.Date = class extends True {
              constructor(...given) { given.length === 0 ? super(now()) : super(...given); }
              static now() { return now(); }
            };`,
        });
        // The page shows days in the customer's zone.
        const today = new Intl.DateTimeFormat('sv-SE').format(now);
        const balance = { amount_due_in_cents: 12_345, due_date: today };
        world.bill = { ...world.bill, balance };
        const posted_at = new Date(now).toISOString();
        world.more = {
          last_paid: { platform_payment_id: 'x', amount_in_cents: 500, posted_at },
        };
        const at = await visit(world);
        await at.start();
        await at.sees('Due today');
        await at.sees('You paid $5.00 today');
        const off = await at.tab.run('frame', (real) => Date.now() - real, now);
        assert.equal(Math.round(off / day), wrong / day);
        const odd = (): number => document.querySelectorAll('.chip.late, .notice').length;
        assert.equal(await at.tab.run('frame', odd), 0);
        await at.press('Pay $123.45');
        await at.title('Your payment is on its way');
        for (const step of succeeds) world.change(step);
        await at.title('Paid. Thank you!');
      }
    },
  );
}

/** The bank has approved, and the payment goes through. */
function approved(world: World): void {
  const { action, ...waiting } = world.payments[0] ?? assert.fail('there is no payment');
  assert.ok(action);
  world.payments[0] = waiting;
  for (const step of succeeds) world.change(step);
}

test('importing it on a server does nothing, and renders an empty place', async () => {
  const url = (name: string): string => pathToFileURL(join(rig.dist, 'npm', name)).href;
  const before = Object.keys(globalThis);
  const sdk = (await import(url('embed.js'))) as SiteWindow['sdk'];
  const made = sdk.createDuebridge({
    partner: 'acme',
    frameOrigin: 'https://pay.example',
    fetchToken: () => Promise.resolve(''),
  });
  assert.equal(made.state, 'idle');
  made.destroy();
  await import(url('testing.js'));
  assert.deepEqual(Object.keys(globalThis), before);
  assert.match(readFileSync(join(rig.dist, 'npm/react.js'), 'utf8'), /^"use client";/);
});

test('options that cannot work are refused at once, with a code and a remedy', async () => {
  const url = pathToFileURL(join(rig.dist, 'npm/embed.js')).href;
  const { createDuebridge } = (await import(url)) as SiteWindow['sdk'];
  const fetchToken = (): Promise<string> => Promise.resolve('');
  const good = { partner: 'p', fetchToken, frameOrigin: 'https://pay.example' };
  for (const wrong of [
    { partner: undefined },
    { partner: '' },
    { fetchToken: undefined },
    { frameOrigin: undefined },
    { display: 'popup' },
    { display: 'redirect' },
    { frameOrigin: 'pay.example' },
    { frameOrigin: 'http://pay.example' },
    { frameOrigin: 'javascript:alert(1)' },
  ]) {
    assert.throws(
      () => createDuebridge({ ...good, ...wrong } as never),
      ({ name, code, message }: Error & { code?: string }) =>
        `${name} ${code}` === 'DuebridgeError config_invalid' && message.length > 30,
      JSON.stringify(wrong),
    );
  }
});
