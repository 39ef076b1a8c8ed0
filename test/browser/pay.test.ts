/** The way from a token to a receipt, and what people and networks do on it. */
import assert from 'node:assert/strict';
import { gate, useRig, values } from './rig.ts';
import { succeeds } from './scripted-flow.ts';
import { inChromium, type EngineVisit, type InEngine } from './site-visit.ts';

const rig = useRig({ withChromium: false });

inChromium(
  rig,
  (inEngine) => {
    ways(inEngine);
    presses(inEngine);
    accidents(inEngine);
    endings(inEngine);
    amounts(inEngine);
  },
  { isWatched: true },
);

/** From the first screen to a payment that the platform has. */
async function sent(at: EngineVisit): Promise<void> {
  await at.press('Pay $123.45');
}

function ways(inEngine: InEngine): void {
  inEngine(
    'a customer pays a bill to the receipt, and the site hears of each step [S1]',
    async ({ flow, visit }) => {
      const world = flow.world({ outcome: [] });
      const at = await visit(world);
      assert.equal(await at.start(), 'mounted');
      await at.title('Your bill from Acme Water');
      await at.sees('$123.45');
      await at.sees('Due December 3, 2099');
      await at.press('Pay $123.45');
      await at.title('Your payment is on its way');
      world.change({
        progress: 'accepted',
        payment_id: 'BP-7781',
        initiated_at: '2026-03-01T18:00:01.000Z',
      });
      await at.sees('Acme Water has received it and is adding it to your account.');
      world.change({
        status: 'succeeded',
        progress: 'ended',
        posted_at: '2026-03-01T18:00:02.000Z',
      });
      await at.title('Paid. Thank you!');
      await at.sees('to Acme Water, account ••••4417');
      // All that a receipt needs is in sight on a phone, and the rest a press away.
      await at.tab.click('frame', 'summary');
      for (const part of ['BP-7781', 'Test bank account']) await at.sees(part);
      await at.tab.run('frame', () => {
        window.print = () => document.body.setAttribute('data-printed', 'yes');
      });
      await at.press('Print');
      assert.equal(await at.tab.run('frame', () => document.body.dataset['printed']), 'yes');
      await at.press('Done');
      await at.hears('exit');

      const heard = await at.heard();
      const names = values(heard, 'screen').map((value) => (value as { name: string }).name);
      assert.deepEqual(names, ['review', 'status', 'receipt']);
      assert.deepEqual(await at.statuses(), ['processing', 'processing', 'succeeded']);
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
    },
  );

  inEngine(
    'a customer pays a part of the bill and leaves by keyboard alone [S1]',
    async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      await at.tab.run('page', () => document.querySelector<HTMLElement>('#open')?.focus());
      await at.start();
      await at.title('Your bill from Acme Water');
      /** Presses Tab until the named button has the focus, and then Enter. */
      const takes = async (name: string): Promise<void> => {
        const isThere = (): Promise<boolean> =>
          at.tab.run('frame', (label) => document.activeElement?.textContent === label, name);
        for (let tabs = 0; tabs < 12 && !(await isThere()); tabs += 1) await at.tab.press('Tab');
        assert.ok(await isThere(), `Tab reaches ${name}`);
        await at.tab.press('Enter');
      };
      await takes('Change');
      await at.title('How much would you like to pay?');
      await at.tab.type('50');
      await at.tab.press('Enter');
      await at.title('Your bill from Acme Water');
      await takes('Pay $50.00');
      await at.title('Paid. Thank you!');
      await takes('Done');
      await at.hears('exit');
      assert.deepEqual(
        world.payments.map(({ amount_in_cents: cents }) => cents),
        [5_000],
      );
    },
  );

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
}

