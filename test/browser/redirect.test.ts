/**
 * The whole tab goes to the payment page and comes back (docs/redirect.md, decision 115): the guide's own files, a real platform and
 * a real partner. Then what a stranger may try with the result.
 */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import type { Page } from 'playwright-core';
import { extractText } from 'unpdf';
import type { FlowResult, FlowReturn, FlowSessionGrant } from '@duebridge/contract';
import { freePort } from '@duebridge/runtime/testing';
import { around } from '../support/around.ts';
import { BothSides } from '../support/both-sides.ts';
import { call, createToken, type Client } from '../support/customer.ts';
import { startBiller } from './biller.ts';
import { until, useRig } from './rig.ts';

const root = join(import.meta.dirname, '../..');
const guide = readFileSync(join(root, 'docs', 'redirect.md'), 'utf8');
const rig = useRig();
const sides = new BothSides();
/** A bill and a site for each visit. */
const ACCOUNTS = ['A-1', 'A-2'];

let client: Client;
let folder: string;
let readResult: (
  jwt: string,
  awaited: { platform: string; partner: string; token_sha256: string },
) => Promise<FlowResult>;
const sites: ChildProcess[] = [];
const ports: number[] = [];

around(
  async () => {
    folder = mkdtempSync(join(tmpdir(), 'duebridge-redirect-'));
    const blocks = [...guide.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text);
    ['result.mjs', 'server.mjs', 'pay.js'].forEach((name, index) =>
      writeFileSync(join(folder, name), blocks[index] ?? ''),
    );
    ({ readResult } = (await import(pathToFileURL(join(folder, 'result.mjs')).href)) as {
      readResult: typeof readResult;
    });
    for (const _ of ACCOUNTS) ports.push(await freePort());
    const due = Object.fromEntries([...ACCOUNTS, 'A-99'].map((account) => [account, '42.42']));
    ({ client } = await startBiller(sides, rig.dist, due, ports));
  },
  async () => {
    for (const site of sites) {
      if (site.exitCode !== null || site.pid === undefined) continue;
      site.kill();
      await once(site, 'exit');
    }
    await sides.stop();
    rmSync(folder, { recursive: true, force: true });
  },
);

