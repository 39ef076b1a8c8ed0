/**
 * The SDK in a site that is careful, a site that is careless, and a site that is hostile.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import { build, type Rolldown } from 'vite';
import type { Duebridge, DuebridgeOptions } from '../../packages/web/src/embed/types.ts';
import type { createFakeFrame as CreateFakeFrame } from '../../packages/web/src/embed/testing.ts';
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

test('a hostile frame beside it, flooding both sides, learns nothing and changes nothing', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { query: '?hostile' });
  await visit.page.evaluate(
    (url) =>
      new Promise((resolve) => {
        const frame = document.createElement('iframe');
        frame.id = 'hostile';
        frame.src = url;
        frame.addEventListener('load', resolve);
        document.body.append(frame);
      }),
    `http://evil.localhost:${rig.flow.port}/hostile`,
  );
  assert.equal(await visit.start(), 'mounted');
  const frame = visit.page.frameLocator('#place iframe');
  await frame.getByRole('button', { name: 'Continue' }).click();
  await frame.getByRole('button', { name: 'Pay $123.45' }).click();
  await frame.getByRole('heading', { name: 'Paid. Thank you!' }).waitFor();
  const hostile = visit.page.frames().find((one) => one.url().includes('evil'));
  const got = await hostile?.evaluate(() => (window as unknown as { got: unknown[] }).got);
  assert.deepEqual(got, []);
  assert.equal(world.payments.length, 1);
  assert.deepEqual(values(await visit.heard(), 'fetchToken'), ['initial']);
  await visit.close();
});

test('a site that is not registered gets a typed error, no frame and not one message', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, {
    site: 'stranger',
    expect: /frame-ancestors|Framing|ERR_BLOCKED/i,
  });
  await visit.page.evaluate(() => {
    Object.assign(window, { messages: [] });
    addEventListener('message', (event) =>
      (window as unknown as { messages: unknown[] }).messages.push(event.data),
    );
  });
  assert.equal(await visit.start(), 'frame_refused');
  assert.equal(await leftovers(visit.page), 0);
  const messages = await visit.page.evaluate(
    () => (window as unknown as { messages: unknown[] }).messages,
  );
  // All that the platform says to a stranger is that it is there.
  assert.deepEqual([...new Set(messages)], ['duebridge/ping']);
  assert.equal(world.counts.exchange, 0);
  // A token may have been asked for while the frame loaded; it was handed to nobody.
  assert.equal(world.sessions.size, 0);
  await visit.close();
});

test('an origin that the platform no longer allows is told to the customer and to the site', async () => {
  const world = rig.flow.world({ plan: { exchange: () => 'ORIGIN_NOT_ALLOWED' } });
  const visit = await rig.visit(world, { expect: /403/ });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('This payment page cannot be shown here');
  const [error] = values(await visit.heard(), 'error') as { code: string; recoverable: boolean }[];
  assert.deepEqual([error?.code, error?.recoverable], ['origin_not_allowed', false]);
  await visit.close();
});

test('the page opened on its own says what to do, and asks nobody for a token', async () => {
  const world = rig.flow.world();
  const context = await rig.browser.newContext();
  const page = await context.newPage();
  await page.goto(`${rig.flow.payOrigin}/flow/v1/${world.partner}`);
  await page
    .getByRole('heading', { name: 'Please open this page from your biller’s site' })
    .waitFor();
  assert.equal(world.counts.exchange, 0);
});

test('options that cannot work are refused at once, with a code and a remedy', async () => {
  const visit = await rig.visit(rig.flow.world());
  const refused = await visit.page.evaluate((frameOrigin) => {
    const { createDuebridge } = (window as unknown as Site).sdk;
    const fetchToken = (): Promise<string> => Promise.resolve('');
    const wrong: object[] = [
      { fetchToken, frameOrigin },
      { partner: '', fetchToken, frameOrigin },
      { partner: 'p', frameOrigin },
      { partner: 'p', fetchToken },
      { partner: 'p', fetchToken, frameOrigin, display: 'redirect' },
      { partner: 'p', fetchToken, frameOrigin: 'pay.example' },
      { partner: 'p', fetchToken, frameOrigin: 'http://pay.example' },
      { partner: 'p', fetchToken, frameOrigin: 'javascript:alert(1)' },
    ];
    return wrong.map((options) => {
      try {
        createDuebridge(options as DuebridgeOptions);
        return 'accepted';
      } catch (error) {
        const { name, code, message } = error as { name: string; code: string; message: string };
        return `${name} ${code} ${message.length > 30}`;
      }
    });
  }, rig.flow.payOrigin);
  assert.deepEqual(new Set(refused), new Set(['DuebridgeError config_invalid true']));
  assert.equal(refused.length, 8);
  await visit.close();
});

test('a mount that cannot work rejects with a typed error and leaves nothing behind', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { expect: /./ });
  for (const target of ['#nowhere', '', '%%']) {
    assert.equal(await visit.start({}, target), 'config_invalid', target);
    assert.equal(await leftovers(visit.page), 0);
  }
  const detached = await visit.page.evaluate((options) => {
    const { make } = window as unknown as Site;
    const code = (error: { code?: string }): string => error.code ?? 'no code';
    return make(options).mount(document.createElement('div')).catch(code);
  }, settings(world.partner));
  assert.equal(detached, 'config_invalid');
  const own = await visit.page.evaluate(() => location.origin);
  assert.equal(await visit.start({ frameOrigin: own }), 'config_invalid');
  // An address where nothing listens: the browser shows its own error page in the frame.
  assert.equal(await visit.start({ frameOrigin: 'http://localhost:9' }), 'frame_refused');
  assert.equal(await visit.start({ partner: 'unknown' }), 'frame_refused');
  assert.equal(await leftovers(visit.page), 0);
  await visit.close();
});

test('a site whose own policy has no room for the frame is told so', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { query: '?noframe', expect: /frame-src/ });
  assert.equal(await visit.start(), 'frame_refused');
  assert.equal(await leftovers(visit.page), 0);
  await visit.close();
});

test('a platform that is down, or misses a file of its page, is not told as a site that is not registered', async () => {
  const visit = await rig.visit(rig.flow.world(), { expect: /./ });
  try {
    rig.flow.down = true;
    assert.equal(await visit.start(), 'platform_unreachable');
    rig.flow.down = false;
    for (const missing of [/\.js$/, /\.css$/]) {
      rig.flow.wire = (path) => (missing.test(path) ? 'NOT_FOUND' : undefined);
      assert.equal(await visit.start(), 'platform_unreachable');
    }
    assert.equal(await leftovers(visit.page), 0);
  } finally {
    Object.assign(rig.flow, { down: false, wire: undefined });
  }
  assert.equal(await visit.start(), 'mounted');
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

test('the token is asked for while the frame loads, and the bill comes with the session', async () => {
  let show = (): void => {};
  const held = new Promise<undefined>((resolve) => (show = () => resolve(undefined)));
  const world = rig.flow.world({ plan: { page: () => held } });
  const visit = await rig.visit(world);
  const mounted = visit.start();
  await until(() => world.counts.token === 1);
  assert.equal(world.counts.exchange, 0);
  show();
  assert.equal(await mounted, 'mounted');
  // No read of its own.
  assert.deepEqual([world.counts.token, world.counts.exchange, world.counts.read], [1, 1, 0]);
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
    plan: { token: (count) => (count === 2 ? 'INTERNAL_ERROR' : undefined) },
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
  await preload(visit, world, { session: true, target: '#place' });
  await visit.page.waitForFunction(() => 'toldOfNone' in window);
  assert.equal(await mountPreloaded(visit), 'mounted');
  await visit.title('Your bill from Acme Water');
  assert.deepEqual([world.counts.token, values(await visit.heard(), 'error')], [3, []]);
  await visit.page.evaluate(() => (window as unknown as Site).instance.destroy());

  await preload(visit, world, { session: true, target: '#place' });
  await until(() => world.sessions.size === 3);
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

test('the session and the text are on their way before the files of the page have come', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  let give = (): void => {};
  const held = new Promise<void>((resolve) => (give = resolve));
  const asked: string[] = [];
  visit.page.on('request', (request) => asked.push(new URL(request.url()).pathname));
  await visit.page.route('**/flow/assets/flow-*', async (route) => {
    await held;
    await route.continue();
  });
  const mounted = visit.start({ locale: 'fr' });
  await until(() => world.sessions.size === 1);
  await until(() => asked.some((path) => path.startsWith('/flow/assets/words-fr-')));
  assert.equal(await visit.frame.locator('h1').count(), 0);
  give();
  assert.equal(await mounted, 'mounted');
  await visit.title('Votre facture de Acme Water');
  assert.deepEqual([world.counts.token, world.counts.exchange, world.counts.read], [1, 1, 0]);
  assert.equal(asked.filter((path) => path.includes('/words-fr-')).length, 1);
  // What the inline script held is in no variable that another script could read.
  const left = await visit.frame.locator('body').evaluate(() => 'begun' in window);
  assert.equal(left, false);
  await visit.close();
});

