/**
 * docs/funding.md: its example adapter drives payments of a small processor over HTTP, and its settings are accepted. Then
 * configuration errors, and processor behaviour that Stripe does not show.
 */
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { silentLog, systemClock, type Clock } from '@duebridge/runtime';
import { served, until } from '@duebridge/runtime/testing';
import { failed, newCustomer, posted, type Paid } from '../../test/paying.ts';
import { startTestPartner, startTestPlatform } from '../checkout/testing.ts';
import { readPlatformConfig } from '../config.ts';
import { sandbox } from './sandbox.ts';
import { openSealer } from '../partners/seal.ts';
import { startPlatform } from '../server.ts';
import type { FundingAdapter } from './adapter.ts';
import { openAdapters } from './configured.ts';
import { Funds } from './funds.ts';

const page = 'funding.md';
const guide = await readFile(new URL(`../../../../docs/${page}`, import.meta.url), 'utf8');
const blocks = (language: string): string[] =>
  [...guide.matchAll(new RegExp(`^ *\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, 'gm'))].map(
    ([, text = '']) => text,
  );

const folder = await mkdtemp(join(tmpdir(), 'duebridge-funding-'));
after(() => rm(folder, { recursive: true }));
const example = join(folder, 'acme-pay.ts');
await writeFile(example, blocks('ts')[0] ?? '');

/** The processor of the example: it keeps holds by id, and applies every call once per idempotency key. */
const holds = new Map<string, { id: string; state: string; url: string; amount: number }>();
const done = new Map<string, number>();
const returns = new Set<unknown>();
const processor = createServer((request, response) => {
  void (async () => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const key = String(request.headers['idempotency-key']);
    const [, , id = '', act = ''] = (request.url ?? '').split('/');
    if (request.method === 'POST') done.set(key, (done.get(key) ?? 0) + 1);
    if (id === '') {
      const { amount_in_cents: amount, return_url } = JSON.parse(text) as {
        amount_in_cents: number;
        return_url: unknown;
      };
      returns.add(return_url);
      const made = key.replace(':create', '');
      const url = `https://acme-pay.example/approve/${made}`;
      holds.set(made, holds.get(made) ?? { id: made, state: 'open', url, amount });
      response.end(JSON.stringify(holds.get(made)));
      return;
    }
    const hold = holds.get(id);
    if (hold !== undefined) {
      if (act === 'capture' && hold.state === 'held') hold.state = 'taken';
      if (act === 'release' && hold.state !== 'taken') hold.state = 'ended';
      if (act === 'refund') hold.state = 'refunded';
    }
    response.writeHead(hold === undefined ? 404 : 200).end(JSON.stringify(hold ?? {}));
  })();
});
process.env['ACME_PAY_URL'] = await served({ after }, processor);
process.env['ACME_PAY_KEY'] = 'acme-pay-key';

/** A processor whose answers the test chooses and whose calls it records. */
const asked: string[] = [];
const scripted: FundingAdapter = {
  name: 'scripted',
  methods: () => [{ funding_method: 'scripted', label: 'Scripted', sandbox: false }],
  prepare: ({ platform_payment_id }) => Promise.resolve(`ref-${platform_payment_id}`),
  authorize: () => Promise.resolve({ kind: 'declined', reason: 'No.' }),
  capture: () => Promise.reject(new Error('never authorized')),
  void({ reference }) {
    asked.push(`void ${reference}`);
    return Promise.resolve('captured');
  },
  refund({ reference }) {
    asked.push(`refund ${reference}`);
    return Promise.resolve();
  },
  readEvent: ({ body }) => Promise.resolve(JSON.parse(body.toString()) as never),
};

const SEAL_KEY = Buffer.alloc(32, 9).toString('base64');
const partner = await startTestPartner({ after });
const platform = await startTestPlatform(
  { after },
  {
    funding: [example],
    fundingAdapters: [scripted],
    publicUrl: 'https://pay.example.com',
    sealKey: SEAL_KEY,
  },
);
const biller = await platform.register(partner, { mode: 'live' });
const credentials = await platform.credentials(biller.partner_id);

const pay = async (ending: object, funding_method: string): Promise<Paid> => {
  const customer = await newCustomer({ platform, partner, credentials }, ending);
  return customer.pay({ amount_in_cents: 4_200, funding_method });
};
const stateOf = ({ id }: Paid): string | undefined => holds.get(id)?.state;
const becomes = (payment: Paid, state: string) =>
  until(`the hold is ${state}`, () => stateOf(payment) === state);

/** The port over the same rows with other adapters. */
const opened = (adapters: readonly FundingAdapter[], clock: Clock = systemClock): Funds =>
  new Funds({
    database: platform.database,
    sealer: openSealer(SEAL_KEY),
    clock,
    log: silentLog,
    adapters,
  });

