/**
 * Brings up both sides in one process: a platform, two partners (an aggregator behind OAuth 2.0 and a biller behind a static
 * key), and the biller's own site. Each has its own database, as in production; they communicate only over HTTP.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type {
  Balance,
  ClientKeyGrant,
  PartnerRegistration,
  PartnerView,
} from '@duebridge/contract';
import { startPartner, type PartnerConfig, type RunningPartner } from '@duebridge/partner';
import { startPlatform, type Platform } from '@duebridge/platform';
import {
  ConfigurationError,
  createLogger,
  ensureDatabase,
  holdDataDirectory,
  integer,
  readConfig,
  startEmbeddedPostgres,
} from '@duebridge/runtime';
import { bearer, call } from './admin.ts';
import { consoleTicket } from './console-ticket.ts';
import { dataDirectory, keepSettings, readSettings, type ClientKey } from './settings.ts';
import { startDemoSite, type DemoAccount as SiteAccount } from './site/server.ts';

/** Ports of decision 27, as offsets from the platform's port; a partner's admin port follows its own. */
const OFFSETS = {
  platform: 0,
  'platform admin': 1,
  'City Services': 100,
  'City Services admin': 101,
  'Northwind Gas': 110,
  'Northwind Gas admin': 111,
  'demo site': 200,
} as const;

/** PORT moves the platform's port and all others with it. */
const VARIABLES = {
  port: {
    name: 'PORT',
    // The highest port of the demo is 200 above it.
    parse: integer(1, 65_335),
    default: 4000,
    description: 'port of the platform; the others follow it at fixed distances',
  },
} as const;

/** A partner, and how the two sides authenticate. */
const PARTNERS = [
  {
    partner_id: 'city-services',
    name: 'City Services',
    about: 'OAuth 2.0, an aggregator of three billers',
    kind: 'aggregator',
    biller_names: {
      'lakeside-energy': 'Lakeside Energy',
      'harbor-water': 'Harbor Water',
      'metro-waste': 'Metro Waste',
    },
    limits: {},
    checks: (secret: string): PartnerConfig['auth'] => ({
      method: 'oauth',
      clients: [{ client_id: 'duebridge-platform', secrets: [secret] }],
    }),
    uses: (secret: string, url: string): PartnerRegistration['auth'] => ({
      method: 'oauth',
      token_url: `${url}/oauth/token`,
      client_id: 'duebridge-platform',
      client_secret: secret,
      scope: 'read write',
    }),
  },
  {
    partner_id: 'northwind-gas',
    name: 'Northwind Gas',
    about: 'a static key, one biller',
    kind: 'biller',
    biller_names: { 'northwind-gas': 'Northwind Gas' },
    limits: { max_amount_in_cents: 500_000 },
    checks: (secret: string): PartnerConfig['auth'] => ({
      method: 'key',
      header: 'X-Api-Key',
      keys: [secret],
    }),
    uses: (secret: string): PartnerRegistration['auth'] => ({
      method: 'key',
      header: 'X-Api-Key',
      key: secret,
    }),
  },
] as const;

/** A partner of the demo, as a visitor sees it. */
export interface DemoPartner {
  readonly partner_id: string;
  readonly name: string;
  readonly about: string;
  readonly server: RunningPartner;
  readonly client: ClientKey;
  readonly accounts: readonly DemoAccount[];
}

/** A line of the billing system's export. */
export interface DemoAccount {
  readonly biller_id: string;
  readonly account_id: string;
  readonly status: string;
  readonly first_name: string;
  readonly last_name: string;
  readonly amount_due: string;
  /** Empty for none; equal to `max_amount` when only the full bill can be paid. */
  readonly min_amount: string;
  readonly max_amount: string;
}

/** Everything that runs. */
export interface Demo {
  readonly platform: Platform;
  readonly partners: readonly [DemoPartner, DemoPartner];
  readonly siteUrl: string;
  /** Opens the console signed in, once. */
  readonly consoleUrl: string;
  stop(): Promise<void>;
}

/**
 * Starts everything; reports each step to `progress`. Throws ConfigurationError when a port is taken, or when another demo runs
 * in the same data directory, and the reason of `stopped` once that is aborted: what had started is then stopped again.
 */