function presses(inEngine: InEngine): void {
  inEngine(
    'a double click on the pay button, and a second one while sending, make one payment [PL3]',
    async ({ flow, visit }) => {
      const { held, open } = gate();
      const world = flow.world({ plan: { pay: () => held } });
      const at = await visit(world);
      await at.start();
      await at.title('Your bill from Acme Water');
      await at.tab.run('frame', () => {
        const button = document.querySelector<HTMLButtonElement>('button.main');
        button?.click();
        button?.click();
      });
      await at.holds(
        'frame',
        () => document.querySelector('button.main')?.textContent === 'Sending…',
      );
      await at.tab.run('frame', () => {
        const button = document.querySelector<HTMLButtonElement>('button.main');
        button?.click();
        button?.focus();
      });
      await at.tab.press('Enter');
      open();
      await at.title('Paid. Thank you!');
      assert.equal(world.counts.pay, 1);
      assert.equal(world.payments.length, 1);
    },
  );

  // Fingers, of which not every browser counts the taps, and a mouse, of which every browser does. "Pay" is where "Continue" was.
  for (const [title, press] of [
    ['the second tap of a double tap on "Continue" does not pay; a later one does', [1, 'touch']],
    ['the second click of a double click on "Continue" does not pay either', [2, 'mouse']],
  ] as const)
    inEngine(title, async ({ flow, visit }) => {
      const world = flow.world();
      const at = await visit(world);
      await at.start({ display: 'modal' });
      await at.press('Change');
      await at.title('How much would you like to pay?');
      await at.tab.type('50');
      // At times of the test's own: a slow machine would make two taps of a double tap.
      const tapAt = (name: string, time: number): Promise<void> =>
        at.tab.run(
          'frame',
          (label, timeStamp, [detail, pointerType]) => {
            const buttons = [...document.querySelectorAll('button')];
            const button = buttons.find(({ textContent }) => textContent === label);
            const place = { clientY: 500, bubbles: true, cancelable: true };
            const tap = new PointerEvent('click', { ...place, detail, pointerType });
            Object.defineProperty(tap, 'timeStamp', { value: timeStamp });
            button?.dispatchEvent(tap);
          },
          name,
          time,
          press,
        );
      await tapAt('Continue', 1_000);
      await at.title('Your bill from Acme Water');
      await tapAt('Pay $50.00', 1_650);
      assert.equal(world.counts.pay, 0);
      await tapAt('Pay $50.00', 1_750);
      await at.title('Paid. Thank you!');
      await at.sees('Still due');
      assert.equal(world.counts.pay, 1);
    });
}

function accidents(inEngine: InEngine): void {
  inEngine(
    'a token that expired and a session that ended are replaced unseen',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { exchange: (count) => (count === 1 ? 'TOKEN_EXPIRED' : undefined) },
      });
      const at = await visit(world);
      assert.equal(await at.start(), 'mounted');
      world.endSessions();
      await at.press('Pay $123.45');
      await at.title('Paid. Thank you!');
      assert.equal(world.payments.length, 1);
      assert.deepEqual(values(await at.heard(), 'fetchToken'), ['initial', 'expired', 'expired']);
      assert.equal(world.sessions.size, 2);
      assert.deepEqual(values(await at.heard(), 'error'), []);
    },
  );

  inEngine(
    'a biller that is out of reach for a moment costs a press of "Try again"',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { read: (count) => (count <= 3 ? 'PARTNER_UNREACHABLE' : undefined) },
      });
      const at = await visit(world);
      assert.equal(await at.start(), 'mounted');
      await at.title('We cannot reach Acme Water right now');
      await at.sees('You have not been charged.');
      const [error] = await at.hears('error');
      assert.deepEqual(error, {
        code: 'partner_unreachable',
        recoverable: true,
        requestId: 'request-4711',
        displayMessage: 'We cannot reach Acme Water right now',
      });
      await at.press('Try again');
      await at.title('Your bill from Acme Water');
    },
  );
}

