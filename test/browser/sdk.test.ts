/**
 * The SDK in a site, as far as only Chromium's driver can show it: time that is moved forward, requests that are held or blocked on their
 * way, an app's web view, the keyboard of a phone. embed.test.ts has the rest, in every engine.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import type { Duebridge, DuebridgeOptions } from '../../packages/web/src/embed/types.ts';
import { until, useRig, values, type Visit } from './rig.ts';
import { succeeds, type World } from './scripted-flow.ts';

const rig = useRig();

/** What the site's script put on the window. */
interface Site {
  heard: { event: string; value: never }[];
  instance: Duebridge;
  make: (options: object) => Duebridge;
  start: (options: object, target?: string) => Promise<string>;
  onOpen?: () => void;
  sdk: { createDuebridge: (options: DuebridgeOptions) => Duebridge };
}

/** Whatever the SDK could have left behind. */
const leftovers = (page: Page): Promise<number> =>
  page.evaluate(
    () =>
      document.querySelectorAll('iframe, dialog').length +
      (document.documentElement.style.overflow === '' ? 0 : 1),
  );

const settings = (partner: string): { partner: string; frameOrigin: string } => ({
  partner,
  frameOrigin: rig.flow.payOrigin,
});

async function pay(visit: Visit): Promise<void> {
  await visit.press('Continue');
  await visit.press('Pay $123.45');
  await visit.title('Paid. Thank you!');
}

test('the token and the session are in no address, no referrer, no cookie, no storage and no log', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { expect: /401/ });
  await visit.start();
  world.endSessions();
  await pay(visit);
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
  for (const frame of visit.page.frames()) {
    const kept = await frame.evaluate(async () =>
      JSON.stringify([
        [localStorage, sessionStorage].flatMap((store) => Object.entries(store)),
        await indexedDB.databases(),
        document.cookie,
        window.name,
        location.href,
        document.documentElement.outerHTML,
        history.state,
      ]),
    );
    assert.ok(!secrets.some((secret) => kept.includes(secret)));
    assert.ok(kept.startsWith('[[],[],"",""'), kept.slice(0, 200));
  }
  assert.equal(await visit.page.evaluate(() => history.length), 2, 'the history of the site grew');
  await visit.close();
});

test('a content blocker that stops one of our files or calls leaves no blank card: somebody is told, or nothing is missed', async () => {
  const steps = async (visit: Visit, blocked: string): Promise<void> => {
    await visit.page.route(blocked, (route) => route.abort('blockedbyclient'));
  };
  const expect = /ERR_BLOCKED_BY_CLIENT/;
  // The page, its script, its style: the SDK tells the site, which has words of its own for the customer.
  for (const [blocked, code] of [
    ['**/flow/v1/*', 'frame_refused'],
    ['**/flow/assets/flow-*.js', 'platform_unreachable'],
    ['**/flow/assets/flow-*.css', 'platform_unreachable'],
  ] as const) {
    const visit = await rig.visit(rig.flow.world(), { expect });
    await steps(visit, blocked);
    assert.equal(await visit.start(), code, blocked);
    assert.equal(await leftovers(visit.page), 0);
    await visit.close();
  }
  // The text: nothing can be shown without it, and the page says so in words that are in its first bytes.
  const mute = await rig.visit(rig.flow.world(), { expect });
  await mute.page.clock.install();
  await steps(mute, '**/flow/assets/words-*');
  const mounted = mute.start({ loadTimeoutMs: 60_000 });
  await mute.frame.locator('#late').waitFor({ state: 'attached' });
  await until(async () => {
    await mute.page.clock.runFor(2_000);
    return mute.frame.locator('#late').isVisible();
  });
  assert.match(await mute.frame.locator('#late').innerText(), /could not be loaded in full/);
  await mute.page.unroute('**/flow/assets/words-*');
  await until(async () => {
    await mute.page.clock.runFor(2_000);
    return (await mute.frame.locator('h1').count()) > 0;
  });
  assert.equal(await mounted, 'mounted');
  await mute.close();
  // The calls: the page cannot tell a blocker from a lost network, and names both.
  const deaf = await rig.visit(rig.flow.world(), { expect });
  await steps(deaf, '**/v1/flow/session');
  assert.equal(await deaf.start(), 'mounted');
  await deaf.title('The connection is lost');
  await deaf.frame.getByText('a content blocker may be stopping this one').waitFor();
  await deaf.page.unroute('**/v1/flow/session');
  await deaf.title('Your bill from Acme Water');
  await deaf.close();
  // The stream of a payment: polls take over. The part with the last screens: the end is told all the same, and the part retried.
  const visit = await rig.visit(rig.flow.world(), { expect });
  await steps(visit, '**/events');
  await steps(visit, '**/outcome-*');
  await visit.start();
  await pay(visit);
  await visit.title('Paid. Thank you!');
  await visit.frame.getByText('$123.45', { exact: true }).waitFor();
  assert.equal(await visit.frame.getByText('BP-7781').count(), 0);
  await visit.page.unroute('**/outcome-*');
  await visit.frame.getByText('BP-7781').waitFor();
  // Whoever used the page by keyboard is still at its title.
  assert.equal(await visit.frame.locator('#title:focus').count(), 1);
  await visit.close();
});

