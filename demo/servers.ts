/**
 * Brings up both sides in one process: a platform, two partners (an aggregator behind OAuth 2.0 and a biller behind a static
 * key), and the biller's own site. Each has its own database, as in production; they communicate only over HTTP.
 */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type {
  Balance,
  ClientKeyGrant,
  PartnerAuth,
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
  type Environment,
} from '@duebridge/runtime';
import { bearer, call } from './admin.ts';
import {
  dataDirectory,
  keepSettings,
  readSettings,
  type ClientKey,
  type Settings,
} from './settings.ts';
import { consoleTicket } from './console-ticket.ts';
import { startDemoSite, type DemoAccount as SiteAccount } from './site/server.ts';

/** Ports of decision 27, as offsets from the platform's port; the second partner's ports follow the first one's. */
const OFFSETS = {
  platform: 0,
  'platform admin': 1,
  'City Services': 100,
  'City Services admin': 101,
  'Northwind Gas': 110,
  'Northwind Gas admin': 111,
  'demo site': 200,
} as const;
type Ports = Readonly<Record<keyof typeof OFFSETS, number>>;

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

function portsOf(env: Environment): Ports {
  const { port } = readConfig(VARIABLES, env);
  const all = Object.entries(OFFSETS).map(([name, offset]) => [name, port + offset]);
  return Object.fromEntries(all) as Ports;
}

function siteOrigin(ports: Ports): string {
  return `http://localhost:${ports['demo site']}`;
}

