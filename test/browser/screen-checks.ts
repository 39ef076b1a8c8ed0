/**
 * What every screen has to be for everybody: four languages, both themes and directions, the narrowest phone, and axe in all of them. A
 * screen is walked to once; language and look then change on it, as a site may change them at any time.
 */
import assert from 'node:assert/strict';
import type { AxeResults } from 'axe-core';
import { TAGS, type Tag } from '../../packages/web/src/flow/tags.ts';
import { AXE, AXE_RULES } from './axe.ts';
import { scriptOf } from './engines.ts';
import { useRig } from './rig.ts';
import { textOf, type ScreenCase } from './screens.ts';
import { inChromium, standing, type SiteWindow } from './site-visit.ts';

interface Look {
  readonly locale: Tag;
  readonly theme: 'light' | 'dark';
  readonly direction: 'ltr' | 'rtl';
}

/** Each language in a look of its own, English in two, which axe looks at: the colours and the words are checked apart. */
const LOOKS: readonly Look[] = [
  { locale: 'en', theme: 'light', direction: 'ltr' },
  { locale: 'en', theme: 'dark', direction: 'rtl' },
  { locale: 'es', theme: 'dark', direction: 'ltr' },
  { locale: 'fr', theme: 'light', direction: 'rtl' },
  { locale: 'pt', theme: 'light', direction: 'ltr' },
];

/** Defines a test for each of these screens, in Chromium. Call it once a file. */
export function checkScreens(screens: readonly ScreenCase[]): void {
  inChromium(useRig({ withChromium: false }), (inEngine) => {
    for (const [index, screen] of screens.entries())
      inEngine(
        `the screen ${screen.name} passes axe and fits 320 px, in every language, theme and direction`,
        async ({ flow, visit }) => {
          const at = await visit(flow.world(screen.world));
          // Each language is the one that a page opens in, on some of the screens.
          const first = TAGS[index % TAGS.length] ?? 'en';
          const isFirst = ({ locale }: Look): boolean => locale === first;
          const looks = [...LOOKS.filter(isFirst), ...LOOKS.filter((one) => !isFirst(one))];
          await at.tab.run('page', () => {
            const place = document.querySelector<HTMLElement>('#place');
            if (place) place.style.width = '320px';
            // The page asks for its next look: five looks cost one call of the driver.
            addEventListener('message', ({ data }: MessageEvent<{ look?: Look }>) => {
              if (!data.look) return;
              const { locale, ...appearance } = data.look;
              (window as unknown as SiteWindow).instance.update({ locale, appearance });
            });
          });
          await at.start({ locale: first, appearance: { theme: 'light' } });
          await screen.act?.(standing(at, flow));
          await at.tab.run('frame', scriptOf(AXE));
          const wanted = looks.map((look) => ({
            look,
            title: textOf(look.locale, screen.title),
          }));
          const wrong = await at.tab.run('frame', wrongIn, wanted, AXE_RULES);
          assert.deepEqual(wrong, []);
        },
      );
  });
}

/**
 * Runs in the page. What is wrong with its screen in each look, once it shows look and title: axe's findings, and what is cut off, too
 * small to press or not seen as a button.
 */