/** Starts the guide's site for a bill of its own; gives its address. */
async function startSite(): Promise<string> {
  const index = sites.length;
  const site = spawn(process.execPath, ['server.mjs'], {
    cwd: folder,
    env: {
      PLATFORM_URL: client.platformUrl,
      PARTNER_ID: 'acme',
      CLIENT_ID: client.client_id,
      API_KEY: client.api_key,
      ACCOUNT_ID: ACCOUNTS[index],
      PORT: String(ports[index]),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  sites.push(site);
  assert.ok(site.stdout);
  // Rejects when the process cannot be started; never waits for one that says nothing.
  await once(site.stdout, 'data', { signal: AbortSignal.timeout(120_000) });
  return `http://localhost:${ports[index]}`;
}

const titled = (page: Page, name: string): Promise<void> =>
  page.getByRole('heading', { level: 1, name, exact: true }).waitFor();

/** From a site with a bill of its own to the payment page. */
async function leaves(page: Page): Promise<string> {
  const site = await startSite();
  await page.goto(`${site}/`);
  await page.locator('#pay').click();
  await titled(page, 'Your bill from Acme Water');
  return site;
}

test('a customer goes to the page, pays, and comes back with a result that verifies [S1]', async () => {
  const page = await rig.page();
  const site = await leaves(page);
  const address = new URL(page.url());
  assert.equal(address.origin, client.platformUrl);
  // The visit's name and nothing else: neither the token nor anything of the customer.
  assert.match(
    `${address.pathname}${address.search}${address.hash}`,
    /^\/flow\/v1\/acme\?visit=[\w-]{16}$/,
  );
  const kept = await page.evaluate(() => [
    localStorage.length,
    sessionStorage.length,
    document.cookie,
    document.documentElement.outerHTML.includes('dbt_'),
  ]);
  assert.deepEqual(kept, [0, 0, '', false]);

  // A reload sends no form and costs nothing: the bill is there again.
  await page.goto(address.href);
  await page.getByRole('button', { name: 'Pay $42.42' }).click();
  await titled(page, 'Paid. Thank you!');
  await isWholeOnPaper(page);
  await page.locator('.actions').getByRole('button', { name: 'Back to Acme Water' }).click();
  await titled(page, 'Thank you. Your payment is posted.');
  const returned = page.url();
  assert.ok(returned.startsWith(`${site}/paid?duebridge_result=`), returned);

  // Shown again, by a reload or by whoever finds the address, it is not taken for another payment.
  await page.goto(returned);
  await titled(page, 'We are looking up your payment.');
  // The payment page of a visit that is over shows what was paid, and cannot pay again.
  await page.goto(address.href);
  await titled(page, 'Paid. Thank you!');
});

/** The printed receipt is one page with all that a receipt needs, and with nothing that only a screen can use. */
async function isWholeOnPaper(page: Page): Promise<void> {
  const paper = new Uint8Array(await page.pdf({ format: 'letter' }));
  const { totalPages, text } = await extractText(paper, { mergePages: true });
  assert.equal(totalPages, 1);
  const at = String.raw`[A-Z]\w+ \d+, \d{4}, [\d:]+ [AP]M \S+`;
  const whole = [
    String.raw`Test mode: no money moves Acme Water Paid\. Thank you! \$42\.42 to Acme Water, account •+\d+`,
    String.raw`Reference [\dA-F]{4}-[\dA-F]{4} To Acme Water`,
    String.raw`Account •+\d+`,
    String.raw`Amount \$42\.42 Payment method Sandbox bank account`,
    `Received ${at} Added to your account ${at}`,
    String.raw`Reference [\dA-F]{4}-[\dA-F]{4} Full reference [\da-f-]{36} Reference at Acme Water [\da-f-]{36}`,
    String.raw`Questions\? Contact Acme Water: \+1 555 0100`,
  ];
  // Where lines break is the engine's own matter.
  assert.match(text.replaceAll(/\s+/g, ' '), new RegExp(`^${whole.join(' ')}$`));
}

test('the browser’s Back shows the site with a button that works, and a biller’s app may take the way back', async () => {
  const page = await rig.page();
  await leaves(page);
  await page.goBack();
  await titled(page, 'Your bill');
  await page.locator('#pay').click();
  await titled(page, 'Your bill from Acme Water');
  // The app takes the address, and leaves the tab where it is.
  await page.evaluate(() => {
    (window as unknown as { navigation: EventTarget }).navigation.addEventListener(
      'navigate',
      (event) => {
        event.preventDefault();
        document.body.dataset['taken'] = 'yes';
      },
      { once: true },
    );
  });
  await page.locator('header .close').click();
  await page.locator('body[data-taken]').waitFor();
  await page.evaluate(() => void document.dispatchEvent(new Event('visibilitychange')));
  await page.locator('header .close').click();
  await titled(page, 'You have not paid.');
});

// What a stranger may try -----------------------------------------------------------------------------------------------------

/** A visit without a browser: a token, its session, and a way to ask for the result. */
async function openVisit(account: string): Promise<{
  token: string;
  token_sha256: string;
  pay(): Promise<void>;
  leave(change?: object): Promise<{ status: number; location: string; jwt: string }>;
}> {
  const made = await createToken(client, { account_id: account });
  assert.equal(made.status, 200);
  const { token } = made.body;
  const { body: grant } = await call<FlowSessionGrant>(
    'POST',
    `${client.platformUrl}/v1/flow/session`,
    { authorization: `Bearer ${token}` },
    {},
  );
  const headers = { authorization: `Bearer ${grant.session}` };
  return {
    token,
    token_sha256: createHash('sha256').update(token).digest('base64url'),
    async pay() {
      const paid = await call('POST', `${client.platformUrl}/v1/flow/payments`, headers, {
        amount_in_cents: 4_242,
        funding_method: 'sandbox_bank',
        platform_payment_id: grant.bill?.next_payment_id,
      });
      assert.equal(paid.status, 200);
    },
    async leave(change = {}) {
      const { status, body } = await call<FlowReturn>(
        'POST',
        `${client.platformUrl}/v1/flow/return`,
        headers,
        { return_url: `http://localhost:${ports[0]}/paid?order=7&x=%20#end`, ...change },
      );
      const location = body.location ?? '';
      const jwt = status === 200 ? new URL(location).searchParams.get('duebridge_result') : null;
      return { status, location, jwt: jwt ?? '' };
    },
  };
}
const awaited = (token_sha256: string): Parameters<typeof readResult>[1] => ({
  platform: client.platformUrl,
  partner: 'acme',
  token_sha256,
});

test('a result that was altered, forged, is late or is another’s is refused by the guide’s ten lines', async () => {
  const [mine, other] = [await openVisit('A-99'), await openVisit('A-99')];
  const { jwt, location } = await mine.leave();
  assert.match(location, /\/paid\?order=7&x=%20&duebridge_result=[\w.-]+#end$/);
  const result = await readResult(jwt, awaited(mine.token_sha256));
  assert.equal(result.status, 'none');
  assert.ok(result.exp - result.iat <= 600);

  const [head = '', claims = '', signature = ''] = jwt.split('.');
  const text = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const paid = text({ ...result, status: 'succeeded', amount_in_cents: 4_242 });
  const { privateKey } = generateKeyPairSync('ed25519');
  const signedByAnother = sign(null, Buffer.from(`${head}.${paid}`), privateKey).toString(
    'base64url',
  );
  const kid = (JSON.parse(Buffer.from(head, 'base64url').toString()) as { kid: string }).kid;
  for (const [why, forged] of [
    ['claims', `${head}.${paid}.${signature}`],
    ['signature', `${head}.${claims}.${signature.replace(/^./, (c) => (c === 'A' ? 'B' : 'A'))}`],
    ['another key', `${head}.${paid}.${signedByAnother}`],
    ['no algorithm', `${text({ alg: 'none', kid })}.${paid}.`],
    ['unknown key', `${text({ alg: 'EdDSA', kid: 'x' })}.${paid}.${signedByAnother}`],
    ['nothing', ''],
  ] as const) {
    await assert.rejects(readResult(forged, awaited(mine.token_sha256)), why);
  }
  // Replay: of another visit of the same customer, at another partner, and after its time.
  await assert.rejects(readResult(jwt, awaited(other.token_sha256)));
  await assert.rejects(readResult(jwt, { ...awaited(mine.token_sha256), partner: 'basin' }));
  const { now } = Date;
  Date.now = () => now() + 601_000;
  try {
    await assert.rejects(readResult(jwt, awaited(mine.token_sha256)));
  } finally {
    Date.now = now;
  }
});

test('a payment that has not ended, or may exist, is never told as failed or as not made [EE9]', async () => {
  const visit = await openVisit('A-99');
  const read = async (change?: object): Promise<FlowResult> =>
    readResult((await visit.leave(change)).jwt, awaited(visit.token_sha256));
  assert.equal((await read({ confirm_unanswered: true })).status, 'unknown');
  await visit.pay();
  const first = await read();
  assert.ok(first.status === 'processing' || first.status === 'succeeded', first.status);
  await until(async () => (await read()).status === 'succeeded');
  const { amount_in_cents, platform_payment_id } = await read();
  assert.equal(amount_in_cents, 4_242);
  assert.ok(platform_payment_id);
});

test('customers come from registered origins, and are sent to no others', async () => {
  const visit = await openVisit('A-99');
  for (const [return_url, status] of [
    ['https://evil.example/paid', 403],
    [`http://localhost.evil.example:${ports[0]}/`, 403],
    ['javascript:alert(1)', 400],
    [`blob:http://localhost:${ports[0]}/1`, 400],
    [`http://user:secret@localhost:${ports[0]}/`, 400],
    [`http://localhost:${ports[0]}/?duebridge_result=mine`, 400],
    ['/paid', 400],
  ] as const) {
    assert.equal((await visit.leave({ return_url })).status, status, return_url);
  }

  const [port = 0] = ports;
  const fields = { token: visit.token, return_url: `http://localhost:${port}/paid` };
  const post = (origin: string | undefined, change: object = {}): Promise<Response> =>
    fetch(`${client.platformUrl}/flow/v1/acme`, {
      method: 'POST',
      redirect: 'manual',
      headers: origin === undefined ? {} : { origin },
      body: new URLSearchParams({ ...fields, ...change }),
    });
  const good = await post(`http://localhost:${port}`);
  assert.equal(good.status, 303);
  const cookie = good.headers.get('set-cookie') ?? '';
  assert.match(
    cookie,
    /^duebridge_visit_[\w-]{16}=.*; Path=\/flow\/v1\/acme; .*HttpOnly; SameSite=Lax$/,
  );
  assert.ok(!cookie.includes(visit.token));
  // A hidden origin ("null") is none: whoever hides it could send customers to a bill of their own.
  for (const origin of ['https://evil.example', 'null', undefined]) {
    const refused = await post(origin);
    assert.equal(refused.status, 403, origin);
    assert.equal(refused.headers.get('set-cookie'), null);
    assert.ok(!(await refused.text()).includes(visit.token));
  }
  const away = await post(`http://localhost:${port}`, { return_url: 'https://evil.example/' });
  assert.equal(away.status, 403);

  // The cookie of one visit does not open another, and nobody frames either.
  const at = new URL(good.headers.get('location') ?? '', `${client.platformUrl}/flow/v1/acme`);
  const [pair = ''] = cookie.split(';');
  const opened = await fetch(at, { headers: { cookie: pair } });
  assert.match(opened.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
  // Compressed beside what another may choose, its size could tell something of the token.
  assert.equal(opened.headers.get('content-encoding'), null);
  assert.ok((await opened.text()).includes(visit.token));
  const framed = await fetch(`${client.platformUrl}/flow/v1/acme`);
  assert.equal(framed.headers.get('content-encoding'), 'gzip');
  const { searchParams } = at;
  const otherId = String(searchParams.get('visit')).replace(/.$/, (last) =>
    last === '-' ? '_' : '-',
  );
  const renamed = pair.replace(/visit_[\w-]{16}/, `visit_${otherId}`);
  searchParams.set('visit', otherId);
  const stolen = await fetch(at, { headers: { cookie: renamed } });
  const page = await stolen.text();
  assert.ok(!page.includes(visit.token));
  assert.ok(page.includes('token_expired'));
});