export async function bringUp(
  progress: (text: string) => void,
  stopped: AbortSignal,
): Promise<Demo> {
  const { port } = readConfig(VARIABLES, process.env);
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

async function openAll(
  port: number,
  progress: (text: string) => void,
  closers: (() => unknown)[],
): Promise<Omit<Demo, 'stop'>> {
  // Logs go to standard error and the story is for people, so only problems appear between its lines.
  const log = createLogger({ name: 'demo', level: 'error' });
  progress('PostgreSQL');
  const postgres = await startEmbeddedPostgres({ dataDirectory, log });
  closers.push(() => postgres.stop());

  progress('platform and partners');
  const settings = await readSettings();
  await keepSettings(settings);
  // Start the platform first and alone: of two demos that start at once, the one that gets this port gets all of them.
  const platform = await startPlatform({
    dataDirectory,
    log,
    port,
    adminPort: port + OFFSETS['platform admin'],
    // The demo's partners run on this machine, without TLS.
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
  const siteOrigin = `http://localhost:${port + OFFSETS['demo site']}`;

  /** Starts a partner and registers it; what was made at an earlier start is kept, with the payments since. */
  const open = async (one: (typeof PARTNERS)[number]): Promise<DemoPartner> => {
    const { partner_id, name, about, kind, biller_names, limits } = one;
    const billers = Object.keys(biller_names);
    const secret = settings.secrets[partner_id] ?? '';
    const server = await startPartner({
      auth: one.checks(secret),
      billers: billers.map((biller_id) => ({ biller_id, ...limits })),
      port: port + OFFSETS[name],
      adminPort: port + OFFSETS[name] + 1,
      databaseUrl: await ensureDatabase(postgres.url, `demo_${partner_id.replace('-', '_')}`),
      dataDirectory,
      log,
    });
    closers.push(() => server.stop());
    const csv = readFileSync(new URL(`./accounts/${partner_id}.csv`, import.meta.url), 'utf8');
    const operator = bearer(server.adminKey);
    // Loading again would undo what was paid.
    if (settings.clients[partner_id] === undefined) {
      await call('POST', `${server.adminUrl}/admin/v1/accounts/import`, operator, { csv });
    }
    const place = {
      base_url: server.url,
      origins: [siteOrigin],
      auth: one.uses(secret, server.url),
    };
    const whose = kind === 'biller' ? { biller_id: billers[0] ?? '' } : { biller_names };
    await register(platform, { partner_id, name, kind, ...whose, ...place });
    settings.clients[partner_id] ??= await issueKey(platform, partner_id);
    const accounts = accountsIn(csv);
    return { partner_id, name, about, server, client: settings.clients[partner_id], accounts };
  };
  const [city, northwind] = await Promise.all([open(PARTNERS[0]), open(PARTNERS[1])]);
  await keepSettings(settings);

  progress('demo site');
  const site = await startDemoSite({
    port: port + OFFSETS['demo site'],
    platformUrl: platform.url,
    partnerId: northwind.partner_id,
    clientId: northwind.client.client_id,
    apiKey: northwind.client.api_key,
    billerName: northwind.name,
    accounts: showcase(northwind.accounts),
    readBalance: ({ account_id }) =>
      call<Balance>(
        'GET',
        `${northwind.server.url}/biller/northwind-gas/account/${account_id}/balance`,
        { 'x-api-key': settings.secrets[northwind.partner_id] ?? '' },
      ),
  });
  closers.push(() => site.stop());
  const ticket = await consoleTicket(platform);
  closers.push(() => ticket.stop());
  return { platform, partners: [city, northwind], siteUrl: site.url, consoleUrl: ticket.url };
}

async function register(platform: Platform, registration: PartnerRegistration): Promise<void> {
  const url = `${platform.adminUrl}/admin/v1/partners`;
  const headers = bearer(platform.adminKey);
  const { partners } = await call<{ partners: PartnerView[] }>('GET', url, headers);
  const { partner_id, base_url, origins, auth } = registration;
  const known = partners.find((one) => one.partner_id === partner_id);
  if (known === undefined) await call('POST', url, headers, registration);
  // PORT may differ from the previous start, so update the partner's address.
  else if (known.base_url !== base_url || String(known.origins) !== String(origins)) {
    await call('PATCH', `${url}/${partner_id}`, headers, { base_url, origins, auth });
  }
}

async function issueKey(platform: Platform, partner_id: string): Promise<ClientKey> {
  const url = `${platform.adminUrl}/admin/v1/partners/${partner_id}/keys`;
  const grant = await call<ClientKeyGrant>('POST', url, bearer(platform.adminKey), {});
  return { client_id: grant.client_id, api_key: grant.api_key };
}

/** The lines of one of our export files, whose fields contain no comma or quote. */
function accountsIn(csv: string): DemoAccount[] {
  const [header = '', ...lines] = csv.trim().split('\n');
  const names = header.split(',');
  return lines.map((line) => {
    const fields = line.split(',');
    const named = names.map((name, index) => [name, fields[index] ?? '']);
    return Object.fromEntries(named) as DemoAccount;
  });
}

/** One account of each kind, an ordinary one first. */
function showcase(accounts: readonly DemoAccount[]): SiteAccount[] {
  const kinds: readonly [string, (account: DemoAccount) => boolean][] = [
    [
      'an ordinary bill',
      (one) => one.status === 'active' && one.max_amount + one.min_amount === '',
    ],
    [
      'paid whole or not at all',
      (one) => one.min_amount !== '' && one.min_amount === one.max_amount,
    ],
    ['at least a part', (one) => one.min_amount !== '' && one.max_amount === ''],
    ['a credit', (one) => one.amount_due.startsWith('-')],
    ['nothing due', (one) => one.amount_due === '0.00' && one.status === 'active'],
    ['an account that is closed', (one) => one.status === 'inactive'],
  ];
  return kinds.flatMap(([about, fits]) => {
    const account = accounts.find(fits);
    if (account === undefined) return [];
    const { biller_id, account_id, first_name, last_name } = account;
    const contact = {
      email: 'customer@example.com',
      phone_number: '+15125550100',
      address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
    };
    return [{ account_id, biller_id, first_name, last_name, about, ...contact }];
  });
}

async function assertPortsFree(first: number): Promise<void> {
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
