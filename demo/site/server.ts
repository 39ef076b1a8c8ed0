/**
 * The site of a demo biller, as its customers see it: an account page with a "Pay bill" button.
 *
 * It is what a partner's web engineer would write: a page with a strict content security policy, a backend that alone has the API
 * key, and one endpoint that returns a token to the page (S1, A1). It knows only the platform's public address.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import {
  platformRoutes,
  type Balance,
  type TokenReply,
  type TokenRequest,
} from '@duebridge/contract';
import { accountBody, escape, siteFooter, siteHeader } from './account-page.ts';

/** A customer of the biller, already signed in for the demo. */
export interface DemoAccount {
  readonly account_id: string;
  readonly biller_id?: string;
  readonly first_name: string;
  readonly last_name: string;
  readonly email: string;
  readonly phone_number: string;
  readonly address: TokenRequest['address'];
  /** What this account shows, in a few words. */
  readonly about?: string;
}

export interface DemoSiteOptions {
  /** 0 picks a free one. */
  readonly port: number;
  /** Default `localhost`. */
  readonly host?: string;
  /** The platform, as browsers and this server reach it. */
  readonly platformUrl: string;
  readonly clientId: string;
  readonly apiKey: string;
  readonly partnerId: string;
  readonly billerName: string;
  /** At least one; the first is shown first. */
  readonly accounts: readonly DemoAccount[];
  /** The amount now due in the biller's ledger; if absent or undefined, the page shows no amount. */
  readonly readBalance?: (account: DemoAccount) => Promise<Balance | undefined>;
  /** The SDK file that the pages pin; the platform's newest when absent. */
  readonly sdk?: SdkManifest['sdk'];
}

export interface DemoSite {
  readonly url: string;
  stop(): Promise<void>;
}

/** The part of the platform's SDK manifest that a script tag needs. */
interface SdkManifest {
  readonly sdk: { readonly file: string; readonly sri: string };
}

/** The page sends only an account id; a larger body is not from our page. */
const MAX_BODY = 1024;
/** A person waits for it; the platform answers well within its own 2 s (decision 7). */
const TOKEN_TIMEOUT_MS = 8_000;

const FILES: Readonly<Record<string, string>> = {
  '/style.css': 'text/css',
  '/account.js': 'text/javascript',
  '/options.js': 'text/javascript',
  '/shared.js': 'text/javascript',
};

