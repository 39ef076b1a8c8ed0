/**
 * The site of a demo biller, as its customers see it: an account page with a "Pay bill" button.
 *
 * It is what a partner's web engineer would write: a page with a strict content security policy, a backend that alone has the API
 * key, and one endpoint that returns a token to the page (S1, A1). It knows only the platform's public address.
 */
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import {
  formatCents,
  platformRoutes,
  type Balance,
  type TokenReply,
  type TokenRequest,
} from '@duebridge/contract';
import { fastify, type FastifyReply } from 'fastify';
import { accountBody, escape } from './account-page.ts';

/** A customer of the biller, already signed in for the demo. */
export interface DemoAccount extends Omit<TokenRequest, 'balance' | 'external_identifiers'> {
  readonly account_id: string;
  /** What this account shows, in a few words. */
  readonly about?: string;
}

export interface DemoSiteOptions {
  /** 0 picks a free one. */
  readonly port: number;
  /** The platform, as browsers and this server reach it. */
  readonly platformUrl: string;
  readonly clientId: string;
  readonly apiKey: string;
  readonly partnerId: string;
  readonly billerName: string;
  /** At least one; the first is shown first. */
  readonly accounts: readonly DemoAccount[];
  /** The amount now due in the biller's ledger. */
  readonly readBalance: (account: DemoAccount) => Promise<Balance>;
  /** The SDK file that the pages pin; the platform's newest when absent. */
  readonly sdk?: Sdk;
}

/** A file of the SDK as a script tag names it. */
interface Sdk {
  readonly file: string;
  readonly sri: string;
}

/** A person waits for it; the platform answers well within its own 2 s (decision 7). */
const TOKEN_TIMEOUT_MS = 8_000;

const FILES = { 'style.css': 'text/css', 'account.js': 'text/javascript' };

/** Starts the site; rejects when the port is taken. The platform may come up later. */
export async function startDemoSite(options: DemoSiteOptions) {
  const { accounts } = options;
  const platform = new URL(options.platformUrl).origin;
  const app = fastify({ forceCloseConnections: true });
  const named = (account_id: unknown): DemoAccount | undefined =>
    accounts.find((one) => one.account_id === account_id);
  app.addHook('onRequest', (_request, reply, done) => {
    reply.headers({
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
    });
    done();
  });
  // The error may contain a key or a name, so the customer sees only a general message.
  app.setErrorHandler((_error, _request, reply) =>
    reply.code(502).send('The payment service cannot be reached right now.'),
  );
  for (const [file, type] of Object.entries(FILES)) {
    const bytes = readFileSync(new URL(file, import.meta.url));
    app.get(`/${file}`, (_request, reply) => reply.type(`${type}; charset=utf-8`).send(bytes));
  }
  app.get<{ Querystring: { account?: string } }>('/', async ({ query }, reply) => {
    const account = named(query.account) ?? accounts[0];
    return account === undefined
      ? reply.code(404).send('There is no such account.')
      : sendPage(reply, platform, options, account);
  });
  app.get<{ Querystring: { account?: string } }>('/api/balance', async ({ query }, reply) => {
    const account = named(query.account);
    return account === undefined
      ? reply.code(404).send('There is no such account.')
      : balanceText(await options.readBalance(account));
  });
  // The one thing that a partner's backend does for the SDK: a customer in, a token out.
  app.post<{ Body: { account_id?: unknown } }>('/api/token', async (request, reply) => {
    // Only our own pages may call this; a request from another site has "cross-site" here.
    const from = request.headers['sec-fetch-site'];
    if (from !== undefined && from !== 'same-origin') return reply.code(403).send('');
    // In a real site this comes from the customer's own sign-in, never from the page.
    const account = named(request.body.account_id);
    if (!account) return reply.code(404).send('There is no such account.');
    const { account_id, about: _, ...customer } = account;
    const body: TokenRequest = {
      ...customer,
      balance: await options.readBalance(account),
      external_identifiers: { account_id },
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
    if (!created.ok) return reply.code(502).send(`status ${created.status}`);
    const { token } = (await created.json()) as TokenReply;
    return { token };
  });
  await app.listen({ host: 'localhost', port: options.port });
  const { port } = app.server.address() as AddressInfo;
  return { url: `http://localhost:${port}`, stop: (): Promise<void> => app.close() };
}

async function sendPage(
  reply: FastifyReply,
  platform: string,
  options: DemoSiteOptions,
  account: DemoAccount,
): Promise<FastifyReply> {
  const { billerName, accounts } = options;
  const { first_name, last_name, account_id, address } = account;
  const sdk = options.sdk ?? (await newestSdk(platform));
  const source = `${platform}/sdk/v1/${sdk.file}`;
  const body = accountBody({
    ...balanceText(await options.readBalance(account)),
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
  // What a page of the site may load: its own files, the pinned SDK and the platform's frame.
  return reply
    .type('text/html; charset=utf-8')
    .header(
      'content-security-policy',
      `default-src 'none'; script-src 'self' ${source}; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-src ${platform}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'`,
    ).send(`<!doctype html>
<html lang="en" data-partner="${escape(options.partnerId)}">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>${escape(billerName)}: your account</title>
    <link rel="icon" href="data:," />
    <link rel="stylesheet" href="/style.css" />
    <script src="${source}" integrity="${sdk.sri}" crossorigin="anonymous" defer></script>
    <script src="/account.js" type="module"></script>
  </head>
  <body>
    ${body}
  </body>
</html>`);
}

/** Read once per page view, so that a new version of the SDK is always used with its matching hash. */
async function newestSdk(platform: string): Promise<Sdk> {
  const signal = AbortSignal.timeout(TOKEN_TIMEOUT_MS);
  const answered = await fetch(`${platform}/sdk/v1/manifest.json`, { signal });
  if (!answered.ok) throw new Error(`SDK manifest: ${answered.status}`);
  return ((await answered.json()) as { sdk: Sdk }).sdk;
}

function balanceText(balance: Balance): { amount: string; due: string } {
  const { amount_due_in_cents: cents, due_date: due } = balance;
  if (cents === undefined) return { amount: '—', due: '' };
  const date = new Intl.DateTimeFormat('en-US', { dateStyle: 'long', timeZone: 'UTC' });
  return {
    amount: formatCents(cents),
    due: due === undefined || cents <= 0 ? '' : `Due ${date.format(new Date(`${due}T00:00:00Z`))}`,
  };
}
