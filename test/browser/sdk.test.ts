/**
 * The SDK in a site: files that come late or never, a dialog on a phone and one that does not
 * load, an app's page. embed.test.ts has its options, errors and events; time.test.ts its limits.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Script } from './engines.ts';
import { useRig } from './rig.ts';
import {
  inChromium,
  leftovers,
  ready,
  type EngineVisit,
  type InEngine,
  type SiteWindow,
} from './site-visit.ts';

const rig = useRig({ withChromium: false });

inChromium(rig, (inEngine) => {
  late(inEngine);
  dialogs(inEngine);
  apps(inEngine);
});

/** Runs a script in the site. */
const inSite = <A extends readonly unknown[], T>(
  { tab }: EngineVisit,
  script: Script<A, T>,
  ...given: A
): Promise<T> => tab.run('page', script, ...given);

// Files that come late or never -----------------------------------------------------------------------------------------------

function late(inEngine: InEngine): void {
  inEngine(
    'a text whose first request gets no answer is asked for again',
    async ({ flow, visit }) => {
      const world = flow.world({
        // The limits of requests, in a tenth of their time.
        before: `
          const timeout = AbortSignal.timeout.bind(AbortSignal);
          AbortSignal.timeout = (ms) => timeout(ms / 10);`,
      });
      const at = await visit(world);
      let texts = 0;
      flow.wire = (path) => {
        if (!path.includes('/words-')) return undefined;
        texts += 1;
        return texts === 1 ? 'hang' : undefined;
      };
      assert.equal(await at.start(), 'mounted');
      assert.equal((await at.hears('screen')).length, 1);
      assert.equal(texts, 2);
      await at.title('Your bill from Acme Water');
    },
  );
}

// Dialogs ---------------------------------------------------------------------------------------------------------------------

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
      // On a phone that lies on its side hardly more than the field is seen, and its label comes with it.
      await tell(150, 1);
      assert.deepEqual(await box(), [0, 150]);
      const label = await at.tab.run('frame', () => {
        window.scrollTo(0, document.documentElement.scrollHeight);
        // As little as possible, as a browser does when its window becomes smaller.
        document.querySelector('input')?.scrollIntoView({ block: 'nearest' });
        return document.querySelector('label')?.getBoundingClientRect().top ?? -Infinity;
      });
      assert.ok(label >= 0, `the label is ${-label} px above what is seen`);
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

// An app's page ---------------------------------------------------------------------------------------------------------------

function apps(inEngine: InEngine): void {
  inEngine(
    'an app’s page on http://localhost pays; one from a file is refused in words',
    async ({ flow, visit }) => {
      const world = flow.world();
      const site = `http://localhost:${flow.port}`;
      world.origins = [site];
      const at = await visit(world);
      await at.tab.goto(`${site}/`);
      await ready(at.tab);
      assert.equal(await at.start(), 'mounted');
      await at.pay();
      const folder = mkdtempSync(join(tmpdir(), 'duebridge-app-'));
      try {
        const script = `${flow.payOrigin}/sdk/v1/duebridge.js`;
        const file = join(folder, 'app.html');
        writeFileSync(file, `<!doctype html><script src="${script}"></script><div id="place">`);
        await at.tab.goto(pathToFileURL(file).href);
        await at.holds('page', () => 'duebridge' in window);
        const refused = await inSite(
          at,
          (partner) =>
            window.duebridge
              .createDuebridge({ partner, token: 'a token' })
              .mount('#place')
              .catch((error: { code: string }) => error.code),
          world.partner,
        );
        assert.equal(refused, 'frame_refused');
        assert.equal(world.counts.exchange, 1);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  );
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