test('a backend that is slow to give a token is called slow, and the payment starts when it comes', async () => {
  let give = (): void => {};
  const held = new Promise<undefined>((resolve) => (give = () => resolve(undefined)));
  const world = rig.flow.world({ plan: { token: () => held } });
  const visit = await rig.visit(world);
  await visit.page.clock.install();
  const mounted = visit.start({ loadTimeoutMs: 60_000 });
  await until(() => world.counts.token === 1);
  await visit.frame.locator('[data-theme]').waitFor({ state: 'attached' });
  await until(async () => {
    await visit.page.clock.runFor(2_000);
    return (await visit.frame.locator('h1').count()) > 0;
  });
  await visit.title('The site is taking a long time to respond');
  assert.equal(await mounted, 'mounted');
  const [error] = values(await visit.heard(), 'error') as { code: string; recoverable: boolean }[];
  assert.deepEqual([error?.code, error?.recoverable], ['token_slow', true]);
  give();
  await visit.title('Your bill from Acme Water');
  assert.equal(world.counts.token, 1);
  await visit.close();
});

/** Makes an instance and has it preload; the site's page shows nothing of that. */
async function preload(visit: Visit, world: World, how: object, display = 'inline'): Promise<void> {
  await visit.page.evaluate(
    ([options, load]) => (window as unknown as Site).make(options).preload(load),
    [{ ...settings(world.partner), display }, how] as const,
  );
  await until(() => world.seen.some(({ path }) => path.includes('/flow/assets/words-')));
  assert.equal(await visit.page.locator('iframe').isVisible(), false);
}

const mountPreloaded = (visit: Visit, target = '#place'): Promise<string> =>
  visit.page.evaluate(
    (place) =>
      (window as unknown as Site).instance.mount(place).then(
        () => 'mounted',
        (error: { code: string }) => error.code,
      ),
    target,
  );

test('preload() loads the page where it will be shown, and asks for a token only then', async () => {
  for (const [how, mounts, pages] of [
    [{ target: '#place' }, '#place', 1],
    // In another place a frame would load again in any case.
    [{}, '#place', 2],
  ] as const) {
    const world = rig.flow.world();
    const visit = await rig.visit(world);
    await preload(visit, world, how);
    await visit.page.evaluate(() => (window as unknown as Site).instance.update({ locale: 'es' }));
    assert.deepEqual([world.counts.token, await visit.heard()], [0, []]);
    assert.equal(await mountPreloaded(visit, mounts), 'mounted');
    await visit.title('Su factura de Acme Water');
    assert.equal(await visit.page.locator('iframe').count(), 1);
    assert.deepEqual([world.counts.page, world.counts.token, world.counts.exchange], [pages, 1, 1]);
    await visit.close();
  }
});

