/**
 * Brings up both sides in one process: a platform, a biller behind a static key, and the biller's own site. Both sides have their own
 * database, as in production; they communicate only over HTTP.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import type {
  Balance,
  ClientKeyGrant,
  PartnerRegistration,
  PartnerView,
} from '@duebridge/contract';
import { importAccountsFile, startPartner } from '@duebridge/partner';
import { startPlatform, type Platform } from '@duebridge/platform';
import {
  ConfigurationError,
  createLogger,
  dataDirectory as dataDirectoryOf,
  ensureDatabase,
  holdDataDirectory,
  integer,
  keepOwner,
  keptSecret,
  readConfig,
  setting,
  startEmbeddedPostgres,
} from '@duebridge/runtime';
import { bearer, call } from './admin.ts';
import { consoleTicket } from './console-ticket.ts';
import { startDemoSite } from './site/server.ts';

/** Ports of decision 27, as offsets from the platform's port. */
const OFFSETS = { platform: 0, 'platform admin': 1, biller: 100, 'biller admin': 101, site: 200 };

/** PORT moves the platform's port and all others with it, of which the highest is 200 above it. */
const VARIABLES = {
  port: setting(
    'PORT',
    integer(1, 65_335),
    'port of the platform; the others follow it at fixed distances',
    { default: 4000 },
  ),
};

/** Where the demo keeps everything: DUEBRIDGE_DATA_DIR, or `.duebridge` (decision 28). */
export const dataDirectory = dataDirectoryOf();

/** The biller's id, at the platform and in its own account numbers. */
const BILLER = 'northwind-gas';
const NAME = 'Northwind Gas';

/** Accounts of accounts.csv to sign in with at the site, one of each kind. */
const SHOWN: Readonly<Record<string, string>> = {
  'NG-62706': 'an ordinary bill',
  'NG-23974': 'paid whole or not at all',
  'NG-27559': 'at least a part',
  'NG-97390': 'a credit',
  'NG-63554': 'nothing due',
  'NG-30629': 'an account that is closed',
};

/** A line of the billing system's export. */
type DemoAccount = Readonly<
  Record<'biller_id' | 'account_id' | 'status' | 'first_name' | 'last_name', string>
>;

/** Everything that runs. */
export type Demo = Awaited<ReturnType<typeof bringUp>>;

/**
 * Starts everything; reports each step to `progress`. Throws ConfigurationError when a port is taken, or when another demo runs
 * in the same data directory, and the reason of `stopped` once that is aborted: what had started is then stopped again.
 */