async function wrongIn(
  looks: readonly { look: Look; title: string }[],
  runOnly: readonly string[],
): Promise<string[]> {
  const { axe } = window as unknown as { axe: { run(options: object): Promise<AxeResults> } };
  const root = document.documentElement;
  const found: string[] = [];
  for (const { look, title } of looks) {
    const wanted = `${look.locale} ${look.theme} ${look.direction} 320`;
    parent.postMessage({ look }, '*');
    const isShown = (): boolean =>
      [root.lang, root.dataset['theme'], root.dir, innerWidth].join(' ') === wanted &&
      new RegExp(title).test(document.querySelector('h1')?.textContent ?? '');
    for (const end = performance.now() + 120_000; !isShown();) {
      if (performance.now() > end) return [`${wanted} is not shown: ${document.body.innerText}`];
      await new Promise((resolve) => {
        setTimeout(resolve, 10);
      });
    }
    // A colour half way between two is in neither of the themes.
    for (const motion of document.getAnimations())
      if (motion.effect?.getComputedTiming().endTime !== Infinity) motion.finish();
    // What axe finds depends on elements and colours: both themes in one language have them all.
    const { violations } =
      look.locale === 'en'
        ? await axe.run({ runOnly, resultTypes: ['violations'] })
        : { violations: [] };
    for (const { id, nodes } of violations)
      found.push(`${wanted} ${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
    const { scrollWidth, clientWidth } = root;
    if (scrollWidth > clientWidth) found.push(`${wanted} overflow: ${scrollWidth} px`);
    for (const element of document.querySelectorAll('button, input')) {
      const { height } = (element.closest('label') ?? element).getBoundingClientRect();
      if (height < 44) found.push(`${wanted} small: ${element.outerHTML}`);
    }
    // Our languages run left to right in a page that begins on the right, too: else "Sending…" reads "…Sending".
    for (const element of look.direction === 'rtl' ? document.querySelectorAll('#app *') : []) {
      let line = element;
      while (getComputedStyle(line).display === 'inline') line = line.parentElement ?? root;
      const { direction, unicodeBidi } = getComputedStyle(line);
      const isText = [...element.childNodes].some(
        (node) => node instanceof Text && /\p{L}.*[^\p{L}\p{N}\s]\s*$/su.test(node.data),
      );
      if (isText && direction === 'rtl' && unicodeBidi !== 'plaintext')
        found.push(`${wanted} turned round: ${element.outerHTML}`);
    }
    // Where the keyboard is, is seen; and nothing moves by that.
    for (const element of document.querySelectorAll<HTMLElement>('#app button, #app input')) {
      const before = document.body.offsetHeight;
      element.focus();
      const ring = getComputedStyle(element.closest('.field') ?? element);
      if (document.body.offsetHeight !== before || ring.outlineWidth !== '3px')
        found.push(`${wanted} focus: ${element.outerHTML}`);
    }
    // A dollar sign stands before its amount.
    for (const field of document.querySelectorAll('.field'))
      if (getComputedStyle(field).direction !== 'ltr') found.push(`${wanted} dollar sign behind`);
    // A line between facts has facts on both sides.
    const [fact] = document.querySelectorAll('.bill > dl:first-child > div');
    if (fact && Number.parseFloat(getComputedStyle(fact).borderTopWidth) > 0)
      found.push(`${wanted} a line above the first fact`);
    // What can be pressed or typed into is seen as such.
    for (const element of document.querySelectorAll('.actions button, .field'))
      if (Number.parseFloat(getComputedStyle(element).borderTopWidth) === 0)
        found.push(`${wanted} no edge: ${element.outerHTML}`);
  }
  // Last, twice the text: what does not fit the width is cut.
  root.style.fontSize = '200%';
  const { scrollWidth, clientWidth } = root;
  if (scrollWidth > clientWidth) found.push(`at 200 % text overflow: ${scrollWidth} px`);
  for (const element of document.querySelectorAll('#app button, #app h1, #app p, #app dd')) {
    const { left, right } = element.getBoundingClientRect();
    // A pixel, for what is rounded.
    if (left < -1 || right > clientWidth + 1) found.push(`at 200 % text cut: ${element.outerHTML}`);
  }
  // An amount on two lines reads as another amount.
  for (const money of document.querySelectorAll('.money')) {
    const range = document.createRange();
    range.selectNodeContents(money);
    const box = money.closest('.bill')?.getBoundingClientRect().right ?? clientWidth;
    if (range.getClientRects().length !== 1 || range.getBoundingClientRect().right > box)
      found.push(`at 200 % text broken: ${money.outerHTML}`);
  }
  return found;
}
