/**
 * The way from a token to a receipt, and what browsers and people do on it.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { until, useRig, values, type Visit } from './rig.ts';
import { succeeds } from './scripted-flow.ts';

const rig = useRig();

test('a customer pays a bill to the receipt, and the site hears of each step [S1]', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  // Every sentence that the page showed, however briefly.
  await visit.page.addInitScript(() => {
    const shown = new Set<string>();
    Object.assign(window, { shown });
    new MutationObserver(() => {
      for (const { textContent } of document.querySelectorAll('p')) shown.add(textContent);
    }).observe(document, { subtree: true, childList: true, characterData: true });
  });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('Your bill from Acme Water');
  await visit.frame.getByText('$123.45', { exact: true }).waitFor();
  await visit.frame.getByText('Due December 3, 2099').waitFor();
  await visit.press('Continue');
  await visit.title('Check your payment');
  await visit.press('Pay $123.45');
  await visit.title('Your payment is on its way');
  world.change({
    progress: 'accepted',
    payment_id: 'BP-7781',
    initiated_at: '2026-03-01T18:00:01.000Z',
  });
  await visit.frame.locator('li.done', { hasText: 'Accepted by Acme Water' }).waitFor();
  world.change({
    status: 'succeeded',
    progress: 'ended',
    posted_at: '2026-03-01T18:00:02.000Z',
  });
  await visit.title('Paid. Thank you!');
  const shown = await visit.frame
    .locator('body')
    .evaluate(() => [...(window as unknown as { shown: Set<string> }).shown]);
  assert.ok(shown.some((text) => /^Waiting for \d+ seconds?$/.test(text)));
  assert.ok(!shown.includes('Waiting for 0 seconds'));
  await visit.frame.getByText('BP-7781').waitFor();
  await visit.press('Done');
  await until(async () => values(await visit.heard(), 'exit').length === 1);

  const heard = await visit.heard();
  const names = values(heard, 'screen').map((value) => (value as { name: string }).name);
  assert.deepEqual(names, ['review', 'confirm', 'status', 'receipt']);
  const statuses = values(heard, 'payment').map((value) => (value as { status: string }).status);
  assert.deepEqual(statuses, ['processing', 'processing', 'succeeded']);
  const [exit] = values(heard, 'exit') as { reason: string; payment: object }[];
  assert.equal(exit?.reason, 'completed');
  assert.deepEqual(exit.payment, {
    platformPaymentId: world.payments[0]?.platform_payment_id,
    status: 'succeeded',
    amountInCents: 12_345,
    initiatedAt: '2026-03-01T18:00:01.000Z',
    postedAt: '2026-03-01T18:00:02.000Z',
  });
  assert.equal(world.counts.pay, 1);
  await visit.close();
});

/** From the first screen to a payment that the platform has. */
async function pay(visit: Visit): Promise<void> {
  await visit.press('Continue');
  await visit.press('Pay $123.45');
}

test('a double click on the pay button, and a second one while sending, make one payment [PL3]', async () => {
  let answer = (): void => {};
  const held = new Promise<undefined>((resolve) => (answer = () => resolve(undefined)));
  const world = rig.flow.world({ plan: { pay: () => held } });
  const visit = await rig.visit(world);
  await visit.start();
  await visit.press('Continue');
  await visit.frame.getByRole('button', { name: 'Pay $123.45' }).dblclick();
  await visit.frame.getByRole('button', { name: 'Sending…' }).click({ force: true });
  await visit.frame.getByRole('button', { name: 'Sending…' }).press('Enter');
  answer();
  await visit.title('Paid. Thank you!');
  assert.equal(world.counts.pay, 1);
  assert.equal(world.payments.length, 1);
  await visit.close();
});

test('a session that ends while the answer to a confirm is lost finds that payment', async () => {
  const world = rig.flow.world({
    outcome: [],
    plan: {
      pay: (count) => {
        if (count === 1) return 'lost_answer';
        world.endSessions();
        return 'SESSION_EXPIRED';
      },
    },
  });
  const visit = await rig.visit(world, { expect: /401|ERR_/ });
  await visit.start();
  await pay(visit);
  await visit.title('Your payment is on its way');
  assert.equal(world.payments.length, 1);
  assert.equal(world.counts.pay, 2);
  await visit.close();
});

