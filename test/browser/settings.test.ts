/** What a person has set in their system: a time zone, a dark system, the system's own colours. */
import assert from 'node:assert/strict';
import test from 'node:test';
import type { BrowserContextOptions, Frame } from 'playwright-core';
import { useRig } from './rig.ts';
import { succeeds, type World } from './scripted-flow.ts';
import type { SiteWindow } from './site-visit.ts';

const rig = useRig();

/** The payment page of a world, for a person with these settings. */
async function open(world: World, settings: BrowserContextOptions, locale = 'en'): Promise<Frame> {
  const page = await rig.page(settings);
  await page.goto(rig.flow.site('acme'));
  await page.waitForFunction(() => (window as unknown as SiteWindow).siteReady === true);
  const options = { partner: world.partner, frameOrigin: rig.flow.payOrigin, locale };
  await page.evaluate((given) => (window as unknown as SiteWindow).start(given), options);
  const frame = page.frames().find((one) => one.url().startsWith(rig.flow.payOrigin));
  return frame ?? assert.fail('the frame is not there');
}

for (const [timezoneId, zone] of [
  ['Pacific/Honolulu', /GMT-10|HST/],
  ['Asia/Tokyo', /GMT\+9|JST/],
] as const)
  test(`a due date is the same day in ${timezoneId} as anywhere, and times name their zone`, async () => {
    const frame = await open(rig.flow.world(), { timezoneId, colorScheme: 'dark' }, 'es');
    await frame.getByText('Vence el 3 de diciembre de 2099').waitFor();
    assert.match(await frame.locator('body').innerText(), zone);
    // The site names no scheme, so it is light, whatever the system is.
    assert.equal(await frame.locator('html').getAttribute('data-theme'), 'light');
  });

test('with the system’s own colours (forced colours) buttons keep an edge, and the progress of a payment is seen', async () => {
  const world = rig.flow.world({ outcome: succeeds.slice(0, 1) });
  const frame = await open(world, { forcedColors: 'active' });
  const pay = frame.getByRole('button', { name: 'Pay $123.45' });
  const isEdged = await pay.evaluate((button) => {
    const { borderTopColor, borderTopWidth } = getComputedStyle(button);
    const { backgroundColor } = getComputedStyle(document.documentElement);
    return Number.parseFloat(borderTopWidth) > 0 && borderTopColor !== backgroundColor;
  });
  assert.ok(isEdged, 'the button of Pay');
  await pay.click();
  const isSeen = await frame.locator('.track.second').evaluate((track) => {
    const { backgroundColor } = getComputedStyle(document.documentElement);
    return getComputedStyle(track, '::before').backgroundColor !== backgroundColor;
  });
  assert.ok(isSeen, 'how far the payment has come');
});