/** A partner of the demo, as a visitor sees it. */
export interface DemoPartner {
  readonly partner_id: string;
  readonly name: string;
  readonly about: string;
  readonly server: RunningPartner;
  readonly client: ClientKey;
  /** Headers with which its own operator can call its endpoints. */
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
  const ports = portsOf(process.env);
  const alone = await holdDataDirectory(dataDirectory, 'demo.lock');
  if (alone === undefined) {
    throw new ConfigurationError(
      `another demo runs in ${dataDirectory}: stop it, or give this one a DUEBRIDGE_DATA_DIR and a PORT of its own`,
    );
  }
  const closers: (() => Promise<unknown>)[] = [() => Promise.resolve(alone.release())];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  try {
    await assertPortsFree(ports);
    const step = (text: string): void => {
      stopped.throwIfAborted();
      progress(text);
    };
    const opened = await openAll(ports, step, closers);
    stopped.throwIfAborted();
    return { ...opened, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function openAll(
  ports: Ports,
  progress: (text: string) => void,
  closers: (() => Promise<unknown>)[],
): Promise<Omit<Demo, 'stop'>> {
  // Logs go to standard error and the story is for people, so only problems appear between its lines.
  const log = createLogger({ name: 'demo', level: 'error' });
  progress('PostgreSQL');
  const postgres = await startEmbeddedPostgres({ dataDirectory, log });
  closers.push(() => postgres.stop());

  progress('platform and partners');
  let settings = await readSettings();
  await keepSettings(settings);
  const open = async (config: PartnerConfig, database: string): Promise<RunningPartner> => {
    const databaseUrl = await ensureDatabase(postgres.url, database);
    const server = await startPartner({ ...config, databaseUrl, dataDirectory, log });
    closers.push(() => server.stop());
    return server;
  };
  // Start the platform first and alone: of two demos that start at once, the one that gets this port gets all of them.
  const platform = await startPlatform({
    dataDirectory,
    log,
    port: ports.platform,
    adminPort: ports['platform admin'],
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
  const [city, northwind] = await Promise.all([
    open(cityServices(settings, ports), 'demo_city_services'),
    open(northwindGas(settings, ports), 'demo_northwind_gas'),
  ]);

  progress('accounts and registrations');
  settings = await load(settings, 'city-services', city);
  settings = await load(settings, 'northwind-gas', northwind);
  await register(platform, cityRegistration(city, settings, ports));
  await register(platform, northwindRegistration(northwind, settings, ports));
  settings = await issueKey(settings, platform, 'city-services');
  settings = await issueKey(settings, platform, 'northwind-gas');

  const partners = [
    {
      partner_id: 'city-services',
      name: 'City Services',
      about: 'OAuth 2.0, an aggregator of three billers',
      server: city,
      client: clientOf(settings, 'city-services'),
      accounts: await accountsOf('city-services'),
    },
    {
      partner_id: 'northwind-gas',
      name: 'Northwind Gas',
      about: 'a static key, one biller',
      server: northwind,
      client: clientOf(settings, 'northwind-gas'),
      accounts: await accountsOf('northwind-gas'),
    },
  ] as const;

  progress('demo site');
  const site = await startDemoSite({
    port: ports['demo site'],
    platformUrl: platform.url,
    partnerId: 'northwind-gas',
    clientId: partners[1].client.client_id,
    apiKey: partners[1].client.api_key,
    billerName: 'Northwind Gas',
    accounts: showcase(partners[1].accounts),
    readBalance: ({ account_id }) =>
      call<Balance>('GET', `${northwind.url}/biller/northwind-gas/account/${account_id}/balance`, {
        'x-api-key': settings.static_key,
      }),
  });
  closers.push(() => site.stop());
  const ticket = await consoleTicket(platform);
  closers.push(async () => ticket.stop());
  return { platform, partners, siteUrl: site.url, consoleUrl: ticket.url };
}

// The two partners ------------------------------------------------------------------------------------------------------------

function cityServices(settings: Settings, ports: Ports): PartnerConfig {
  return {
    auth: {
      method: 'oauth',
      clients: [{ client_id: 'duebridge-platform', secrets: [settings.oauth_secret] }],
    },
    billers: ['lakeside-energy', 'harbor-water', 'metro-waste'].map((biller_id) => ({ biller_id })),
    port: ports['City Services'],
    adminPort: ports['City Services admin'],
  };
}

function cityRegistration(
  server: RunningPartner,
  settings: Settings,
  ports: Ports,
): PartnerRegistration {
  const auth: PartnerAuth = {
    method: 'oauth',
    token_url: `${server.url}/oauth/token`,
    client_id: 'duebridge-platform',
    client_secret: settings.oauth_secret,
    scope: 'read write',
  };
  return {
    partner_id: 'city-services',
    name: 'City Services',
    kind: 'aggregator',
    biller_names: {
      'lakeside-energy': 'Lakeside Energy',
      'harbor-water': 'Harbor Water',
      'metro-waste': 'Metro Waste',
    },
    base_url: server.url,
    origins: [siteOrigin(ports)],
    auth,
  };
}

function northwindGas(settings: Settings, ports: Ports): PartnerConfig {
  return {
    auth: { method: 'key', header: 'X-Api-Key', keys: [settings.static_key] },
    billers: [{ biller_id: 'northwind-gas', max_amount_in_cents: 500_000 }],
    port: ports['Northwind Gas'],
    adminPort: ports['Northwind Gas admin'],
  };
}

function northwindRegistration(
  server: RunningPartner,
  settings: Settings,
  ports: Ports,
): PartnerRegistration {
  return {
    partner_id: 'northwind-gas',
    name: 'Northwind Gas',
    kind: 'biller',
    biller_id: 'northwind-gas',
    base_url: server.url,
    origins: [siteOrigin(ports)],
    auth: { method: 'key', header: 'X-Api-Key', key: settings.static_key },
  };
}

// One-time setup --------------------------------------------------------------------------------------------------------------

/** Loads the billing system's export on the first start; later starts keep the payments made since. */
async function load(
  settings: Settings,
  partner_id: string,
  server: RunningPartner,
): Promise<Settings> {
  if (settings.loaded.includes(partner_id)) return settings;
  await call('POST', `${server.adminUrl}/admin/v1/accounts/import`, bearer(server.adminKey), {
    csv: await readFile(exportOf(partner_id), 'utf8'),
  });
  return keep({ ...settings, loaded: [...settings.loaded, partner_id] });
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

async function issueKey(
  settings: Settings,
  platform: Platform,
  partner_id: string,
): Promise<Settings> {
  if (settings.clients[partner_id] !== undefined) return settings;
  const url = `${platform.adminUrl}/admin/v1/partners/${partner_id}/keys`;
  const grant = await call<ClientKeyGrant>('POST', url, bearer(platform.adminKey), {});
  const { client_id, api_key } = grant;
  return keep({
    ...settings,
    clients: { ...settings.clients, [partner_id]: { client_id, api_key } },
  });
}

async function keep(settings: Settings): Promise<Settings> {
  await keepSettings(settings);
  return settings;
}

function clientOf(settings: Settings, partner_id: string): ClientKey {
  const client = settings.clients[partner_id];
  if (client === undefined) throw new Error(`no key was issued to ${partner_id}`);
  return client;
}

function exportOf(partner_id: string): URL {
  return new URL(`./accounts/${partner_id}.csv`, import.meta.url);
}

/** The lines of one of our export files, whose fields contain no comma or quote. */
async function accountsOf(partner_id: string): Promise<DemoAccount[]> {
  const [header = '', ...lines] = (await readFile(exportOf(partner_id), 'utf8')).trim().split('\n');
  const names = header.split(',');
  return lines.map((line) => {
    const fields = line.split(',');
    return Object.fromEntries(
      names.map((name, index) => [name, fields[index] ?? '']),
    ) as unknown as DemoAccount;
  });
}

/** One account of each kind, an ordinary one first. */
function showcase(accounts: readonly DemoAccount[]): SiteAccount[] {
  const kinds: readonly [string, (account: DemoAccount) => boolean][] = [
    [
      'an ordinary bill',
      ({ status, max_amount, min_amount }) => status === 'active' && max_amount + min_amount === '',
    ],
    [
      'paid whole or not at all',
      ({ min_amount, max_amount }) => min_amount !== '' && min_amount === max_amount,
    ],
    ['at least a part', ({ min_amount, max_amount }) => min_amount !== '' && max_amount === ''],
    ['a credit', ({ amount_due }) => amount_due.startsWith('-')],
    ['nothing due', ({ amount_due, status }) => amount_due === '0.00' && status === 'active'],
    ['an account that is closed', ({ status }) => status === 'inactive'],
  ];
  return kinds.flatMap(([about, fits]) => {
    const account = accounts.find(fits);
    if (account === undefined) return [];
    const { biller_id, account_id, first_name, last_name } = account;
    return [
      {
        account_id,
        biller_id,
        first_name,
        last_name,
        about,
        email: 'customer@example.com',
        phone_number: '+15125550100',
        address: { address_line_1: '1 Main St', city: 'Austin', state: 'TX', zip: '78701' },
      },
    ];
  });
}

// Ports -----------------------------------------------------------------------------------------------------------------------

async function assertPortsFree(ports: Ports): Promise<void> {
  for (const [name, port] of Object.entries(ports)) {
    if (!(await isFree(port))) {
      throw new ConfigurationError(
        `port ${port} (${name}) is taken, perhaps by another duebridge demo: stop what listens there, or set PORT (and DUEBRIDGE_DATA_DIR, if that demo is to stay)`,
      );
    }
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}