test('what the site says before the files of the page have come is heard then', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  let give = (): void => {};
  const held = new Promise<void>((resolve) => (give = resolve));
  await visit.page.route('**/flow/assets/flow-*', async (route) => {
    await held;
    await route.continue();
  });
  const mounted = visit.start();
  await until(() => world.sessions.size === 1);
  await visit.page.evaluate(() =>
    (window as unknown as Site).instance.update({ locale: 'es', appearance: { theme: 'dark' } }),
  );
  give();
  assert.equal(await mounted, 'mounted');
  await visit.title('Su factura de Acme Water');
  await visit.frame.locator('html[data-theme=dark]').waitFor();
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

test('a frame that stays says that it is done, and shows the receipt again', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await visit.press('Done');
  await visit.title('All done');
  await visit.frame.getByText('$123.45 to Acme Water is paid.').waitFor();
  await visit.press('Show it again');
  await visit.title('Paid. Thank you!');
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

test('a platform that does not answer is given up after the time allowed', async () => {
  const world = rig.flow.world({ plan: { page: () => 'hang' } });
  const visit = await rig.visit(world);
  for (const display of ['inline', 'modal'] as const) {
    assert.equal(await visit.start({ display, loadTimeoutMs: 300 }), 'load_timeout');
    assert.equal(await leftovers(visit.page), 0);
  }
  await visit.close();
});

test('mounting twice, destroying while it loads, aborting, and using what is destroyed', async () => {
  const world = rig.flow.world({ plan: { page: (count) => (count === 1 ? 'hang' : undefined) } });
  const visit = await rig.visit(world);
  const codes = await visit.page.evaluate(async (options) => {
    const { make } = window as unknown as Site;
    const code = (error: { code?: string }): string => error.code ?? 'no code';
    const first = make(options);
    const loading = first.mount('#place').catch(code);
    const twice = await first.mount('#place').catch(code);
    first.destroy();
    first.destroy();
    const after = await first.mount('#place').catch(code);
    const abort = new AbortController();
    const second = make({ ...options, signal: abort.signal });
    const aborted = second.mount('#place').catch(code);
    abort.abort();
    const third = make({ ...options, signal: abort.signal });
    const states = [first.state, second.state, third.state];
    return [
      twice,
      await loading,
      after,
      await aborted,
      await third.mount('#place').catch(code),
      ...states,
    ];
  }, settings(world.partner));
  assert.deepEqual(codes, ['config_invalid', ...Array.from({ length: 7 }, () => 'destroyed')]);
  assert.equal(await leftovers(visit.page), 0);
  await visit.close();
});

test('an instance can be taken away and mounted again, and hears nothing twice', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  await visit.start();
  await visit.page.evaluate(async () => {
    const { instance } = window as unknown as Site;
    instance.unmount();
    await instance.mount('#place');
  });
  await pay(visit);
  const statuses = values(await visit.heard(), 'payment') as { status: string }[];
  assert.equal(statuses.filter(({ status }) => status === 'succeeded').length, 1);
  assert.equal(await visit.page.locator('iframe').count(), 1);
  await visit.close();
});

test('a backend that gives no token is told to the customer, with the cause for the engineer', async () => {
  const world = rig.flow.world({
    plan: { token: (count) => (count <= 1 ? 'INTERNAL_ERROR' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /500/ });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('We could not start the payment');
  const [error] = values(await visit.heard(), 'error') as Record<string, unknown>[];
  assert.equal(error?.['code'], 'token_invalid');
  assert.equal(error['cause'], 'token backend: 500');
  await visit.press('Try again');
  await visit.title('Your bill from Acme Water');
  await visit.close();
});

test('a listener that throws does not stop the payment', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  const errors: string[] = [];
  visit.page.on('pageerror', (error) => errors.push(error.message));
  await visit.start();
  await visit.page.evaluate(() => {
    (window as unknown as Site).instance.on('screen', () => {
      throw new Error('the mistake of the site');
    });
  });
  await pay(visit);
  assert.ok(errors.length > 0 && errors.every((text) => text === 'the mistake of the site'));
  await assert.rejects(visit.close(), /the mistake of the site/);
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

test('a site that loads the script with its hash needs to say no address', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { query: '?tag' });
  assert.equal(await visit.start({ frameOrigin: undefined }), 'mounted');
  await pay(visit);
  await visit.close();
});

test('a site that isolates itself (COEP) shows the page as any other', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { query: '?coep' });
  assert.equal(await visit.start(), 'mounted');
  await pay(visit);
  await visit.close();
});