test('preload({ session: true }) has the bill before the click, a fresh one after a minute, and tells no failure', async () => {
  const world = rig.flow.world({
    plan: { token: (count) => (count === 2 || count === 4 ? 'INTERNAL_ERROR' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /status of 500|ERR_FAILED/ });
  const focused = (): Promise<string | undefined> =>
    visit.page.evaluate(() => document.activeElement?.id);
  await visit.page.locator('#open').focus();
  await preload(visit, world, { session: true }, 'modal');
  await until(() => world.sessions.size === 1);
  assert.deepEqual([await focused(), values(await visit.heard(), 'ready')], ['open', []]);
  await visit.page.route('**/flow/**', (route) => route.abort());
  assert.equal(await mountPreloaded(visit), 'mounted');
  await visit.title('Your bill from Acme Water');
  assert.deepEqual([world.counts.token, world.counts.exchange, world.counts.read], [1, 1, 0]);
  await visit.page.unroute('**/flow/**');
  await visit.frame.getByRole('button', { name: 'Close' }).click();
  await until(async () => (await visit.page.locator('dialog').count()) === 0);
  assert.equal(await focused(), 'open');

  // The backend fails while nobody is looking: the click starts afresh, and nothing is told.
  await visit.page.evaluate(() => {
    const post = Reflect.get(MessagePort.prototype, 'postMessage') as (message: unknown) => void;
    MessagePort.prototype.postMessage = function (message: { token?: null }) {
      if (message.token === null) Object.assign(window, { toldOfNone: true });
      Reflect.apply(post, this, [message]);
    };
  });
  for (const scriptIsLate of [false, true]) {
    let give = (): void => {};
    const held = new Promise<void>((resolve) => (give = resolve));
    if (scriptIsLate) {
      await visit.page.route('**/flow/assets/flow-*', (route) => held.then(() => route.continue()));
    }
    await preload(visit, world, { session: true, target: '#place' });
    await visit.page.waitForFunction(() => 'toldOfNone' in window);
    const mounted = mountPreloaded(visit);
    // The page learns of the failure and of the click at once.
    give();
    assert.equal(await mounted, 'mounted');
    await visit.title('Your bill from Acme Water');
    const tokens = scriptIsLate ? 5 : 3;
    assert.deepEqual([world.counts.token, values(await visit.heard(), 'error')], [tokens, []]);
    await visit.page.evaluate(() => {
      (window as unknown as Site).instance.destroy();
      Reflect.deleteProperty(window, 'toldOfNone');
    });
  }
  await visit.page.unroute('**/flow/assets/flow-*');

  await preload(visit, world, { session: true, target: '#place' });
  await until(() => world.sessions.size === 4);
  const body = visit.frame.locator('body');
  await body.evaluate(() => {
    const { now } = Date;
    Date.now = () => now() + 61_000;
  });
  world.bill = { ...world.bill, balance: { amount_due_in_cents: 4_200 } };
  assert.equal(await mountPreloaded(visit), 'mounted');
  await visit.frame.getByText('$42.00', { exact: true }).waitFor();
  assert.equal(world.counts.read, 1);
  await visit.close();
});

test('a session that was answered long before the files of the page came is used', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  await visit.page.addInitScript(() => {
    const [limits, read]: [AbortController[], string[]] = [[], []];
    Object.assign(window, { limits, read });
    AbortSignal.timeout = () => {
      const limit = new AbortController();
      limits.push(limit);
      return limit.signal;
    };
    // Whoever takes an answer in: by then no limit has anything to cut off.
    for (const way of ['blob', 'json', 'text', 'arrayBuffer'] as const) {
      const take = Response.prototype[way] as () => Promise<never>;
      Response.prototype[way] = async function (this: Response) {
        const taken = await take.call(this);
        read.push(this.url);
        return taken;
      };
    }
  });
  await visit.page.reload();
  await visit.page.waitForFunction(() => (window as unknown as { siteReady?: boolean }).siteReady);
  let give = (): void => {};
  const held = new Promise<void>((resolve) => (give = resolve));
  await visit.page.route('**/flow/assets/flow-*', async (route) => {
    await held;
    await route.continue();
  });
  const mounted = visit.start();
  interface Noted {
    readonly limits: AbortController[];
    readonly read: string[];
  }
  const body = visit.frame.locator('body');
  await until(() =>
    body.evaluate(() =>
      (window as unknown as Noted).read.some((url) => url.endsWith('/flow/session')),
    ),
  );
  await body.evaluate(() => (window as unknown as Noted).limits.forEach((one) => one.abort()));
  give();
  assert.equal(await mounted, 'mounted');
  await visit.title('Your bill from Acme Water');
  assert.deepEqual([world.counts.token, world.counts.exchange, world.counts.read], [1, 1, 0]);
  await visit.close();
});

test('files that never come hold nothing up: developer tools, and a text at its first request', async () => {
  const world = rig.flow.world({ mode: 'test' });
  const visit = await rig.visit(world);
  // The limits of requests, in a tenth of their time.
  await visit.page.addInitScript(() => {
    const timeout = AbortSignal.timeout.bind(AbortSignal);
    AbortSignal.timeout = (ms) => timeout(ms / 10);
  });
  await visit.page.reload();
  await visit.page.waitForFunction(() => (window as unknown as { siteReady?: boolean }).siteReady);
  await visit.page.route('**/flow/assets/developer-*', () => {});
  let texts = 0;
  await visit.page.route('**/flow/assets/words-*', (route) => {
    texts += 1;
    return texts === 1 ? undefined : route.continue();
  });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('Your bill from Acme Water');
  assert.equal(texts, 2);
  assert.equal(await visit.frame.getByRole('button', { name: 'Developer tools' }).count(), 0);
  await visit.close();
});

test('a backend that is asked for another token and never answers ends the session, not the payment', async () => {
  const world = rig.flow.world({
    plan: { token: (count) => (count === 1 ? undefined : 'hang') },
  });
  const visit = await rig.visit(world, { expect: /status of 401/ });
  await visit.start();
  await visit.press('Continue');
  await visit.title('Check your payment');
  await visit.page.clock.install();
  world.endSessions();
  await visit.press('Pay $123.45');
  await until(() => world.counts.token === 2);
  await visit.page.clock.runFor(10_000);
  await until(async () => values(await visit.heard(), 'error').length === 1);
  await visit.title('Check your payment');
  await visit.page.clock.runFor(20_000);
  await visit.title('This page has been open for a long time');
  const codes = (values(await visit.heard(), 'error') as { code: string }[]).map(
    ({ code }) => code,
  );
  assert.deepEqual(codes, ['token_slow', 'token_expired']);
  await visit.close();
});

test('a part of the page that stalls is told, and taken when it comes', async () => {
  const card = { funding_method: 'card', label: 'Card', sandbox: true, frame: '/fund/card' };
  const visit = await rig.visit(rig.flow.world({ fundingMethods: [card] }), {
    expect: /frame-src/,
  });
  const slow = 'This payment method is not loading. Wait a moment, or choose another.';
  let give = (): void => {};
  const held = new Promise<void>((resolve) => (give = resolve));
  await visit.page.route('**/flow/assets/funding-*', async (route) => {
    await held;
    await route.continue();
  });
  await visit.page.clock.install();
  await visit.start();
  await visit.press('Continue');
  await visit.title('Check your payment');
  assert.equal(await visit.frame.getByText(slow).count(), 0);
  await visit.page.clock.runFor(10_000);
  await visit.frame.getByText(slow).waitFor();
  give();
  await visit.frame.locator('iframe.fund').waitFor({ state: 'attached' });
  await visit.frame.getByText(slow).waitFor({ state: 'detached' });
  await visit.close();
});

test('a redirect whose backend never answers ends, so that the button works again', async () => {
  const visit = await rig.visit(rig.flow.world());
  await visit.page.clock.install();
  const ended = visit.page.evaluate(async (frameOrigin) => {
    const path = '/npm/redirect.js';
    const { redirectToPayment } = (await import(path)) as {
      redirectToPayment: (options: object) => Promise<never>;
    };
    const returnUrl = location.href;
    const fetchToken = (): Promise<string> => {
      document.title = 'asked';
      return new Promise(() => {});
    };
    const options = { partner: 'p', frameOrigin, returnUrl, fetchToken };
    return redirectToPayment(options).catch((error: { code: string }) => error.code);
  }, rig.flow.payOrigin);
  await until(async () => (await visit.page.title()) === 'asked');
  await visit.page.clock.runFor(15_000);
  assert.equal(await ended, 'token_invalid');
  await visit.close();
});

test('the first bytes have the theme of the site, before any file of the page has come', async () => {
  for (const [theme, colorScheme, background] of [
    ['dark', 'light', 'rgb(20, 24, 31)'],
    ['light', 'dark', 'rgb(255, 255, 255)'],
    ['auto', 'dark', 'rgb(20, 24, 31)'],
  ] as const) {
    const visit = await rig.visit(rig.flow.world(), { colorScheme });
    // Held back by the browser: the page is what came with its first bytes.
    await visit.page.route('**/flow/assets/*', () => {});
    void visit.start({ appearance: { theme }, display: 'modal' }).catch(() => {});
    const iframe = visit.page.locator('iframe');
    await visit.frame.locator('.bone').first().waitFor({ state: 'attached' });
    assert.equal(
      await iframe.evaluate((frame) => getComputedStyle(frame).backgroundColor),
      background,
    );
    const inside = visit.page.frames().find((frame) => frame.url().startsWith(rig.flow.payOrigin));
    assert.equal(
      await inside?.evaluate(() => getComputedStyle(document.documentElement).backgroundColor),
      background,
      theme,
    );
  }
});

test('a modal page takes Escape, asks while it sends, and gives the page back as it was', async () => {
  let answer = (): void => {};
  const held = new Promise<undefined>((resolve) => (answer = () => resolve(undefined)));
  const world = rig.flow.world({ plan: { pay: () => held } });
  const visit = await rig.visit(world);
  await visit.start({ display: 'modal' });
  await visit.press('Continue');
  await visit.press('Pay $123.45');
  await visit.page.keyboard.press('Escape');
  await visit.frame.getByText('Close the page anyway?').first().waitFor();
  await visit.press('Keep it open');
  assert.equal(await visit.page.locator('dialog[open]').count(), 1);
  answer();
  await visit.title('Paid. Thank you!');
  await visit.page.keyboard.press('Escape');
  await until(async () => (await leftovers(visit.page)) === 0);
  const [exit] = values(await visit.heard(), 'exit') as Record<string, unknown>[];
  assert.deepEqual(
    [exit?.['reason'], exit?.['at'], exit?.['sessionId']],
    ['completed', 'receipt', 'session-1'],
  );
  await visit.close();
});

test('a modal page that does not load can be closed with Escape and with a click beside it', async () => {
  const world = rig.flow.world({ plan: { page: () => 'hang' } });
  const visit = await rig.visit(world, { viewport: { width: 900, height: 700 } });
  for (const leave of [
    () => visit.page.keyboard.press('Escape'),
    () => visit.page.mouse.click(20, 20),
  ]) {
    const mounted = visit.start({ display: 'modal' });
    await visit.page.locator('dialog[open] iframe').waitFor();
    await leave();
    assert.equal(await mounted, 'destroyed');
    assert.equal(await leftovers(visit.page), 0);
  }
  const reasons = values(await visit.heard(), 'exit') as { reason: string; at: string }[];
  assert.deepEqual(
    reasons.map(({ reason, at }) => [reason, at]),
    [
      ['user', 'loading'],
      ['user', 'loading'],
    ],
  );
  await visit.close();
});

/** What Android's WebView says it is. */
const WEB_VIEW =
  'Mozilla/5.0 (Linux; Android 15; Pixel 8 Build/AP4A; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/140.0.0.0 Mobile Safari/537.36';

test('an app’s web view without cookies, storage, windows and printing pays a bill, and says what it cannot do', async () => {
  const world = rig.flow.world({
    outcome: [],
    fundingMethods: [{ funding_method: 'bank', label: 'Your bank', sandbox: true, may_act: true }],
  });
  const visit = await rig.visit(world, {
    userAgent: WEB_VIEW,
    viewport: { width: 412, height: 915 },
    isMobile: true,
    hasTouch: true,
  });
  // In the frame as in the site: a browser that blocks another site's storage throws at the first touch.
  await visit.page.addInitScript(() => {
    const denied = (): never => {
      throw new DOMException('denied', 'SecurityError');
    };
    for (const name of ['localStorage', 'sessionStorage', 'indexedDB', 'caches'])
      Object.defineProperty(window, name, { get: denied });
    Object.defineProperty(Document.prototype, 'cookie', { get: denied, set: denied });
    window.open = () => null;
    Reflect.deleteProperty(window, 'print');
    Object.defineProperty(window, 'print', { value: undefined });
  });
  await visit.page.reload();
  await visit.page.waitForFunction(() => (window as unknown as { siteReady?: boolean }).siteReady);
  assert.equal(await visit.start({ display: 'modal' }), 'mounted');
  await visit.press('Continue');
  await visit.press('Pay $123.45');
  await visit.title('Your payment is on its way');
  world.change({ action: { kind: 'redirect', url: 'http://bank.localhost:9/' } });
  await visit.title('Please approve the payment');
  await visit.press('Continue at your bank');
  await visit.frame.getByRole('alert').getByText('No window opened.').waitFor();
  // Approved elsewhere: the page that stayed here hears of it.
  const { action, ...waiting } = world.payments[0] ?? assert.fail('there is no payment');
  assert.ok(action);
  world.payments[0] = waiting;
  world.change(succeeds[0] ?? {});
  world.change(succeeds[1] ?? {});
  await visit.title('Paid. Thank you!');
  await visit.frame.getByRole('button', { name: 'Save', exact: true }).waitFor();
  assert.equal(await visit.frame.getByRole('button', { name: 'Print' }).count(), 0);
  await visit.close();
});

test('an app’s page on https://localhost or http://localhost pays; one from a file is refused in words', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { expect: /frame-ancestors|Framing|ERR_BLOCKED/ });
  // To the browser this is a site of the internet that frames one of this machine, which neither is in an app.
  await visit.page.context().grantPermissions(['local-network-access']);
  const { port } = rig.flow;
  world.origins = ['https://localhost', `http://localhost:${port}`];
  // Capacitor serves an app's own files under this origin; so does this.
  await visit.page.route('https://localhost/**', async (route) => {
    const { pathname, search } = new URL(route.request().url());
    const response = await route.fetch({ url: `http://localhost:${port}${pathname}${search}` });
    await route.fulfill({ response });
  });
  const ready = (): Promise<unknown> =>
    visit.page.waitForFunction(() => (window as unknown as { siteReady?: boolean }).siteReady);
  for (const origin of world.origins) {
    await visit.page.goto(`${origin}/`);
    await ready();
    assert.equal(await visit.start(), 'mounted', origin);
    await visit.title(/^(Your bill from Acme Water|Paid. Thank you!)$/);
  }
  const folder = mkdtempSync(join(tmpdir(), 'duebridge-app-'));
  try {
    const script = `${rig.flow.payOrigin}/sdk/v1/duebridge.js`;
    writeFileSync(join(folder, 'app.html'), `<script src="${script}"></script><div id="place">`);
    await visit.page.goto(pathToFileURL(join(folder, 'app.html')).href);
    const refused = await visit.page.evaluate(
      (partner) =>
        window.duebridge
          .createDuebridge({ partner, token: 'a token' })
          .mount('#place')
          .catch((error: { code: string }) => error.code),
      world.partner,
    );
    assert.equal(refused, 'frame_refused');
    assert.equal(world.counts.exchange, 2);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  await visit.close();
});

