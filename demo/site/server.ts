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
import { text } from 'node:stream/consumers';
import {
  platformRoutes,
  type Balance,
  type TokenReply,
  type TokenRequest,
} from '@duebridge/contract';
import { accountBody, dollars, escape, optionsBody } from './account-page.ts';

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
  readonly sdk?: Sdk;
}

export interface DemoSite {
  readonly url: string;
  stop(): Promise<void>;
}

/** A file of the SDK as a script tag names it. */
interface Sdk {
  readonly file: string;
  readonly sri: string;
}

/** A person waits for it; the platform answers well within its own 2 s (decision 7). */
const TOKEN_TIMEOUT_MS = 8_000;

const FILES = ['/style.css', '/account.js', '/options.js', '/shared.js'];

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
    if (FILES.includes(pathname)) {
      const type = pathname.endsWith('.css') ? 'text/css' : 'text/javascript';
      return reply(response, 200, type, readFileSync(join(import.meta.dirname, pathname)));
    }
    switch (`${request.method} ${pathname}`) {
      case 'GET /':
        return page(response, 'account.js', await accountPage(options, account ?? accounts[0]));
      case 'GET /options':
        return page(response, 'options.js', optionsBody(options.billerName, accounts[0]));
      case 'GET /api/balance': {
        if (!account) return reply(response, 404, 'text/plain', '');
        const shown = balanceText(await options.readBalance?.(account));
        return reply(response, 200, 'application/json', JSON.stringify(shown));
      }
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
    const asked = JSON.parse(await text(request)) as { account_id?: unknown };
    // In a real site this comes from the customer's own sign-in, never from the page.
    const account = accounts.find((one) => one.account_id === asked.account_id);
    if (!account) return reply(response, 404, 'text/plain', 'There is no such account.');
    const { account_id, biller_id, about: _, ...customer } = account;
    const balance = await options.readBalance?.(account);
    const body: TokenRequest = {
      ...customer,
      ...(balance && { balance }),
      external_identifiers: { account_id, ...(biller_id !== undefined && { biller_id }) },
    };
    const created = await fetch(new URL(platformRoutes.create_token.path, platform), {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'x-client-id': options.clientId,
        'x-api-key': options.apiKey,
      },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(TOKEN_TIMEOUT_MS),
    });
    if (!created.ok) return reply(response, 502, 'text/plain', `status ${created.status}`);
    const { token: secret } = (await created.json()) as TokenReply;
    reply(response, 200, 'application/json', JSON.stringify({ token: secret }));
  }

  async function page(response: ServerResponse, script: string, body: string): Promise<void> {
    const sdk = options.sdk ?? (await newestSdk(platform));
    const source = `${platform}/sdk/v1/${sdk.file}`;
    // What a page of the site may load: its own files, the pinned SDK and the platform's frame.
    response.setHeader(
      'content-security-policy',
      `default-src 'none'; script-src 'self' ${source}; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-src ${platform}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`,
    );
    const html = `<!doctype html>
<html lang="en" data-partner="${escape(options.partnerId)}">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>${escape(options.billerName)}: your account</title>
    <link rel="icon" href="data:," />
    <link rel="stylesheet" href="/style.css" />
    <script src="${source}" integrity="${sdk.sri}" crossorigin="anonymous" defer></script>
    <script src="/${script}" type="module"></script>
  </head>
  <body>
    ${body}
  </body>
</html>`;
    reply(response, 200, 'text/html', html);
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

/** Read once per page view, so that a new version of the SDK is always used with its matching hash. */
async function newestSdk(platform: string): Promise<Sdk> {
  const signal = AbortSignal.timeout(TOKEN_TIMEOUT_MS);
  const answered = await fetch(`${platform}/sdk/v1/manifest.json`, { signal });
  if (!answered.ok) throw new Error(`SDK manifest: ${answered.status}`);
  return ((await answered.json()) as { sdk: Sdk }).sdk;
}

/** The page of an account; without one, of a biller that has none. */
async function accountPage(
  options: DemoSiteOptions,
  account: DemoAccount | undefined,
): Promise<string> {
  const { billerName, accounts } = options;
  if (!account) return '<main><h1>No accounts</h1></main>';
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

function balanceText(balance: Balance | undefined): { amount: string; due: string } {
  const cents = balance?.amount_due_in_cents;
  if (cents === undefined) return { amount: '—', due: '' };
  const date = new Intl.DateTimeFormat('en-US', { dateStyle: 'long', timeZone: 'UTC' });
  const due = balance?.due_date;
  return {
    amount: dollars(cents),
    due: due === undefined || cents <= 0 ? '' : `Due ${date.format(new Date(`${due}T00:00:00Z`))}`,
  };
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