test('a change of language or look keeps what the customer typed', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  await visit.start({ appearance: { theme: 'light' } });
  await visit.press('Pay another amount');
  await visit.frame.getByRole('textbox').fill('17.20');
  await visit.page.evaluate(() =>
    (window as unknown as Site).instance.update({ locale: 'es', appearance: { theme: 'dark' } }),
  );
  await visit.title('¿Cuánto desea pagar?');
  assert.equal(await visit.frame.getByRole('textbox').inputValue(), '17.20');
  await visit.frame.locator('html[data-theme=dark]').waitFor();
  await visit.close();
});

test('the frame is as tall as what it shows', async () => {
  const visit = await rig.visit(rig.flow.world());
  await visit.start();
  await visit.press('Continue');
  await visit.title('Check your payment');
  await until(async () => {
    const [inside, outside] = await Promise.all([
      visit.frame.locator('body').evaluate((body) => body.getBoundingClientRect().height),
      visit.page.locator('iframe').evaluate((frame) => frame.getBoundingClientRect().height),
    ]);
    return Math.ceil(inside) === outside;
  });
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

test('the React component survives StrictMode, new callbacks and new looks with one frame', async () => {
  const bundled = (await build({
    configFile: false,
    logLevel: 'error',
    define: { 'process.env.NODE_ENV': '"development"' },
    oxc: { jsx: { runtime: 'automatic', importSource: 'react' } },
    build: {
      write: false,
      minify: false,
      rolldownOptions: { input: join(import.meta.dirname, 'site/react-app.tsx') },
    },
  })) as Rolldown.RolldownOutput;
  rig.flow.files.set('/react.js', bundled.output[0].code);
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  await visit.page.evaluate(async (options) => {
    const path = '/react.js';
    await import(path);
    const site = window as unknown as Site & Record<string, (value: unknown) => void>;
    const said: string[] = [];
    Object.assign(window, { said });
    site['startReact']?.({
      ...options,
      fetchToken: async () => {
        said.push('token');
        const answer = await fetch(`/token?partner=${options.partner}`);
        return ((await answer.json()) as { token: string }).token;
      },
      onReady: () => said.push('ready'),
      onError: (error: { code: string }) => said.push(error.code),
    });
  }, settings(world.partner));
  await visit.title('Your bill from Acme Water');
  assert.equal(await visit.page.locator('iframe').count(), 1);
  await visit.page.evaluate(() => {
    const site = window as unknown as { said: string[]; setProps: (props: object) => void };
    site.setProps({
      locale: 'es',
      onPayment: (payment: { status: string }) => site.said.push(`new ${payment.status}`),
    });
  });
  await visit.title('Su factura de Acme Water');
  await visit.press('Continuar');
  await visit.press('Pagar $123.45');
  await visit.title('Su pago está en camino');
  const said = (): Promise<string[]> =>
    visit.page.evaluate(() => (window as unknown as { said: string[] }).said);
  await until(async () => (await said()).length === 3);
  assert.deepEqual(await said(), ['token', 'ready', 'new processing']);
  // Another bill is another page: a customer who switches accounts does not see the one before.
  const [first] = world.tokens;
  await visit.page.evaluate(() =>
    (window as unknown as { setProps: (props: object) => void }).setProps({ account: 'another' }),
  );
  await until(() => world.counts.exchange === 2);
  assert.notEqual(world.tokens.at(-1), first);
  await visit.page.evaluate(() =>
    (window as unknown as { shown: (shown: boolean) => void }).shown(false),
  );
  await visit.page.locator('iframe').waitFor({ state: 'detached' });
  await visit.close();
});

test('the test kit plays a payment to the site without a platform', async () => {
  const visit = await rig.visit(rig.flow.world());
  const result = await visit.page.evaluate(async () => {
    const path = '/npm/testing.js';
    const kit = (await import(path)) as { createFakeFrame: typeof CreateFakeFrame };
    const fake = kit.createFakeFrame({
      script: [
        { token: 'initial' },
        'ready',
        { payment: 'processing' },
        { payment: 'failed', failureReason: 'No such account' },
        { error: 'network_lost', recoverable: true },
        { exit: 'user', at: 'status' },
      ],
    });
    const { make } = window as unknown as Site;
    const instance = make({
      partner: 'acme',
      frameOrigin: 'https://pay.example',
      fetchToken: () => Promise.resolve('a token'),
      frame: fake,
    });
    await instance.mount('#place');
    await fake.played;
    instance.update({ locale: 'es' });
    await fake.play({ screen: 'status' });
    const heardByFrame = fake.heard.map(({ type }) => type);
    const { state } = instance;
    instance.destroy();
    return { tokens: fake.tokens, heardByFrame, state };
  });
  assert.deepEqual(result, { tokens: ['a token'], heardByFrame: ['update'], state: 'exited' });
  const heard = await visit.heard();
  assert.deepEqual(
    heard.filter(({ event }) => event !== 'fetchToken').map(({ event }) => event),
    ['ready', 'payment', 'payment', 'error', 'exit', 'screen'],
  );
  const [, failed] = values(heard, 'payment') as { failureReason: string }[];
  assert.equal(failed?.failureReason, 'No such account');
  assert.equal(await visit.page.locator('#place').evaluate((place) => place.childElementCount), 0);
  await visit.close();
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