test('importing it on a server does nothing, and renders an empty place', async () => {
  const url = (name: string): string => pathToFileURL(join(rig.dist, 'npm', name)).href;
  const before = Object.keys(globalThis);
  const sdk = (await import(url('embed.js'))) as Site['sdk'];
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

test('a phone’s keyboard leaves the dialog the part of the window that is seen, and zooming changes nothing', async () => {
  const visit = await rig.visit(rig.flow.world(), { viewport: { width: 390, height: 844 } });
  await visit.start({ display: 'modal' });
  const height = (): Promise<number> =>
    visit.page.locator('dialog').evaluate((dialog) => dialog.getBoundingClientRect().height);
  /** What a phone tells of its window: no driver has a keyboard to show. */
  const tell = (seen: number, scale: number, offsetTop = 0, change = 'resize'): Promise<void> =>
    visit.page.evaluate(
      ([changed, values]) => {
        const view = visualViewport as VisualViewport;
        for (const [name, value] of Object.entries(values))
          Object.defineProperty(view, name, { configurable: true, value });
        view.dispatchEvent(new Event(changed));
      },
      [change, { height: seen, scale, offsetTop }] as const,
    );
  const top = (): Promise<number> =>
    visit.page.locator('dialog').evaluate((dialog) => dialog.getBoundingClientRect().top);
  assert.equal(await height(), 844);
  await visit.press('Pay another amount');
  await tell(480, 1);
  assert.equal(await height(), 480);
  const button = visit.frame.getByRole('button', { name: 'Continue' });
  await button.scrollIntoViewIfNeeded();
  const box = await button.boundingBox();
  assert.ok(box && box.y + box.height <= 480, 'the button is above the keyboard');
  // Safari moves what is seen down to the field, over a page that stays where it was: the dialog moves along.
  await tell(480, 1, 300, 'scroll');
  assert.deepEqual([await top(), await height()], [300, 480]);
  await tell(422, 2, 150, 'scroll');
  assert.equal(await top(), 0);
  assert.equal(await height(), 844);
  await visit.close();
});
