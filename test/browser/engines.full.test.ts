/**
 * What engines do each in a way of their own, and the security of the frame, in Chromium, Firefox and WebKit: who is told what of a
 * frame, where Escape goes, what a blocked frame looks like. packages/web/README.md says what is tested where, and why.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import type { EngineName } from './engines.ts';
import { until, useRig, values } from './rig.ts';
import { succeeds } from './scripted-flow.ts';
import {
  inEachEngine,
  opensModal,
  pageActs,
  ready,
  type InEngine,
  type SiteWindow,
} from './site-visit.ts';

const rig = useRig({ withChromium: false });

inEachEngine(rig, (inEngine, name) => {
  payments(inEngine, name);
  problems(inEngine);
  security(inEngine);
});

// The payment -----------------------------------------------------------------------------------------------------------------

function payments(inEngine: InEngine, name: EngineName): void {
  inEngine(
    'a modal page takes the keyboard, is left with Escape and gives the focus back',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      await opensModal(at, world, flow);
      await at.tab.click('page', '#open');
      await at.title('Your bill from Acme Water');
      const isOnChange = (): Promise<boolean> =>
        at.tab.run('frame', () => document.activeElement?.textContent === 'Change');
      // Two, where the page has the focus by now; engines differ in when a dialog gives it to the frame.
      for (let tabs = 0; tabs < 4 && !(await isOnChange()); tabs += 1) await at.tab.press('Tab');
      await until(isOnChange);
      await at.tab.press('Enter');
      await at.title('How much would you like to pay?');
      await at.tab.press('Escape');
      await until(() => at.tab.run('page', () => document.querySelector('dialog') === null));
      assert.equal(await at.tab.run('page', () => document.activeElement?.id), 'open');
      assert.equal(world.counts.pay, 0);
    },
  );

  // WebKitGTK's test browser takes Tab into its own toolbar at the edges of a frame, and its driver does not see where the focus is.
  if (name !== 'webkit')
    inEngine(
      'Tab goes from the site into the frame, through it and out again; the first screen takes no focus, focus() does',
      async ({ flow, visit }) => {
        const at = await visit(flow.world());
        await at.tab.run('page', () => document.querySelector<HTMLElement>('#open')?.focus());
        await at.start();
        await at.title('Your bill from Acme Water');
        /** Who has the keyboard: an element of the site, or of the page in the frame. */
        const holder = async (): Promise<string> => {
          const site = await at.tab.run('page', () => {
            const { id, tagName } = document.activeElement ?? document.body;
            return id === '' ? tagName : id;
          });
          if (site !== 'IFRAME') return site;
          const inside = await at.tab.run(
            'frame',
            () => (document.activeElement as HTMLElement | null)?.innerText ?? '',
          );
          return inside.includes('\n') ? 'the page' : inside;
        };
        assert.equal(await holder(), 'open');
        const focus = async (): Promise<void> => {
          await at.tab.run('page', () => (window as unknown as SiteWindow).instance.focus());
          await until(async () => (await holder()) === 'Your bill from Acme Water');
        };
        await at.tab.press('Tab');
        const way: string[] = [];
        // Engines differ in whether the page in the frame is a stop of its own.
        for (let stops = 0; stops < 8 && way.at(-1) !== 'after'; stops += 1) {
          const now = await holder();
          if (['Change', 'Pay $123.45', 'after'].includes(now)) way.push(now);
          if (now !== 'after') await at.tab.press('Tab');
        }
        assert.deepEqual(way, ['Change', 'Pay $123.45', 'after']);
        await focus();
        for (let tabs = 0; tabs < 3 && (await holder()) !== 'Pay $123.45'; tabs += 1)
          await at.tab.press('Tab');
        await at.tab.press('Enter');
        await until(async () => (await holder()) === 'Paid. Thank you!');
      },
    );

  inEngine(
    'a network that goes while the payment is processing is noticed, and so is its return',
    async ({ flow, visit }) => {
      let isGone = false;
      // Refused, not cut: each engine repeats a cut request in its own way and for its own time.
      const away = (): 'SERVICE_UNAVAILABLE' | undefined =>
        isGone ? 'SERVICE_UNAVAILABLE' : undefined;
      const world = flow.world({ outcome: [], plan: { payment: away } });
      const at = await visit(world);
      await at.start();
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      await until(() => world.counts.payment > 0);
      /** What the browser says to the page. */
      const network = (isThere: boolean): Promise<void> =>
        at.tab.run(
          'frame',
          (there) => {
            Object.defineProperty(navigator, 'onLine', { configurable: true, get: () => there });
            dispatchEvent(new Event(there ? 'online' : 'offline'));
          },
          isThere,
        );
      isGone = true;
      await network(false);
      await at.sees('No connection. Trying again…');
      await at.title('Your payment is on its way');
      Object.assign(world.payments[0] ?? {}, succeeds[0], succeeds[1]);
      isGone = false;
      await network(true);
      await at.title('Paid. Thank you!');
      assert.equal(world.payments.length, 1);
    },
  );

  inEngine(
    'a customer who leaves by a link while the payment is processing finds it with the back button',
    async ({ flow, visit }) => {
      const world = flow.world({ outcome: [] });
      const at = await visit(world);
      await at.start();
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      await at.tab.goto(`${flow.site('acme')}/?elsewhere`);
      await ready(at.tab);
      Object.assign(world.payments[0] ?? {}, succeeds[0], succeeds[1]);
      // After the answer to this call: the page that it runs in is gone then.
      await at.tab.run('page', () => {
        setTimeout(() => history.back(), 50);
      });
      await until(() =>
        at.tab
          .run(
            'page',
            () => location.search === '' && (window as unknown as SiteWindow).siteReady === true,
          )
          .catch(() => false),
      );
      // From the cache of the browser with the frame in it, or loaded anew: then the site shows its button again.
      const isKept = await at.tab.run('page', () => document.querySelector('iframe') !== null);
      if (!isKept) assert.equal(await at.start(), 'mounted');
      // The site hears what its page shows. Firefox's driver does not list a frame that came out of the browser's cache: none can look in.
      await until(async () => {
        const [shown] = values(await at.heard(), 'screen').slice(-1) as { name: string }[];
        return shown?.name === 'receipt';
      });
      assert.equal(world.payments.length, 1);
    },
  );
}

