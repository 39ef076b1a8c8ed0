/**
 * What a person has set in their system or browser, in every engine: a dark system, the system’s own colours, a time zone. Two people: one in Honolulu, one in Tokyo.
 */
import assert from 'node:assert/strict';
import type { EngineName } from './engines.ts';
import { useRig } from './rig.ts';
import { inEachEngine, type EngineVisit, type InEngine } from './site-visit.ts';
import { succeeds } from './scripted-flow.ts';

const rig = useRig({ withChromium: false });

inEachEngine(rig, (inEngine) => inZone(inEngine, 'Honolulu', /GMT-10|HST/), {
  settingsOf: () => ({ timeZone: 'Pacific/Honolulu', colorScheme: 'dark' }),
});

inEachEngine(
  rig,
  (inEngine, name) => {
    inZone(inEngine, 'Tokyo', /GMT\+9|JST/);
    ownColours(inEngine, name);
  },
  { settingsOf: () => ({ timeZone: 'Asia/Tokyo', forcedColors: true }) },
);

function inZone(inEngine: InEngine, place: string, zone: RegExp): void {
  inEngine(
    `a due date is the same day in ${place} as anywhere, and times name their zone`,
    async ({ flow, visit }) => {
      const at = await visit(flow.world());
      await at.start({ locale: 'es' });
      await at.sees('Vence el 3 de diciembre de 2099');
      assert.match(await at.tab.run('frame', () => document.body.innerText), zone);
      // The site names no scheme, so it is light, whatever the system is.
      const theme = await at.tab.run('frame', () => document.documentElement.dataset['theme']);
      assert.equal(theme, 'light');
    },
  );
}

const matches = ({ tab }: EngineVisit, query: string): Promise<boolean> =>
  tab.run('frame', (asked) => matchMedia(asked).matches, query);

function ownColours(inEngine: InEngine, name: EngineName): void {
  inEngine(
    'with the system’s own colours (forced colours) buttons keep an edge, and the progress of a payment is seen',
    async ({ flow, visit }) => {
      const world = flow.world({ outcome: [] });
      const at = await visit(world);
      await at.start();
      await at.title('Your bill from Acme Water');
      // WebKit has no such colours, in GTK's theme of high contrast either. The day that it has, this fails, and the rest is tested there too.
      const isForced = await matches(at, '(forced-colors: active)');
      assert.equal(isForced, name !== 'webkit');
      if (!isForced) assert.equal(await matches(at, '(prefers-contrast: more)'), true);
      const edgeless = await at.tab.run('frame', () => {
        const { backgroundColor } = getComputedStyle(document.documentElement);
        return [...document.querySelectorAll('.actions button')]
          .filter((element) => {
            const { borderTopColor, borderTopWidth } = getComputedStyle(element);
            return Number.parseFloat(borderTopWidth) === 0 || borderTopColor === backgroundColor;
          })
          .map(({ outerHTML }) => outerHTML);
      });
      assert.deepEqual(edgeless, []);
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      world.change(succeeds[0] ?? {});
      await at.holds('frame', () => document.querySelector('.track.second') !== null);
      if (!isForced) return;
      const isSeen = await at.tab.run('frame', () => {
        const bar = getComputedStyle(document.querySelector('.track') ?? document.body, '::before');
        return bar.backgroundColor !== getComputedStyle(document.documentElement).backgroundColor;
      });
      assert.ok(isSeen, 'how far the payment has come');
    },
  );
}