function endings(inEngine: InEngine): void {
  inEngine(
    'a reason with markup in it is shown as text, and does nothing; another payment can be made, in the place of the first',
    async ({ flow, visit }) => {
      const reason =
        '<img src=x onerror=alert(1)>\u202Eevil\u0007 <script>alert(2)</script> & call us ' +
        'x'.repeat(900);
      const world = flow.world({
        billerName: 'Acme <b>Water</b>',
        outcome: [
          ...succeeds.slice(0, 1),
          { status: 'failed', progress: 'ended', failure_reason: reason },
        ],
      });
      const at = await visit(world);
      await at.start();
      await sent(at);
      await at.title('The payment did not go through');
      const shown = await at.tab.run('frame', () => ({
        text: document.querySelector('blockquote')?.innerText ?? '',
        elements: document.querySelectorAll('main img, main script, main b').length,
      }));
      const start = '<img src=x onerror=alert(1)> evil <script>alert(2)</script> & call';
      assert.ok(shown.text.startsWith(start), shown.text);
      assert.ok(shown.text.length <= 500, String(shown.text.length));
      assert.equal(shown.elements, 0);
      await at.sees('Acme <b>Water</b> says:');
      const [, last] = await at.hears<{ failureReason?: string }>('payment', 2);
      assert.equal(last?.failureReason, shown.text);

      world.outcome = succeeds;
      await at.press('Try again');
      await at.title('Your bill from Acme <b>Water</b>');
      await at.pay();
      assert.equal(world.payments.length, 2);
    },
  );

  inEngine('a biller of an aggregator is shown with its own logo', async ({ flow, visit }) => {
    const biller = { biller_id: 'gas', name: 'Lakeside Gas', logo: 'lakeside.png' };
    const at = await visit(flow.world({ look: { logo: 'city.png' }, more: { biller } }));
    await at.start();
    await at.sees('Lakeside Gas');
    const shown = (): string => document.querySelector('img')?.getAttribute('src') ?? '';
    assert.equal(await at.tab.run('frame', shown), '../logos/lakeside.png');
  });

  inEngine('a duplicate payment offers no second try', async ({ flow, visit }) => {
    const change = { status: 'failed', failure_reason: 'Duplicate', failure: 'duplicate' } as const;
    const at = await visit(flow.world({ outcome: [{ progress: 'ended', ...change }] }));
    await at.start();
    await sent(at);
    await at.title('You may have paid this already');
    const buttons = await at.tab.run('frame', () =>
      [...document.querySelectorAll('button')].map(({ textContent }) => textContent),
    );
    assert.ok(!buttons.includes('Try again'), String(buttons));
    assert.deepEqual(await at.codes(1), ['duplicate_payment']);
  });
}

function amounts(inEngine: InEngine): void {
  /** Writes an amount over what the field holds. */
  const write = async (at: EngineVisit, amount: string): Promise<void> => {
    await at.tab.run('frame', () => {
      const input = document.querySelector('input');
      input?.focus();
      input?.select();
    });
    await at.tab.type(amount);
  };

  inEngine(
    'the rules of the account hold before anything is sent, and the amount is read as typed',
    async ({ flow, visit }) => {
      const world = flow.world();
      world.bill = {
        ...world.bill,
        payment_rules: { min_amount_in_cents: 500, max_amount_in_cents: 200_000 },
      };
      const at = await visit(world);
      await at.start();
      await at.press('Change');
      await at.title('How much would you like to pay?');
      await at.tab.click('frame', '#amount');
      for (const [typed, problem] of [
        ['4.99', 'Enter $5.00 or more.'],
        ['-20', 'Enter an amount in dollars and cents'],
      ] as const) {
        await write(at, typed);
        await at.press('Continue');
        await at.holds(
          'frame',
          (wanted) => {
            const input = document.querySelector('input');
            return (
              document.querySelector('#amount-help')?.textContent?.includes(wanted) === true &&
              input?.ariaInvalid === 'true' &&
              input.getAttribute('aria-describedby')?.includes('amount-help') === true &&
              input === document.activeElement
            );
          },
          problem,
        );
      }
      assert.equal(world.counts.pay, 0);
      // As the half of the world writes it.
      await write(at, '1234,5');
      await at.tab.press('Enter');
      await at.sees('$1,234.50 is far more than your bill of $123.45.');
      await at.press('Yes, pay $1,234.50');
      await at.press('Pay $1,234.50');
      await at.title('Paid. Thank you!');
      assert.equal(world.payments[0]?.amount_in_cents, 123_450);
    },
  );

  inEngine(
    'a rule that changed since the page was opened is told at the field',
    async ({ flow, visit }) => {
      const world = flow.world({
        plan: { pay: (count) => (count === 1 ? 'AMOUNT_OUT_OF_RANGE' : undefined) },
      });
      const at = await visit(world);
      await at.start();
      world.bill = { ...world.bill, payment_rules: { max_amount_in_cents: 10_000 } };
      await at.press('Pay $123.45');
      await at.sees('Enter $100.00 or less.');
      await write(at, '100');
      await at.press('Continue');
      await at.press('Pay $100.00');
      await at.title('Paid. Thank you!');
      assert.deepEqual(await at.codes(1), ['amount_out_of_range']);
    },
  );
}