test('a customer who is warned that the page will close can stay', async () => {
  const world = rig.flow.world({ sessionMs: 100_000 });
  const visit = await rig.visit(world);
  await visit.start();
  await visit.frame
    .getByText(/^This page closes at/)
    .first()
    .waitFor();
  world.sessionMs = 3_600_000;
  await visit.press('Stay');
  await visit.frame.getByRole('button', { name: 'Stay' }).waitFor({ state: 'detached' });
  assert.equal(world.sessions.size, 2);
  await visit.title('Your bill from Acme Water');
  await visit.close();
});

test('a reload of the page and a second tab open on the payment that is processing', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await visit.title('Your payment is on its way');

  await visit.page.reload();
  await visit.page.waitForFunction(() => 'siteReady' in window);
  assert.equal(await visit.start(), 'mounted');
  await visit.title('Your payment is on its way');
  const second = await rig.visit(world);
  assert.equal(await second.start(), 'mounted');
  await second.title('Your payment is on its way');

  world.change(succeeds[0]!);
  world.change(succeeds[1]!);
  await visit.title('Paid. Thank you!');
  await second.title('Paid. Thank you!');
  assert.equal(world.payments.length, 1);
  await visit.close();
  await second.close();
});

test('a frame that is loaded again, without its page, opens on the payment', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await visit.title('Your payment is on its way');
  const frame = visit.page.frames().find((one) => one.url().startsWith(rig.flow.payOrigin));
  await frame?.evaluate(() => location.reload());
  await until(() => world.counts.exchange === 2);
  await visit.title('Your payment is on its way');
  assert.equal(world.payments.length, 1);
  await visit.close();
});

test('a confirm whose answer is lost, then a platform that is down, end in one payment', async () => {
  const world = rig.flow.world({
    plan: {
      // The browser itself sends a request again when a kept connection was cut: one cut more than it hides, and no more, because the
      // page waits longer each time.
      pay: (count) =>
        count === 1
          ? 'lost_answer'
          : count <= 3
            ? 'cut'
            : count === 4
              ? 'SERVICE_UNAVAILABLE'
              : undefined,
    },
  });
  const visit = await rig.visit(world, { expect: /503|ERR_/ });
  await visit.start();
  await pay(visit);
  await visit.frame.getByText('you will not be charged twice').first().waitFor();
  await visit.title('Paid. Thank you!');
  assert.equal(world.counts.pay, 5);
  assert.equal(world.payments.length, 1);
  await visit.close();
});

test('a network that goes while the payment is processing leaves it processing, and is noticed when back', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world, { expect: /ERR_INTERNET_DISCONNECTED/ });
  await visit.start();
  await pay(visit);
  await visit.title('Your payment is on its way');
  await visit.page.context().setOffline(true);
  await visit.frame.locator('.notice', { hasText: 'Connection lost' }).waitFor();
  world.change(succeeds[0]!);
  world.change(succeeds[1]!);
  await visit.title('Your payment is on its way');
  await visit.page.context().setOffline(false);
  await visit.title('Paid. Thank you!');
  assert.equal(await visit.frame.locator('.notice').count(), 0);
  await visit.close();
});

test('a customer who is offline when it opens is told so, and need do nothing when back', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world, { expect: /ERR_INTERNET_DISCONNECTED/ });
  let connected = false;
  await visit.page.route('**/v1/flow/session', (route) =>
    connected ? route.continue() : route.abort('internetdisconnected'),
  );
  const mounted = visit.start();
  await visit.title('The connection is lost');
  assert.equal(await mounted, 'mounted');
  connected = true;
  await visit.title('Your bill from Acme Water');
  const codes = values(await visit.heard(), 'error').map((e) => (e as { code: string }).code);
  assert.deepEqual(codes, ['network_lost']);
  await visit.close();
});

