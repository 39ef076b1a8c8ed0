/**
 * The page for everybody: a keyboard alone, large text, a reader of the screen; each screen through axe is in
 * screens.test.ts, the system's own colours in settings.full.test.ts.
 */
import assert from 'node:assert/strict';
import { until, useRig } from './rig.ts';
import { SCREENS } from './screens.ts';
import { succeeds } from './scripted-flow.ts';
import { inChromium, opensModal, standing, type EngineVisit, type InEngine } from './site-visit.ts';

const rig = useRig({ withChromium: false });

inChromium(
  rig,
  (inEngine) => {
    keyboard(inEngine);
    heardAndSeen(inEngine);
  },
  { isWatched: true },
);

/** Gives the place of the frame, and with it the frame, the width of a phone; WebKit's window cannot be so narrow. */
async function narrow(at: EngineVisit, width: number): Promise<void> {
  await at.tab.run(
    'page',
    (wanted) => {
      const place = document.querySelector<HTMLElement>('#place');
      if (place) place.style.width = wanted;
    },
    `${width}px`,
  );
}

/** What has the focus of the site. */
const holder = (at: EngineVisit): Promise<string | undefined> =>
  at.tab.run('page', () => document.activeElement?.id || document.activeElement?.tagName);

function keyboard(inEngine: InEngine): void {
  inEngine(
    'a bill is paid with the keyboard alone, and the focus is where the customer looks',
    async ({ flow, visit }) => {
      const world = flow.world({ outcome: [] });
      const at = await visit(world);
      await opensModal(at, world, flow);
      await at.tab.press('Tab');
      await until(async () => (await holder(at)) === 'open');
      await at.tab.press('Enter');
      await at.title('Your bill from Acme Water');
      // The first Tab, or the first two, lead to the page: a dialog gives the focus to its frame at a time of the browser's own.
      const isThere = (): Promise<boolean> =>
        at.tab.run('frame', () => document.activeElement?.textContent === 'Change');
      for (let tabs = 0; tabs < 4 && !(await isThere()); tabs += 1) await at.tab.press('Tab');
      await at.focused('Change');
      await at.tab.press('Enter');
      await at.title('How much would you like to pay?');
      await at.holds('frame', () => document.activeElement?.tagName === 'INPUT');
      await at.tab.type('42.5');
      await at.tab.press('Enter');
      await at.focused('Your bill from Acme Water');
      await at.tab.press('Tab');
      await at.tab.press('Tab');
      await at.focused('Pay $42.50');
      await at.tab.press('Enter');
      await at.title('Your payment is on its way');
      world.change(succeeds[0] ?? {});
      world.change(succeeds[1] ?? {});
      await at.title('Paid. Thank you!');
      await at.focused('Paid. Thank you!');
      await at.tab.press('Escape');
      await at.holds('page', () => document.querySelector('dialog') === null);
      await until(async () => (await holder(at)) === 'open');
      assert.equal(world.payments[0]?.amount_in_cents, 4_250);
      const [exit] = await at.hears<{ reason: string; at: string }>('exit');
      assert.deepEqual([exit?.reason, exit?.at], ['completed', 'receipt']);
    },
  );
}

function heardAndSeen(inEngine: InEngine): void {
  inEngine(
    'changes of the payment are announced once, in a live region that outlives the screens',
    async ({ flow, visit }) => {
      const world = flow.world({ outcome: [] });
      const at = await visit(world);
      await at.start();
      await at.tab.run('frame', () => {
        const region = document.querySelector('[role=status]');
        const spoken: string[] = [];
        Object.assign(window, { spoken, region });
        new MutationObserver(() => region?.textContent && spoken.push(region.textContent)).observe(
          region ?? document,
          { childList: true, characterData: true, subtree: true },
        );
      });
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      // A phone that sets its clock back by an hour waits no hour with the next announcement.
      await at.tab.run('frame', () => {
        const { now } = Date;
        Date.now = () => now() - 3_600_000;
      });
      world.change(succeeds[0] ?? {});
      world.change(succeeds[1] ?? {});
      await at.title('Paid. Thank you!');
      await at.holds(
        'frame',
        () => document.querySelector('[role=status]')?.textContent === 'Paid. Thank you!',
      );
      const { spoken, same } = await at.tab.run('frame', () => {
        const held = window as unknown as { spoken: string[]; region: Element };
        return {
          spoken: held.spoken,
          same: held.region === document.querySelector('[role=status]'),
        };
      });
      assert.ok(same);
      // Two at most: the steps in between came within the five seconds that a sentence is given.
      assert.deepEqual(spoken, ['Your payment is on its way', 'Paid. Thank you!']);
    },
  );

  for (const [name, amount_due_in_cents] of [
    ['review', 99_999_999_999],
    ['receipt', 1_708_400],
  ] as const)
    inEngine(
      `at 200 % text on the narrowest phone no amount of the ${name} is broken and nothing is cut`,
      async ({ flow, visit }) => {
        const screen = SCREENS.find((one) => one.name === name);
        const world = flow.world();
        world.bill = { ...world.bill, balance: { amount_due_in_cents } };
        const at = await visit(world);
        await narrow(at, 320);
        await at.start();
        await at.tab.run('frame', () => {
          document.documentElement.style.fontSize = '200%';
        });
        await screen?.act?.(standing(at, flow));
        await at.title(name === 'review' ? 'Your bill from Acme Water' : 'Paid. Thank you!');
        const seen = await at.tab.run('frame', () => ({
          // One line each, and wholly inside the page.
          broken: [...document.querySelectorAll('.money')].filter((money) => {
            const range = document.createRange();
            range.selectNodeContents(money);
            const { right } = range.getBoundingClientRect();
            const box = money.closest('.bill')?.getBoundingClientRect().right ?? innerWidth;
            return range.getClientRects().length !== 1 || right > box;
          }).length,
          amounts: document.querySelectorAll('.money').length,
          // Of what a scroll bar leaves: Firefox shows one until the site has made the frame as high as its text.
          overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
          width: innerWidth,
        }));
        assert.deepEqual(seen, { broken: 0, amounts: 1, overflow: 0, width: 320 });
      },
    );
}
