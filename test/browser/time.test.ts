/**
 * Limits of seconds, minutes and an hour: what is slow, what stalls, a device that slept. The tests move the time of the
 * pages; how long the machine takes decides nothing.
 */
import assert from 'node:assert/strict';
import { gate, until, useRig } from './rig.ts';
import {
  inChromium,
  pageActs,
  type EngineVisit,
  type InEngine,
  type SiteWindow,
} from './site-visit.ts';
import { succeeds, type Trouble } from './scripted-flow.ts';

const rig = useRig({ withChromium: false });

inChromium(
  rig,
  (inEngine) => {
    opening(inEngine);
    paying(inEngine);
    sleeping(inEngine);
  },
  { isTimed: true },
);

/** Lets time pass, two seconds at a time, until a script of the payment page gives true. */
async function passUntil({ tab, holds }: EngineVisit, comes: () => boolean): Promise<void> {
  // The page's first request may be on its way before the driver knows of the frame.
  await holds('frame', () => true);
  await until(async () => {
    await tab.clock?.runFor(2_000);
    return tab.run('frame', comes);
  });
}

const errors = async (
  at: EngineVisit,
  atLeast = 1,
): Promise<[code: string, recoverable: boolean][]> =>
  (await at.hears<{ code: string; recoverable: boolean }>('error', atLeast)).map(
    ({ code, recoverable }) => [code, recoverable],
  );

// While it opens --------------------------------------------------------------------------------------------------------------

function opening(inEngine: InEngine): void {
  inEngine(
    'a backend that gives no token in time has none, and a press of "Try again" asks it anew',
    async ({ flow, visit }) => {
      const token = gate();
      const world = flow.world({
        plan: { token: (count) => (count === 1 ? token.held : undefined) },
      });
      const at = await visit(world);
      const mounted = at.start({ loadTimeoutMs: 60_000 });
      await until(() => world.counts.token === 1);
      await at.holds('frame', () => document.querySelector('[data-theme]') !== null);
      await passUntil(at, () => document.querySelector('h1') !== null);
      await at.title('We could not start the payment');
      assert.equal(await mounted, 'mounted');
      assert.deepEqual(await errors(at), [['token_invalid', true]]);
      // It comes at last, and nobody waits for it any more.
      token.open();
      await at.press('Try again');
      await at.title('Your bill from Acme Water');
      assert.equal(world.counts.token, 2);
    },
  );

  inEngine(
    'a platform that hangs while it opens the session is told, and asked again with a new token',
    async ({ flow, visit }) => {
      // On a busy machine the page may ask again before its title was looked at: it is not answered until then.
      const again = gate();
      const exchange = (count: number): 'hang' | Promise<undefined> =>
        count === 1 ? 'hang' : again.held;
      const world = flow.world({ plan: { exchange } });
      const at = await visit(world);
      const mounted = at.start({ loadTimeoutMs: 60_000 });
      await until(() => world.counts.exchange === 1);
      // An outline alone is shown at first; then words, and after 8 s the page stops waiting for this answer.
      await at.sees('Getting your bill…');
      await passUntil(at, () => document.querySelector('h1') !== null);
      await at.title('No connection');
      assert.equal(await mounted, 'mounted');
      assert.deepEqual(await errors(at), [['network_lost', true]]);
      again.open();
      await passUntil(at, () => document.querySelector('h1')?.textContent !== 'No connection');
      await at.title('Your bill from Acme Water');
      assert.deepEqual([world.counts.token, world.counts.exchange], [2, 2]);
      await at.pay();
    },
  );

  inEngine(
    'a blocker that stops the text of the page is told in words of its first bytes, and the page goes on without it',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      flow.wire = (path): Trouble | undefined => (path.includes('/words-') ? 'cut' : undefined);
      const mounted = at.start({ loadTimeoutMs: 60_000 });
      await until(() => world.sessions.size === 1);
      await at.holds('frame', () => document.querySelector('#late') !== null);
      await passUntil(at, () => document.body.innerText.includes('could not be loaded in full'));
      flow.wire = undefined;
      await passUntil(at, () => document.querySelector('h1') !== null);
      await at.title('Your bill from Acme Water');
      assert.equal(await mounted, 'mounted');
    },
  );

  inEngine(
    'a redirect whose backend never answers ends, so that the button works again',
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      await at.tab.run(
        'page',
        (frameOrigin) => {
          const { sdk } = window as unknown as SiteWindow;
          const returnUrl = location.href;
          const fetchToken = (): Promise<string> => {
            document.title = 'asked';
            return new Promise(() => {});
          };
          sdk
            .createDuebridge({
              partner: 'p',
              frameOrigin,
              display: 'redirect',
              returnUrl,
              fetchToken,
            })
            .mount()
            .catch((error: { code: string }) => {
              document.title = error.code;
            });
        },
        flow.payOrigin,
      );
      await at.holds('page', () => document.title === 'asked');
      await at.tab.clock?.runFor(15_000);
      await at.holds('page', () => document.title === 'load_timeout');
    },
  );
}