// Its problems ----------------------------------------------------------------------------------------------------------------

function problems(inEngine: InEngine): void {
  inEngine(
    'a platform that does not answer, or does not exist, is given up with nothing left behind',
    async ({ flow, visit }) => {
      const world = flow.world({ plan: { page: () => 'hang' } });
      // An address where nothing listens: the browser shows a page of its own in the frame, or nothing.
      const nobody = createServer().listen(0, 'localhost');
      await once(nobody, 'listening');
      const { port } = nobody.address() as AddressInfo;
      nobody.close();
      const frameOrigin = `http://localhost:${port}`;
      const at = await visit(world, `?frame=${frameOrigin}`);
      assert.equal(await at.start({ loadTimeoutMs: 300 }), 'load_timeout');
      assert.equal(await at.start({ frameOrigin }), 'platform_unreachable');
      const left = await at.tab.run(
        'page',
        () => document.querySelectorAll('iframe, dialog').length,
      );
      assert.equal(left, 0);
    },
  );
}

// Its security ----------------------------------------------------------------------------------------------------------------

function security(inEngine: InEngine): void {
  inEngine(
    'the token and the session are in no address, no referrer, no cookie, no storage and no log',
    async ({ flow, visit }) => {
      const world = flow.world({
        // Whatever a script of the site or of the page writes to the console.
        before: `
          const logged = [];
          Object.assign(window, { logged });
          for (const way of ['debug', 'log', 'info', 'warn', 'error', 'trace', 'dir', 'table'])
            console[way] = (...said) => logged.push(said.map(String).join(' '));
          addEventListener('error', ({ message }) => logged.push(message));
          addEventListener('unhandledrejection', ({ reason }) => logged.push(String(reason)));`,
      });
      const at = await visit(world);
      const entries = (): Promise<number> => at.tab.run('page', () => history.length);
      const entriesBefore = await entries();
      await at.start();
      world.endSessions();
      await at.pay();
      const secrets = [...world.tokens, ...world.sessions.keys()];
      assert.ok(secrets.length >= 2);
      for (const { path, headers, host, body } of world.seen) {
        assert.equal(headers.cookie, undefined);
        const { authorization, ...others } = headers;
        const text = JSON.stringify([path, others, host === 'pay.localhost' ? body : '']);
        assert.ok(!secrets.some((secret) => text.includes(secret)), text);
        if (host === 'pay.localhost') assert.equal(headers.referer, undefined);
        if (!path.startsWith('/v1/')) assert.equal(authorization, undefined);
      }
      for (const where of ['page', 'frame'] as const) {
        const kept = await at.tab.run(where, async () =>
          JSON.stringify([
            [localStorage, sessionStorage].flatMap((store) => Object.entries(store)),
            await indexedDB.databases(),
            document.cookie,
            window.name,
            location.href,
            document.documentElement.outerHTML,
            history.state,
            (window as unknown as { logged: string[] }).logged,
          ]),
        );
        assert.ok(!secrets.some((secret) => kept.includes(secret)));
        assert.ok(kept.startsWith('[[],[],"",""'), kept.slice(0, 200));
      }
      assert.equal(await entries(), entriesBefore, 'the history of the site grew');
    },
  );

  inEngine(
    'a hostile frame beside it, flooding both sides, learns nothing and changes nothing',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world, '?hostile');
      await at.tab.run(
        'page',
        (url) =>
          new Promise<void>((resolve) => {
            const frame = document.createElement('iframe');
            frame.id = 'hostile';
            frame.addEventListener('load', () => resolve());
            frame.src = url;
            document.body.append(frame);
          }),
        `http://evil.localhost:${flow.port}/hostile`,
      );
      assert.equal(await at.start(), 'mounted');
      await at.pay();
      // The hostile page tells its parent, on request, how much it has got.
      const got = await at.tab.run(
        'page',
        () =>
          new Promise<number>((resolve) => {
            addEventListener('message', (event: MessageEvent<{ got?: number }>) => {
              if (typeof event.data?.got === 'number') resolve(event.data.got);
            });
            const hostile = document.querySelector<HTMLIFrameElement>('#hostile');
            hostile?.contentWindow?.postMessage('how much?', '*');
          }),
      );
      assert.equal(got, 0);
      assert.equal(world.payments.length, 1);
      assert.deepEqual(values(await at.heard(), 'fetchToken'), ['initial']);
    },
  );

  inEngine(
    'a site that is not registered gets a typed error, no frame and not one message',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world, '', 'stranger');
      await at.tab.run('page', () => {
        Object.assign(window, { messages: [] });
        addEventListener('message', (event) =>
          (window as unknown as { messages: unknown[] }).messages.push(event.data),
        );
      });
      assert.equal(await at.start(), 'frame_refused');
      const seen = await at.tab.run('page', () => ({
        left: document.querySelectorAll('iframe, dialog').length,
        messages: [...new Set((window as unknown as { messages: unknown[] }).messages)],
      }));
      assert.deepEqual(seen, { left: 0, messages: [] });
      assert.equal(world.counts.exchange, 0);
      // A token may have been asked for while the frame loaded; it was handed to nobody.
      assert.equal(world.sessions.size, 0);
    },
  );

  inEngine(
    'a site that isolates itself (COEP) shows the page as any other, and one whose own policy has no room for it is told so',
    async ({ flow, visit }) => {
      const isolated = await visit(flow.world(), '?coep');
      assert.equal(await isolated.start(), 'mounted');
      await isolated.pay();
      const narrow = await visit(flow.world(), '?noframe');
      assert.equal(await narrow.start(), 'frame_refused');
      const leaving = { display: 'redirect', returnUrl: flow.site('acme') } as const;
      assert.equal(await narrow.start(leaving), 'frame_refused');
    },
  );

  inEngine(
    'the page opened on its own says what to do, and asks nobody for a token',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      await at.tab.goto(`${flow.payOrigin}/flow/v1/${world.partner}`);
      await pageActs(at.tab, 'page').title('Please open this page from your biller’s site');
      assert.equal(world.counts.exchange, 0);
    },
  );
}
