/**
 * The page for everybody: a keyboard alone, large text, a reader of the screen; each screen through axe is in screens.test.ts, the
 * system's own colours in settings.test.ts.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import type { AxeResults } from 'axe-core';
import type { Frame } from 'playwright-core';
import { useRig, values, type Visit } from './rig.ts';
import { SCREENS, walkTo } from './screens.ts';
import { succeeds } from './scripted-flow.ts';

const rig = useRig();
const axe = readFileSync(
  join(import.meta.dirname, '../../node_modules/axe-core/axe.min.js'),
  'utf8',
);

/** What the tests put into the frame. */
interface AxeWindow {
  axe: { run(options: object): Promise<AxeResults> };
}
interface SiteWindow {
  instance: { update(change: object): void; focus(): void; destroy(): void };
  onOpen?: () => void;
  start(options: object): Promise<string>;
}

function payFrame(visit: Visit): Frame {
  const frame = visit.page.frames().find((one) => one.url().startsWith(rig.flow.payOrigin));
  assert.ok(frame);
  return frame;
}

async function violations(frame: Frame): Promise<string[]> {
  const { violations: found } = await frame.evaluate(() =>
    (window as unknown as AxeWindow).axe.run({
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      resultTypes: ['violations'],
    }),
  );
  return found.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
}

test('the text that partner colours make hard to read is not applied', async () => {
  const visit = await rig.visit(rig.flow.world());
  const variables = { text: '#999999', background: '#aaaaaa', accent: '#ffee00', radius: '2px' };
  await visit.start({ appearance: { theme: 'light', variables } });
  await visit.title('Your bill from Acme Water');
  await payFrame(visit).evaluate(axe);
  assert.deepEqual(await violations(payFrame(visit)), []);
  const main = visit.frame.locator('.main');
  const style = await main.evaluate((button) => {
    const { backgroundColor, borderRadius } = getComputedStyle(button);
    return { backgroundColor, borderRadius };
  });
  assert.deepEqual(style, { backgroundColor: 'rgb(255, 238, 0)', borderRadius: '2px' });
  await visit.close();
});

test('a bill is paid with the keyboard alone, and the focus is where the customer looks', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  const { keyboard } = visit.page;
  // Keys and screens go through three processes: wait until the focus is there, as an eye would.
  const focused = (text: string): Promise<void> =>
    visit.frame.locator(':focus', { hasText: text }).waitFor();
  const where = (id: string): Promise<unknown> =>
    visit.page.waitForFunction((wanted) => document.activeElement?.id === wanted, id);
  await visit.page.evaluate(
    (settings) => {
      const site = window as unknown as SiteWindow;
      site.onOpen = () => void site.start(settings);
    },
    { partner: world.partner, frameOrigin: rig.flow.payOrigin, display: 'modal' },
  );
  await keyboard.press('Tab');
  await where('open');
  await keyboard.press('Enter');
  await visit.title('Your bill from Acme Water');
  await keyboard.press('Tab');
  await keyboard.press('Tab');
  await focused('Continue');
  await keyboard.press('Tab');
  await focused('Pay another amount');
  await keyboard.press('Enter');
  await visit.title('How much would you like to pay?');
  await focused('How much would you like to pay?');
  await keyboard.press('Tab');
  await visit.frame.locator('input:focus').waitFor();
  await keyboard.type('42.5');
  await keyboard.press('Enter');
  await visit.title('Check your payment');
  await focused('Check your payment');
  await keyboard.press('Tab');
  await focused('Pay $42.50');
  await keyboard.press('Enter');
  await visit.title('Your payment is on its way');
  world.change(succeeds[0] ?? {});
  world.change(succeeds[1] ?? {});
  await visit.title('Paid. Thank you!');
  await focused('Paid. Thank you!');
  await keyboard.press('Escape');
  await visit.page.locator('dialog').waitFor({ state: 'detached' });
  await where('open');
  assert.equal(world.payments[0]?.amount_in_cents, 4_250);
  const [exit] = values(await visit.heard(), 'exit') as { reason: string; at: string }[];
  assert.deepEqual([exit?.reason, exit?.at], ['completed', 'receipt']);
  await visit.close();
});