// While the customer pays -----------------------------------------------------------------------------------------------------

function paying(inEngine: InEngine): void {
  inEngine(
    'a backend that is asked for another token and never answers ends the session, not the payment',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { token: (count) => (count === 1 ? undefined : 'hang') },
      });
      const at = await visit(world);
      await at.start();
      world.endSessions();
      await at.press('Pay $123.45');
      await until(() => world.counts.token === 2);
      await at.tab.clock?.runFor(12_000);
      await at.title('This page was open for too long');
      assert.deepEqual(
        (await errors(at)).map(([code]) => code),
        ['token_expired'],
      );
    },
  );

  inEngine('a biller that is slow is called slow, and nothing worse', async ({ flow, visit }) => {
    const at = await visit(flow.world({ outcome: [] }));
    await at.start();
    await at.press('Pay $123.45');
    await at.title('Your payment is on its way');
    await at.tab.clock?.runFor(31_000);
    await at.sees('taking longer than usual');
    await at.title('Your payment is on its way');
  });
}

// While the device sleeps -----------------------------------------------------------------------------------------------------

function sleeping(inEngine: InEngine): void {
  inEngine(
    'a phone that slept for an hour in the middle of a payment shows on waking how it ended',
    async ({ flow, visit }) => {
      for (const renews of [true, false]) {
        const world = flow.world({ outcome: [] });
        const at = await visit(world);
        world.tokens.push(`dbt_${world.partner}_0`);
        // A site that gave a token, and has no way to give another: it is shown what a function cannot be sent as.
        if (!renews)
          await at.tab.run(
            'page',
            (settings) => {
              const { make } = window as unknown as { make: (o: object) => unknown };
              Object.assign(window, {
                make: (options: object) => make({ ...options, ...settings, fetchToken: undefined }),
              });
            },
            { token: world.tokens[0] },
          );
        await at.start();
        await at.press('Pay $123.45');
        await at.title('Your payment is on its way');
        world.endSessions();
        Object.assign(world.payments[0] ?? {}, succeeds[0], succeeds[1]);
        await at.tab.clock?.fastForward(3_600_000);
        await at.title(renews ? 'Paid. Thank you!' : 'This page was open for too long');
        if (!renews) await at.sees('If you have paid, your payment continues.');
        const warns = (): boolean => document.body.innerText.includes('This page closes at');
        assert.equal(await at.tab.run('frame', warns), false);
        assert.equal(world.payments.length, 1);
      }
    },
  );

  inEngine(
    'a page that has no session waits for no end of it when the phone wakes',
    async ({ flow, visit }) => {
      const world = flow.world();
      const { tab } = await visit(world);
      await tab.goto(`${flow.payOrigin}/flow/v1/${world.partner}`);
      await pageActs(tab, 'page').title('Please open this page from your biller’s site');
      const added = (): number => {
        let timers = 0;
        Object.assign(window, { setTimeout: () => (timers += 1) });
        document.dispatchEvent(new Event('visibilitychange'));
        return timers;
      };
      assert.equal(await tab.run('page', added), 0);
    },
  );
}