/** Starts the site; rejects when the port is taken. The platform may come up later. */
export async function startDemoSite(options: DemoSiteOptions): Promise<DemoSite> {
  const { host = 'localhost', accounts } = options;
  const platform = new URL(options.platformUrl).origin;
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => {
      // The error may contain a key or a name, so the customer sees only a general message.
      if (response.headersSent) response.destroy();
      else reply(response, 502, 'text/plain', 'The payment service cannot be reached right now.');
    });
  });
  server.listen(options.port, host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const url = `http://${host}:${port}`;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', url);
    const account = accounts.find((one) => one.account_id === searchParams.get('account'));
    const type = FILES[pathname];
    if (type !== undefined) {
      return reply(response, 200, type, readFileSync(join(import.meta.dirname, pathname)));
    }
    switch (`${request.method} ${pathname}`) {
      case 'GET /':
        return page(response, 'account.js', await accountPage(options, account ?? accounts[0]));
      case 'GET /options':
        return page(response, 'options.js', optionsPage(options.billerName, accounts[0]));
      case 'GET /api/balance':
        return account ? balance(response, account) : reply(response, 404, 'text/plain', '');
      case 'POST /api/token':
        return token(request, response);
      default:
        return reply(response, 404, 'text/plain', 'There is no such page.');
    }
  }

  /** The one thing a partner's backend does for the SDK: a customer in, a token out. */
  async function token(request: IncomingMessage, response: ServerResponse): Promise<void> {
    // Only our own pages may call this; a request from another site has "cross-site" here.
    const from = request.headers['sec-fetch-site'];
    if (from !== undefined && from !== 'same-origin') return reply(response, 403, 'text/plain', '');
    const { account_id } = JSON.parse(await read(request)) as { account_id?: unknown };
    // In a real site this comes from the customer's own sign-in, never from the page.
    const account = accounts.find((one) => one.account_id === account_id);
    if (!account) return reply(response, 404, 'text/plain', 'There is no such account.');
    const created = await fetch(new URL(platformRoutes.create_token.path, platform), {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-client-id': options.clientId,
        'x-api-key': options.apiKey,
      },
      body: JSON.stringify(tokenRequest(account, await options.readBalance?.(account))),
      signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS),
    });
    if (!created.ok) return reply(response, 502, 'text/plain', `status ${created.status}`);
    const { token: secret } = (await created.json()) as TokenReply;
    reply(response, 200, 'application/json', JSON.stringify({ token: secret }));
  }

  async function page(response: ServerResponse, script: string, body: string): Promise<void> {
    const sdk = options.sdk ?? (await manifest(platform)).sdk;
    response.setHeader('content-security-policy', policy(platform, sdk));
    const html = document(options, `${platform}/sdk/v1/${sdk.file}`, sdk.sri, script, body);
    reply(response, 200, 'text/html', html);
  }

  async function balance(response: ServerResponse, account: DemoAccount): Promise<void> {
    const known = await options.readBalance?.(account);
    reply(response, 200, 'application/json', JSON.stringify(balanceText(known)));
  }

  return {
    url,
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** The customer of an account, as the platform is told. */
function tokenRequest(account: DemoAccount, known: Balance | undefined): TokenRequest {
  const { first_name, last_name, email, phone_number, address, account_id, biller_id } = account;
  return {
    first_name,
    last_name,
    email,
    phone_number,
    address,
    ...(known === undefined ? {} : { balance: known }),
    external_identifiers: { account_id, ...(biller_id === undefined ? {} : { biller_id }) },
  };
}

/** What a page of the site may load: its own files, the pinned SDK and the platform's frame. */
function policy(platform: string, { file }: SdkManifest['sdk']): string {
  return [
    "default-src 'none'",
    `script-src 'self' ${platform}/sdk/v1/${file}`,
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    `frame-src ${platform}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

function document(
  { partnerId, billerName }: Pick<DemoSiteOptions, 'partnerId' | 'billerName'>,
  sdk: string,
  sri: string,
  script: string,
  body: string,
): string {
  return `<!doctype html>
<html lang="en" data-partner="${escape(partnerId)}">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>${escape(billerName)}: your account</title>
    <link rel="icon" href="data:," />
    <link rel="stylesheet" href="/style.css" />
    <script src="${sdk}" integrity="${sri}" crossorigin="anonymous" defer></script>
    <script src="/${script}" type="module"></script>
  </head>
  <body>
    ${body}
  </body>
</html>`;
}

/** Read once per page view, so that a new version of the SDK is always used with its matching hash. */
async function manifest(platform: string): Promise<SdkManifest> {
  const answered = await fetch(`${platform}/sdk/v1/manifest.json`, {
    signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS),
  });
  if (!answered.ok) throw new Error(`SDK manifest: ${answered.status}`);
  return (await answered.json()) as SdkManifest;
}

/** The page of an account; without one, of a biller that has none. */
async function accountPage(
  options: DemoSiteOptions,
  account: DemoAccount | undefined,
): Promise<string> {
  const { billerName, accounts } = options;
  if (!account) return `${siteHeader(billerName)}<main><h1>No accounts</h1></main>`;
  const { first_name, last_name, account_id, address } = account;
  return accountBody({
    ...balanceText(await options.readBalance?.(account)),
    billerName,
    account_id,
    firstName: first_name,
    name: `${first_name} ${last_name}`,
    place: `${address.address_line_1}, ${address.city}, ${address.state} ${address.zip}`,
    others: accounts.map((one) => ({
      about: one.about ?? `${one.first_name} ${one.last_name}`,
      href: `/?account=${encodeURIComponent(one.account_id)}`,
      isThis: one === account,
    })),
  });
}

function optionsPage(billerName: string, account: DemoAccount | undefined): string {
  const choose = (name: string, label: string, values: readonly string[]): string =>
    `<label>${label} <select id="${name}">${values
      .map((value) => `<option>${value}</option>`)
      .join('')}</select></label>`;
  return `${siteHeader(billerName)}<main>
    <h1>More ways to show it</h1>
    <section class="card controls" data-account="${escape(account?.account_id ?? '')}">
      ${choose('display', 'Display', ['inline', 'modal'])}
      ${choose('theme', 'Theme', ['auto', 'light', 'dark'])}
      ${choose('accent', 'Accent', ['default', '#7a1fa2', '#0a7d55', '#c2410c'])}
      ${choose('locale', 'Language', ['en-US', 'es-US'])}
      <button id="open" type="button">Open</button>
      <button id="close" type="button" class="plain">Close</button>
      <p id="message" role="status"></p>
    </section>
    <section class="stage" id="stage" aria-label="The payment page, inline"></section>
    <section class="log"><h2>What the SDK said</h2><ol id="log"></ol></section></main>${siteFooter(billerName)}`;
}

function balanceText(balance: Balance | undefined): { amount: string; due: string } {
  const cents = balance?.amount_due_in_cents;
  if (cents === undefined) return { amount: '—', due: '' };
  const dollars = new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' });
  const date = new Intl.DateTimeFormat('en-US', { dateStyle: 'long', timeZone: 'UTC' });
  const due = balance?.due_date;
  return {
    amount: dollars.format(cents / 100),
    due: due === undefined || cents <= 0 ? '' : `Due ${date.format(new Date(`${due}T00:00:00Z`))}`,
  };
}

async function read(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) {
    body += String(chunk);
    if (body.length > MAX_BODY) throw new RangeError('body too long');
  }
  return body;
}

function reply(
  response: ServerResponse,
  status: number,
  type: string,
  body: string | Buffer,
): void {
  response.writeHead(status, {
    'content-type': `${type}; charset=utf-8`,
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
  });
  response.end(body);
}