export async function bringUp(progress: (text: string) => void, stopped: AbortSignal) {
  const { port } = readConfig(VARIABLES);
  const alone = await holdDataDirectory(dataDirectory, 'demo.lock');
  if (alone === undefined) {
    throw new ConfigurationError(
      `another demo runs in ${dataDirectory}: stop it, or give this one a DUEBRIDGE_DATA_DIR and a PORT of its own`,
    );
  }
  const closers: (() => unknown)[] = [() => alone.release()];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  try {
    await assertPortsFree(port);
    const step = (text: string): void => {
      stopped.throwIfAborted();
      progress(text);
    };
    const opened = await openAll(port, step, closers);
    stopped.throwIfAborted();
    return { ...opened, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function openAll(port: number, progress: (text: string) => void, closers: (() => unknown)[]) {
  // Logs go to standard error and the story is for people, so only problems appear between its lines.
  const log = createLogger({ name: 'demo', level: 'error' });
  progress('PostgreSQL');
  const postgres = await startEmbeddedPostgres({ dataDirectory, log });
  closers.push(() => postgres.stop());

  progress('platform and biller');
  // Start the platform first and alone: of two demos that start at once, the one that gets this port gets all of them.
  const platform = await startPlatform({
    dataDirectory,
    log,
    port,
    adminPort: port + OFFSETS['platform admin'],
    // The demo's biller runs on this machine, without TLS.
    allowPrivateAddresses: true,
    // The account that pays billers: no bank has it.
    payer: {
      name: 'Demo Payments',
      routing_number: '011000015',
      account_number: '123456789',
      company_id: '1234567890',
    },
  });
  closers.push(() => platform.stop());
  const key = await keptSecret(path.join(dataDirectory, 'demo-biller-key'));
  const server = await startPartner({
    auth: { method: 'key', header: 'X-Api-Key', keys: [key] },
    billers: [{ biller_id: BILLER, max_amount_in_cents: 500_000 }],
    port: port + OFFSETS.biller,
    adminPort: port + OFFSETS['biller admin'],
    databaseUrl: await ensureDatabase(postgres.url, 'demo_northwind_gas'),
    dataDirectory,
    log,
  });
  closers.push(() => server.stop());
  const csv = readFileSync(new URL('./accounts.csv', import.meta.url), 'utf8');
  const accounts = accountsIn(csv);
  const balanceOf = (account_id: string): Promise<Balance> => {
    const url = `${server.url}/biller/${BILLER}/account/${account_id}/balance`;
    return call<Balance>('GET', url, { 'x-api-key': key });
  };
  // Loading again would undo what earlier starts have paid.
  await balanceOf(Object.keys(SHOWN)[0] ?? '').catch(() =>
    importAccountsFile(server.database, () => [csv]),
  );
  const siteOrigin = `http://localhost:${port + OFFSETS.site}`;
  await register(platform, {
    partner_id: BILLER,
    name: NAME,
    kind: 'biller',
    biller_id: BILLER,
    base_url: server.url,
    origins: [siteOrigin],
    auth: { method: 'key', header: 'X-Api-Key', key },
  });
  const client = await clientKey(platform);

  progress('demo site');
  const site = await startDemoSite({
    port: port + OFFSETS.site,
    platformUrl: platform.url,
    partnerId: BILLER,
    clientId: client.client_id,
    apiKey: client.api_key,
    billerName: NAME,
    accounts: Object.entries(SHOWN).flatMap(([account_id, about]) => {
      const account = accounts.find((one) => one.account_id === account_id);
      return account === undefined ? [] : [{ ...customerOf(account), account_id, about }];
    }),
    readBalance: ({ account_id }) => balanceOf(account_id),
  });
  closers.push(() => site.stop());
  const ticket = await consoleTicket(platform);
  closers.push(() => ticket.stop());
  const biller = { partner_id: BILLER, name: NAME, server, client, accounts };
  // The console's opens it signed in, once.
  return { platform, biller, siteUrl: site.url, consoleUrl: ticket.url };
}

/** Registers the biller; at a later start it may have another PORT, or a new key. */
async function register(platform: Platform, registration: PartnerRegistration): Promise<void> {
  const url = `${platform.adminUrl}/admin/v1/partners`;
  const headers = bearer(platform.adminKey);
  const { partners } = await call<{ partners: PartnerView[] }>('GET', url, headers);
  const { partner_id, base_url, origins, auth } = registration;
  if (!partners.some((one) => one.partner_id === partner_id)) {
    await call('POST', url, headers, registration);
  } else await call('PATCH', `${url}/${partner_id}`, headers, { base_url, origins, auth });
}

/** The API key of the biller's site: the platform shows it once, so it stays in the data directory, readable only by its owner. */
async function clientKey(platform: Platform): Promise<ClientKeyGrant> {
  const file = path.join(dataDirectory, 'demo-client.json');
  const kept = await readFile(file, 'utf8').catch(() => undefined);
  if (kept !== undefined) return JSON.parse(kept) as ClientKeyGrant;
  const url = `${platform.adminUrl}/admin/v1/partners/${BILLER}/keys`;
  const grant = await call<ClientKeyGrant>('POST', url, bearer(platform.adminKey), {});
  await writeFile(`${file}.new`, JSON.stringify(grant), { mode: 0o600, flush: true });
  await keepOwner(`${file}.new`, dataDirectory);
  await rename(`${file}.new`, file);
  return grant;
}

/** The lines of the export, whose fields contain no comma or quote. */
function accountsIn(csv: string): DemoAccount[] {
  const [header = '', ...lines] = csv.trim().split('\n');
  const names = header.split(',');
  return lines.map((line) => {
    const fields = line.split(',');
    const named = names.map((name, index) => [name, fields[index] ?? '']);
    return Object.fromEntries(named) as DemoAccount;
  });
}

/** An account's customer, as the biller knows them. */
export function customerOf({ first_name, last_name }: DemoAccount) {
  return {
    first_name,
    last_name,
    email: 'customer@example.com',
    phone_number: '+15125550100',
    address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
  };
}

/** Throws ConfigurationError for the first of the demo's ports that is taken; `first` is the platform's. */
export async function assertPortsFree(first: number): Promise<void> {
  for (const [name, offset] of Object.entries(OFFSETS)) {
    const port = first + offset;
    const probe = createServer().listen(port, '127.0.0.1');
    const isFree = await once(probe, 'listening').then(
      () => true,
      () => false,
    );
    probe.close();
    if (isFree) continue;
    throw new ConfigurationError(
      `port ${port} (${name}) is taken, perhaps by another duebridge demo: stop what listens there, or set PORT (and DUEBRIDGE_DATA_DIR, if that demo is to stay)`,
    );
  }
}