test('the adapter of the guide sends a customer to approve and back, and takes the funds once', async () => {
  const payment = await pay(posted(), 'acme_wallet');
  const url = `https://acme-pay.example/approve/${payment.id}`;
  assert.deepEqual(await payment.asked(), { kind: 'redirect', url });
  assert.deepEqual([...returns], ['https://pay.example.com/flow/return']);
  const back = await platform.call('GET', '/flow/return');
  assert.match(back.text, /close this window/);
  assert.equal(holds.get(payment.id)?.amount, 4_200);
  assert.ok(!partner.payments.has(payment.id), 'nothing is sent before the funds are held');
  holds.get(payment.id)!.state = 'held';
  await becomes(payment, 'taken');
  assert.equal((await payment.read()).status, 'succeeded');
  assert.equal(done.get(`${payment.id}:create`), 1);
});

test('a customer who refuses at the processor pays nothing, and funds taken immediately are refunded', async () => {
  const refused = await pay(posted(), 'acme_wallet');
  await becomes(refused, 'open');
  holds.get(refused.id)!.state = 'ended';
  assert.equal((await refused.ended()).failure_reason, 'The funding method was declined.');
  const sale = await pay(failed, 'acme_wallet');
  await becomes(sale, 'open');
  // This processor captures instead of holding.
  holds.get(sale.id)!.state = 'taken';
  await becomes(sale, 'refunded');
  assert.equal((await sale.read()).status, 'failed');
  assert.equal(done.get(`${sale.id}:refund`), 1);
});

test('a processor that reports late that it took funds of a failed payment must return them, once', async () => {
  const payment = await pay(posted(), 'scripted');
  assert.equal((await payment.ended()).status, 'failed');
  const event = { event_id: 'late-1', platform_payment_id: payment.id, kind: 'taken' };
  for (const applied of [true, false]) {
    const reply = await platform.call('POST', '/v1/funding/scripted/events', {
      raw: JSON.stringify(event),
    });
    assert.deepEqual(reply.body, { applied });
  }
  const funds = opened([scripted]);
  await funds.sweep();
  await funds.sweep();
  assert.deepEqual(asked, [`void ref-${payment.id}`, `refund ref-${payment.id}`]);
});

const acme = { ...scripted, name: 'acme_pay', methods: () => [] };
const orderOf = ({ id }: Paid) => ({
  platform_payment_id: id,
  funding_method: 'acme_wallet',
  amount_in_cents: 4_200,
});
const call = { signal: new AbortController().signal };

test('a method that is offered no more, or whose adapter is gone, is never taken for the sandbox: its funds are still taken, or wait [PL7]', async () => {
  const payment = await pay(posted(), 'acme_wallet');
  const order = orderOf(payment);
  await payment.asked();
  const [gone, stopped] = [opened([sandbox]), opened([sandbox, acme])];
  for (const funds of [gone, stopped]) {
    // Any other would let the engine settle it and ask nobody for the money.
    assert.equal(funds.collection(order.funding_method), 'reserved');
    assert.equal((await funds.actionOf(order))?.kind, 'redirect', 'the customer can still act');
  }
  await assert.rejects(gone.capture(order, call), /acme_pay is not configured/);
  holds.get(payment.id)!.state = 'held';
  await becomes(payment, 'taken');
  assert.equal((await payment.read()).status, 'succeeded');
});

test('a step of the wall clock during an approval ends it neither early nor late [EE7]', async () => {
  const payment = await pay(posted(), 'acme_wallet');
  await payment.asked();
  for (const stepMs of [7_200_000, -7_200_000]) {
    let [wall, monotonic] = [Date.now(), 0];
    const authorize = () => Promise.reject(new Error('it is read'));
    const clock = { ...systemClock, now: () => wall, monotonic: () => monotonic };
    const funds = opened([{ ...acme, authorize }], clock);
    wall += stepMs;
    const before = await funds.authorize(orderOf(payment), call);
    assert.equal(before.kind, 'waits', 'not declined as late');
    wall += 60_000;
    monotonic += 60_000;
    await assert.rejects(funds.authorize(orderOf(payment), call), /it is read/, 'a minute later');
  }
});

/** The scripted adapter, whose method has these parts instead. */
function offering(change: Readonly<Record<string, unknown>>): FundingAdapter {
  return {
    ...scripted,
    methods: () => scripted.methods().map((method) => ({ ...method, ...change })),
  };
}