test('a session that ends where no other can be had says that nothing is lost', async () => {
  const world = rig.flow.world({
    outcome: [],
    plan: { token: (count) => (count > 1 ? 'INTERNAL_ERROR' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /401|500/ });
  await visit.start();
  await visit.press('Continue');
  world.endSessions();
  await visit.press('Pay $123.45');
  await visit.title('This page has been open for a long time');
  assert.equal(world.payments.length, 0);
  await visit.close();
});

test('a reason with markup in it is shown as text, and does nothing', async () => {
  const reason =
    '<img src=x onerror=alert(1)>\u202Eevil\u0007 <script>alert(2)</script> & call us ' +
    'x'.repeat(900);
  const world = rig.flow.world({
    billerName: 'Acme <b>Water</b>',
    outcome: [
      ...succeeds.slice(0, 1),
      { status: 'failed', progress: 'ended', failure_reason: reason },
    ],
  });
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await visit.title('The payment did not go through');
  const shown = await visit.frame.locator('blockquote').innerText();
  assert.ok(shown.startsWith('<img src=x onerror=alert(1)> evil <script>alert(2)</script> & call'));
  assert.ok(shown.length <= 500, String(shown.length));
  assert.equal(await visit.frame.locator('main img, main script, main b').count(), 0);
  await visit.frame.getByText('Acme <b>Water</b> says:').waitFor();
  const [, , last] = values(await visit.heard(), 'payment') as { failureReason?: string }[];
  assert.equal(last?.failureReason, shown);
  await visit.close();
});

test('after a failed payment another can be made, and takes the place of the first', async () => {
  const world = rig.flow.world({
    outcome: [{ status: 'failed', progress: 'ended', failure_reason: 'Please try later' }],
  });
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await visit.title('The payment did not go through');
  world.outcome = succeeds;
  await visit.press('Try again');
  await visit.title('Your bill from Acme Water');
  await pay(visit);
  await visit.title('Paid. Thank you!');
  assert.equal(world.payments.length, 2);
  const bodies = world.seen.filter(({ path }) => path === '/v1/flow/payments').map((s) => s.body);
  assert.equal(JSON.parse(bodies[1]!).replaces, world.payments[0]?.platform_payment_id);
  await visit.close();
});

test('a duplicate payment offers no second try; a canceled one says so kindly', async () => {
  const ended = (change: object): object => ({ progress: 'ended', ...change });
  for (const [change, title, tries] of [
    [{ status: 'failed', failure_reason: 'Duplicate', duplicate: true }, /paid this already/, 0],
    [{ status: 'canceled' }, /was canceled/, 1],
  ] as const) {
    const world = rig.flow.world({ outcome: [ended(change)] });
    const visit = await rig.visit(world);
    await visit.start();
    await pay(visit);
    await visit.title(title);
    assert.equal(await visit.frame.getByRole('button', { name: 'Try again' }).count(), tries);
    const codes = values(await visit.heard(), 'error').map((e) => (e as { code: string }).code);
    assert.deepEqual(codes, tries === 0 ? ['duplicate_payment'] : []);
    await visit.close();
  }
});

test('the rules of the account hold before anything is sent, and the amount is read as typed', async () => {
  const world = rig.flow.world();
  world.bill = {
    ...world.bill,
    payment_rules: { min_amount_in_cents: 500, max_amount_in_cents: 200_000 },
  };
  const visit = await rig.visit(world);
  await visit.start();
  await visit.press('Pay another amount');
  const field = visit.frame.getByRole('textbox', { name: 'Amount in US dollars' });
  for (const [typed, problem] of [
    ['', 'Enter an amount, for example'],
    ['ten', 'Enter an amount in dollars and cents'],
    ['4.99', 'Enter $5.00 or more.'],
    ['2,000.01', 'Enter $2,000.00 or less.'],
    ['-20', 'Enter an amount in dollars and cents'],
  ] as const) {
    await field.fill(typed);
    await visit.press('Continue');
    await visit.frame.locator('#amount-problem', { hasText: problem }).waitFor();
    assert.equal(await field.getAttribute('aria-invalid'), 'true');
    assert.match((await field.getAttribute('aria-describedby')) ?? '', /amount-problem/);
    assert.equal(await field.evaluate((input) => input === document.activeElement), true);
  }
  assert.equal(world.counts.pay, 0);
  await field.fill('1,234.50');
  await visit.press('Continue');
  await visit.frame.getByText('$1,234.50 is far more than your bill of $123.45.').waitFor();
  await visit.press('Yes, pay $1,234.50');
  await visit.title('Check your payment');
  await visit.press('Pay $1,234.50');
  await visit.title('Paid. Thank you!');
  assert.equal(world.payments[0]?.amount_in_cents, 123_450);
  await visit.close();
});

test('an account without part payment shows no amount to choose', async () => {
  const world = rig.flow.world();
  world.bill = {
    ...world.bill,
    payment_rules: { min_amount_in_cents: 12_345, max_amount_in_cents: 12_345 },
  };
  const visit = await rig.visit(world);
  await visit.start();
  await visit.title('Your bill from Acme Water');
  assert.equal(await visit.frame.getByRole('button').count(), 1);
  await visit.press('Continue');
  await visit.press('Back');
  await visit.title('Your bill from Acme Water');
  await pay(visit);
  await visit.title('Paid. Thank you!');
  await visit.close();
});

test('a rule that changed since the page was opened is told at the field', async () => {
  const world = rig.flow.world({
    plan: { pay: (count) => (count === 1 ? 'AMOUNT_OUT_OF_RANGE' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /422/ });
  await visit.start();
  await visit.press('Continue');
  world.bill = { ...world.bill, payment_rules: { max_amount_in_cents: 10_000 } };
  await visit.press('Pay $123.45');
  await visit.frame.locator('#amount-problem', { hasText: 'Enter $100.00 or less.' }).waitFor();
  await visit.frame.getByRole('textbox').fill('100');
  await visit.press('Continue');
  await visit.press('Pay $100.00');
  await visit.title('Paid. Thank you!');
  const codes = values(await visit.heard(), 'error').map((e) => (e as { code: string }).code);
  assert.deepEqual(codes, ['amount_out_of_range']);
  await visit.close();
});

test('a biller that is out of reach for a moment costs a press of "Try again"', async () => {
  const world = rig.flow.world({
    plan: { read: (count) => (count <= 3 ? 'PARTNER_UNREACHABLE' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /503/ });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('We cannot reach the biller right now');
  await visit.frame.getByText('You have not been charged.').waitFor();
  const [error] = values(await visit.heard(), 'error');
  assert.deepEqual(error, {
    code: 'partner_unreachable',
    recoverable: true,
    requestId: 'request-4711',
    displayMessage: 'We cannot reach the biller right now',
  });
  await visit.press('Try again');
  await visit.title('Your bill from Acme Water');
  await visit.close();
});

test('the receipt can be printed, and kept as a page and as text', async () => {
  const world = rig.flow.world({
    more: {
      partner: { partner_id: 'acme', name: 'Acme Water', support_contact: 'help@acme.example' },
      receipt: { payer_name: 'Ada \u202ELovelace', mailed_to: 'a•••@example.com' },
    },
  });
  const visit = await rig.visit(world, { timezoneId: 'America/Chicago' });
  await visit.start();
  await pay(visit);
  await visit.title('Paid. Thank you!');
  await visit.frame.getByText('Ada Lovelace').waitFor();
  const files = [];
  for (const name of ['Save', 'Save as text']) {
    const [download] = await Promise.all([visit.page.waitForEvent('download'), visit.press(name)]);
    files.push({
      name: download.suggestedFilename(),
      text: await readFile(await download.path(), 'utf8'),
    });
  }
  const id = world.payments[0]?.platform_payment_id;
  assert.deepEqual(
    files.map(({ name }) => name),
    ['html', 'txt'].map(
      (type) =>
        `receipt-${String(id).replaceAll('-', '').toUpperCase().slice(-8, -4)}-${String(id).replaceAll('-', '').toUpperCase().slice(-4)}.${type}`,
    ),
  );
  for (const { text } of files) {
    for (const part of [
      '$123.45',
      'BP-7781',
      'Ada Lovelace',
      'help@acme.example',
      'a•••@example.com',
      'Test bank account',
      String(id),
      '••••4417',
      'Mar 1, 2026, 12:00 PM CST',
    ])
      assert.ok(text.includes(part), part);
  }
  assert.doesNotMatch(files[0]!.text, /<script|src=|https?:/);
  const frame = visit.page.frames().find((one) => one.url().startsWith(rig.flow.payOrigin));
  await frame?.evaluate(() => {
    window.print = () => document.body.setAttribute('data-printed', 'yes');
  });
  await visit.press('Print');
  await visit.frame.locator('[data-printed]').waitFor();
  await visit.page.emulateMedia({ media: 'print' });
  await visit.frame.getByRole('button', { name: 'Done' }).waitFor({ state: 'hidden' });
  await visit.frame.getByText('BP-7781').waitFor();
  await visit.close();
});

test('the first screen is there within a second of opening', async () => {
  const world = rig.flow.world();
  const visit = await rig.visit(world);
  // The fastest of three: what the page takes, without what else this machine was doing.
  const milliseconds = await visit.page.evaluate(
    async ([partner, frameOrigin]) => {
      const site = window as unknown as {
        start: (options: object) => Promise<string>;
        instance: { destroy: () => void };
      };
      const times = [];
      for (let round = 0; round < 3; round += 1) {
        const started = performance.now();
        await site.start({ partner, frameOrigin });
        times.push(performance.now() - started);
        site.instance.destroy();
      }
      return Math.min(...times);
    },
    [world.partner, rig.flow.payOrigin] as const,
  );
  assert.ok(milliseconds < 1_000, `${milliseconds} ms`);
  await visit.close();
});

test('the second tap of a double tap on "Continue" neither pays nor goes back; a later one does', async () => {
  const one = { funding_method: 'sandbox', label: 'Test bank account', sandbox: true };
  // What stands where "Continue" was: "Back" below one method, "Pay" below two.
  const two = [one, { ...one, funding_method: 'other', label: 'Other' }];
  // Fingers, of which not every browser counts the taps, and a mouse, of which every browser does.
  for (const [methods, under, press, then] of [
    [[one], 'Back', [1, 'touch'], 'Your bill from Acme Water'],
    [two, 'Pay $123.45', [2, 'mouse'], 'Paid. Thank you!'],
  ] as const) {
    const world = rig.flow.world({ fundingMethods: [...methods] });
    const visit = await rig.visit(world, { viewport: { width: 390, height: 844 } });
    await visit.start({ display: 'modal' });
    await visit.title('Your bill from Acme Water');
    // At times of the test's own: a slow machine would make two taps of a double tap.
    const tapAt = (name: string, at: number): Promise<void> =>
      visit.frame.locator('body').evaluate(
        (_, [label, timeStamp, kind]) => {
          const buttons = [...document.querySelectorAll('button')];
          const button = buttons.find(({ textContent }) => textContent === label);
          const [detail, pointerType] = kind;
          const at = { clientY: 500, bubbles: true, cancelable: true };
          const tap = new PointerEvent('click', { ...at, detail, pointerType });
          Object.defineProperty(tap, 'timeStamp', { value: timeStamp });
          button?.dispatchEvent(tap);
        },
        [name, at, press] as const,
      );
    await tapAt('Continue', 1_000);
    await visit.title('Check your payment');
    await tapAt(under, 1_650);
    await visit.title('Check your payment');
    assert.equal(world.counts.pay, 0);
    await tapAt(under, 1_750);
    await visit.title(then);
    assert.equal(world.counts.pay, under === 'Back' ? 0 : 1);
    await visit.close();
  }
});

test('a press of Pay that hangs is sent again as soon as the customer is back', async () => {
  const world = rig.flow.world({ plan: { pay: (count) => (count === 1 ? 'hang' : undefined) } });
  const visit = await rig.visit(world);
  await visit.start();
  await pay(visit);
  await until(() => world.counts.pay === 1);
  await visit.frame
    .locator('body')
    .evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await visit.title('Paid. Thank you!');
  assert.deepEqual([world.counts.pay, world.payments.length], [2, 1]);
  await visit.close();
});

test('a platform that fails for a moment while the page opens is asked again, unseen', async () => {
  const world = rig.flow.world({
    plan: { exchange: (count) => (count <= 2 ? 'INTERNAL_ERROR' : undefined) },
  });
  const visit = await rig.visit(world, { expect: /500/ });
  assert.equal(await visit.start(), 'mounted');
  await visit.title('Your bill from Acme Water');
  assert.deepEqual(values(await visit.heard(), 'error'), []);
  await visit.close();
});