test('the first screen leaves the focus of the site alone, and focus() moves it in', async () => {
  const visit = await rig.visit(rig.flow.world());
  await visit.page.locator('#after').focus();
  await visit.start();
  await visit.title('Your bill from Acme Water');
  const where = (): Promise<string | undefined> =>
    visit.page.evaluate(() => document.activeElement?.id || document.activeElement?.tagName);
  assert.equal(await where(), 'after');
  await visit.page.evaluate(() => (window as unknown as SiteWindow).instance.focus());
  await visit.frame.locator('h1:focus').waitFor();
  assert.equal(await where(), 'IFRAME');
  await visit.page.evaluate(() => (window as unknown as SiteWindow).instance.destroy());
  assert.equal(await where(), 'after');
  await visit.close();
});

test('changes of the payment are announced once, in a live region that outlives the screens', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  await visit.start();
  await payFrame(visit).evaluate(() => {
    const region = document.querySelector('[role=status]');
    const spoken: string[] = [];
    Object.assign(window, { spoken, region });
    new MutationObserver(() => region?.textContent && spoken.push(region.textContent)).observe(
      region ?? document,
      {
        childList: true,
        characterData: true,
        subtree: true,
      },
    );
  });
  await visit.press('Continue');
  await visit.press('Pay $123.45');
  await visit.title('Your payment is on its way');
  // A phone that sets its clock back by an hour waits no hour with the next announcement.
  await payFrame(visit).evaluate(() => {
    const { now } = Date;
    Date.now = () => now() - 3_600_000;
  });
  world.change(succeeds[0] ?? {});
  world.change(succeeds[1] ?? {});
  await visit.title('Paid. Thank you!');
  await visit.frame
    .locator('[role=status]', { hasText: 'Paid. Thank you!' })
    .waitFor({ state: 'attached' });
  const { spoken, same } = await payFrame(visit).evaluate(() => {
    const held = window as unknown as { spoken: string[]; region: Element };
    return { spoken: held.spoken, same: held.region === document.querySelector('[role=status]') };
  });
  assert.ok(same);
  // Two at most: the steps in between came within the five seconds that a sentence is given.
  assert.deepEqual(spoken, ['Your payment is on its way', 'Paid. Thank you!']);
  await visit.close();
});

test('at 200 % text on the narrowest phone no amount is broken and nothing is cut', async () => {
  for (const [name, bill] of [
    ['review', { amount_due_in_cents: 99_999_999_999 }],
    ['receipt', { amount_due_in_cents: 1_708_400 }],
  ] as const) {
    const screen = SCREENS.find((one) => one.name === name);
    assert.ok(screen);
    const world = rig.flow.world();
    world.bill = { ...world.bill, balance: bill };
    const visit = await rig.visit(world, { viewport: { width: 320, height: 800 } });
    await visit.start();
    await payFrame(visit).evaluate(() => {
      document.documentElement.style.fontSize = '200%';
    });
    await walkTo(screen, visit.page, 'en');
    const seen = await payFrame(visit).evaluate(() => ({
      // One line each, and wholly inside the page.
      broken: [...document.querySelectorAll('.money')].filter((amount) => {
        const range = document.createRange();
        range.selectNodeContents(amount);
        const { right } = range.getBoundingClientRect();
        const box = amount.closest('.bill')?.getBoundingClientRect().right ?? innerWidth;
        return range.getClientRects().length !== 1 || right > box;
      }).length,
      amounts: document.querySelectorAll('.money').length,
      overflow: document.documentElement.scrollWidth - innerWidth,
    }));
    assert.deepEqual(seen, { broken: 0, amounts: 1, overflow: 0 }, name);
    await visit.close();
  }
});