test('the guide’s settings are accepted, and wrong ones are reported in one sentence', async () => {
  const [live = '', another = ''] = blocks('sh');
  const env = (text: string): Record<string, string> =>
    Object.fromEntries(
      [...text.matchAll(/^ *(\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]),
    );
  const key = join(folder, 'key');
  const hook = join(folder, 'hook');
  await writeFile(key, 'sk_test_0123456789\n');
  await writeFile(hook, 'whsec_0123456789\n');
  const stripe = {
    ...env(live),
    DUEBRIDGE_STRIPE_SECRET_KEY_FILE: key,
    DUEBRIDGE_STRIPE_WEBHOOK_SECRET_FILE: hook,
  };
  const { adapters, offersSandbox } = await openAdapters(readPlatformConfig(stripe));
  assert.equal(offersSandbox, false, 'the sandbox is offered where it is named');
  assert.deepEqual(
    adapters.flatMap((adapter) => adapter.methods().map((method) => method.funding_method)),
    ['stripe_card', 'stripe_us_bank_account'],
  );
  const none = readPlatformConfig({ ...stripe, DUEBRIDGE_STRIPE_METHODS: 'none' });
  const [stopped] = (await openAdapters(none)).adapters;
  assert.deepEqual([stopped?.name, stopped?.methods()], ['stripe', []]);
  const both = readPlatformConfig({ ...stripe, ...env(another) });
  assert.deepEqual(both.funding, ['stripe', './acme-pay.ts']);
  assert.equal(both.publicUrl, 'https://pay.example.com');

  const empty = join(folder, 'empty.ts');
  await writeFile(empty, 'export default { name: "empty" };\n');
  for (const [config, says] of [
    [{ funding: ['stripe'] }, /DUEBRIDGE_STRIPE_SECRET_KEY/],
    [{ funding: ['paypal'] }, /names paypal/],
    [{ funding: [join(folder, 'nowhere.ts')] }, /cannot be loaded/],
    [{ funding: [empty] }, /is not a funding adapter/],
    [{ fundingAdapters: [scripted, scripted] }, /two funding adapters have scripted/],
    [{ fundingAdapters: [{ ...scripted, name: 'sandbox' }] }, /is named "sandbox"/],
    [
      { fundingAdapters: [{ ...scripted, methods: (() => Promise.resolve([])) as never }] },
      /methods\(\) of the funding adapter scripted must return an array/,
    ],
    ...(
      [
        // As a module in JavaScript may leave it: it would never be offered.
        [
          { sandbox: undefined },
          /method "scripted" of the funding adapter scripted .* sandbox must/,
        ],
        [{ label: undefined }, /label must be string/],
        [{ label: ' ' }, /label must not be blank/],
        [{ funding_method: undefined }, /method undefined of .* funding_method must/],
        [{ funding_method: 'a/b' }, /method "a\/b" of .* funding_method must be 1 to 64/],
        [{ min_amount_in_cents: 1.5 }, /min_amount_in_cents must be a whole number/],
        [{ max_amount_in_cents: 0 }, /max_amount_in_cents must/],
        [
          { min_amount_in_cents: 200, max_amount_in_cents: 100 },
          /200 is above max_amount_in_cents 100/,
        ],
        [{ asks: true }, /asks for details, and the adapter has no page/],
        [{ authorization_text: { fr: 'J’autorise' } }, /authorization_text.en is required/],
      ] as const
    ).map(([change, says]) => [{ fundingAdapters: [offering(change)] }, says] as const),
  ] as const) {
    await assert.rejects(openAdapters(config), { name: 'ConfigurationError', message: says });
  }
  // Said before the database is asked for, which would be migrated to a version that then does not start.
  const secret = Buffer.alloc(32, 7).toString('base64');
  const nowhere = {
    databaseUrl: 'postgres://127.0.0.1:1/nowhere',
    dataDirectory: folder,
    sealKey: secret,
    keyPepper: secret,
    adminKey: 'the admin key of the test, long enough',
    log: silentLog,
  };
  for (const [config, says] of [
    [{ funding: ['paypal'] }, /names paypal/],
    [{}, /database/],
  ] as const) {
    await assert.rejects(startPlatform({ ...nowhere, ...config }), says);
  }
  for (const [change, says] of [
    [{ DUEBRIDGE_STRIPE_PUBLISHABLE_KEY: 'pk_live_1' }, /one of the Stripe keys is for test mode/],
    [{ DUEBRIDGE_STRIPE_PUBLISHABLE_KEY: 'sk_test_1' }, /must begin with pk_/],
    [{ DUEBRIDGE_STRIPE_PUBLISHABLE_KEY: '' }, /Stripe is only partly configured/],
    [
      { DUEBRIDGE_SMTP_URL: 'smtp://127.0.0.1:1' },
      /Mail .* set DUEBRIDGE_SMTP_URL and DUEBRIDGE_MAIL_FROM/,
    ],
    [{ DUEBRIDGE_STRIPE_METHODS: 'card,klarna' }, /must be some of card, us_bank_account/],
    [{ DUEBRIDGE_STRIPE_METHODS: 'us_bank_account,wallet' }, /must name card beside wallet/],
  ] as const) {
    assert.throws(() => readPlatformConfig({ ...stripe, ...change }), says);
  }
});
