/**
 * What a person has set in their system or browser, in every engine: dark colours, no motion, the system’s own colours, a time zone, a
 * folder for what they save. Two people: one in Honolulu, one in Tokyo.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import type { EngineName } from './engines.ts';
import { until, useRig } from './rig.ts';
import { inEachEngine, type EngineVisit, type InEngine } from './site-visit.ts';
import { succeeds } from './scripted-flow.ts';

const rig = useRig({ withChromium: false });
const downloads = mkdtempSync(join(tmpdir(), 'duebridge-saved-'));
after(() => rmSync(downloads, { recursive: true, force: true }));

/** Where an engine saves files: two engines may save one of the same name. */
function folderOf(name: EngineName): string {
  const folder = join(downloads, name);
  mkdirSync(folder, { recursive: true });
  return folder;
}

inEachEngine(
  rig,
  (inEngine, name) => {
    inZone(inEngine, 'Honolulu', /GMT-10|HST/);
    saved(inEngine, folderOf(name));
  },
  {
    settingsOf: (name) => ({
      timeZone: 'Pacific/Honolulu',
      colorScheme: 'dark',
      downloads: folderOf(name),
    }),
  },
);

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
    },
  );
}

const matches = ({ tab }: EngineVisit, query: string): Promise<boolean> =>
  tab.run('frame', (asked) => matchMedia(asked).matches, query);

function saved(inEngine: InEngine, folder: string): void {
  inEngine(
    'the receipt is saved as a page, under a name that tells it apart',
    async ({ flow, visit }) => {
      const world = flow.world({
        more: {
          partner: { partner_id: 'acme', name: 'Acme Water', support_contact: 'help@acme.example' },
          receipt: { payer_name: 'Ada \u202ELovelace', mailed_to: 'a•••@example.com' },
        },
      });
      const at = await visit(world);
      await at.start();
      await at.pay();
      await at.tab.click('frame', 'summary');
      await at.sees('Ada Lovelace');
      const id = String(world.payments[0]?.platform_payment_id);
      const short = id.replaceAll('-', '').toUpperCase();
      const file = join(folder, `receipt-${short.slice(-8, -4)}-${short.slice(-4)}.html`);
      await at.press('Save');
      // A browser may write to another name first.
      const written = (): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
      await until(() => written().includes(id));
      const text = written();
      for (const part of [
        '$123.45',
        'BP-7781',
        'Ada Lovelace',
        'help@acme.example',
        'a•••@example.com',
        'Test bank account',
        '••••4417',
        'Mar 1, 2026, 8:00',
        'HST',
      ])
        assert.ok(text.includes(part), `${part} in ${text}`);
      assert.doesNotMatch(text, /<script|src=|https?:/);
    },
  );
}

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