test('right to left, each value stands at the far edge, and a sentence ends with its full stop', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { viewport: { width: 360, height: 800 } });
  await visit.start({ appearance: { direction: 'rtl' } });
  await visit.press('Continue');
  await visit.title('Check your payment');
  const seen = await payFrame(visit).evaluate(() => {
    const edges = (element: Element | null): DOMRect | undefined =>
      element?.getBoundingClientRect();
    const list = edges(document.querySelector('dl'));
    const values = [...document.querySelectorAll('dd')].map((value) => edges(value)?.left);
    const labels = [...document.querySelectorAll('dt')].map((label) => edges(label)?.right);
    const note = document.querySelector('main p.small')?.firstChild;
    const at = (character: number): number | undefined => {
      if (!note) return undefined;
      const range = document.createRange();
      range.setStart(note, character);
      range.setEnd(note, character + 1);
      return range.getBoundingClientRect().left;
    };
    const last = (note?.textContent?.length ?? 0) - 1;
    return {
      values: values.every((left) => left === list?.left),
      labels: labels.every((right) => right === list?.right),
      stop: note?.textContent?.endsWith('.') === true && Number(at(last)) > Number(at(0)),
    };
  });
  assert.deepEqual(seen, { values: true, labels: true, stop: true });
  await visit.close();
});

test('in test mode the page says so in every language; its developer tools pass axe, work by keyboard and show no token', async () => {
  const world = rig.flow.world({ mode: 'test' });
  const visit = await rig.visit(world, { viewport: { width: 320, height: 800 } });
  await visit.start({ locale: 'en' });
  await visit.title('Your bill from Acme Water');
  const frame = payFrame(visit);
  await frame.evaluate(axe);
  const tools = visit.frame.getByRole('button', { name: 'Developer tools' });
  await tools.focus();
  await visit.page.keyboard.press('Enter');
  await visit.frame.getByRole('heading', { name: 'Choose an outcome' }).waitFor();
  for (const [locale, says] of [
    ['es', 'Modo de prueba: no se mueve dinero'],
    ['fr', 'Mode test : aucun argent n’est déplacé'],
    ['pt', 'Modo de teste: nenhum dinheiro é movimentado'],
    ['en', 'Test mode: no money moves'],
  ] as const) {
    await visit.page.evaluate(
      (to) =>
        (window as unknown as SiteWindow).instance.update({
          locale: to,
          // A site’s colours do not reach the banner.
          appearance: { theme: 'dark', variables: { background: '#000000', text: '#ffffff' } },
        }),
      locale,
    );
    await visit.frame.getByText(says, { exact: true }).waitFor();
    assert.deepEqual(await violations(frame), [], locale);
  }
  const [banner, biller] = [visit.frame.locator('.test'), visit.frame.locator('.biller')];
  const wide = await frame.evaluate(() => document.documentElement.clientWidth);
  assert.equal((await banner.boundingBox())?.width, wide, 'from edge to edge');
  assert.ok(((await biller.boundingBox())?.width ?? 0) > 80, 'the name keeps its line');
  const messages = await visit.frame.locator('.tools ol').innerText();
  for (const type of ['token', 'ready', 'screen', 'update'])
    assert.match(messages, new RegExp(`(page|site) ${type}`));
  assert.doesNotMatch(await frame.content(), /dbt_/);
  await visit.frame.getByRole('button', { name: '$666.04 canceled' }).focus();
  await visit.page.keyboard.press('Enter');
  await visit.press('Pay $666.04');
  await visit.title('Paid. Thank you!');
  assert.equal(world.payments[0]?.amount_in_cents, 66_604);
  assert.match(await visit.frame.locator('.tools ol').innerText(), /page payment/);
  await visit.close();
});

test('a live page has no banner and never asks for the developer tools', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  const asked: string[] = [];
  visit.page.on('request', (request) => asked.push(request.url()));
  await visit.start();
  await visit.press('Continue');
  await visit.press('Pay $123.45');
  await visit.title('Paid. Thank you!');
  assert.ok(asked.some((url) => /\/flow-[\w-]+\.js$/.test(url)));
  assert.deepEqual(
    asked.filter((url) => url.includes('developer')),
    [],
  );
  assert.equal(await visit.frame.getByText('Test mode').count(), 0);
  await visit.close();
});
