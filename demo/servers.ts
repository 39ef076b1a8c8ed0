/**
 * Brings up both sides in one process: a platform, two partners (an aggregator behind OAuth 2.0 and a biller behind a static key),
 * and the biller's own site. Each has its own database, as it would elsewhere; they meet over HTTP alone.
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
  startEmbeddedPostgres,
} from '@duebridge/runtime';
import { bearer, call } from './admin.ts';
import {
  dataDirectory,
  keepSettings,
  readSettings,
  type ClientKey,
  type Settings,
} from './settings.ts';
import { startDemoSite, type DemoAccount as SiteAccount } from './site/server.ts';

/** Ports of decision 29; the second partner stands beside the first. */
const PORTS = {
  platform: 4000,
  'platform admin': 4001,
  'City Services': 4100,
  'City Services admin': 4101,
  'Northwind Gas': 4110,
  'Northwind Gas admin': 4111,
  'demo site': 4200,
} as const;

const SITE_ORIGIN = `http://localhost:${PORTS['demo site']}`;

/** A partner of the demo, as a visitor meets it. */
export interface DemoPartner {
  readonly partner_id: string;
  readonly name: string;
  readonly about: string;
  readonly server: RunningPartner;
  readonly client: ClientKey;
  /** How its own operator would reach its endpoints: headers that open them. */
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
  /** Empty for none; equal to `max_amount` where the bill is paid whole or not at all. */
  readonly min_amount: string;
  readonly max_amount: string;
}

/** Everything that runs. */
export interface Demo {
  readonly platform: Platform;
  readonly partners: readonly [DemoPartner, DemoPartner];
  readonly siteUrl: string;
  stop(): Promise<void>;
}

/** Starts everything; says what it does through `progress`. Throws ConfigurationError when a port is taken. */
export async function bringUp(progress: (text: string) => void): Promise<Demo> {
  await assertPortsFree();
  const closers: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  try {
    return { ...(await openAll(progress, closers)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function openAll(
  progress: (text: string) => void,
  closers: (() => Promise<unknown>)[],
): Promise<Omit<Demo, 'stop'>> {
  // Logs go to standard error, and the story is for people: only what went wrong stands between its lines.
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
  const [city, northwind, platform] = await Promise.all([
    open(cityServices(settings), 'demo_city_services'),
    open(northwindGas(settings), 'demo_northwind_gas'),
    startPlatform({
      dataDirectory,
      log,
      port: PORTS.platform,
      adminPort: PORTS['platform admin'],
      // Partners of the demo stand on this machine, without TLS.
      allowPrivateAddresses: true,
    }).then((started) => {
      closers.push(() => started.stop());
      return started;
    }),
  ]);

  progress('accounts and registrations');
  settings = await load(settings, 'city-services', city);
  settings = await load(settings, 'northwind-gas', northwind);
  await register(platform, cityRegistration(city, settings));
  await register(platform, northwindRegistration(northwind, settings));
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
    port: PORTS['demo site'],
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
  return { platform, partners, siteUrl: site.url };
}

// The two partners ------------------------------------------------------------------------------------------------------------

function cityServices(settings: Settings): PartnerConfig {
  return {
    auth: {
      method: 'oauth',
      clients: [{ client_id: 'duebridge-platform', secrets: [settings.oauth_secret] }],
    },
    billers: ['lakeside-energy', 'harbor-water', 'metro-waste'].map((biller_id) => ({ biller_id })),
    port: PORTS['City Services'],
    adminPort: PORTS['City Services admin'],
  };
}

function cityRegistration(server: RunningPartner, settings: Settings): PartnerRegistration {
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
    origins: [SITE_ORIGIN],
    auth,
  };
}

function northwindGas(settings: Settings): PartnerConfig {
  return {
    auth: { method: 'key', header: 'X-Api-Key', keys: [settings.static_key] },
    billers: [{ biller_id: 'northwind-gas', max_amount_in_cents: 500_000 }],
    port: PORTS['Northwind Gas'],
    adminPort: PORTS['Northwind Gas admin'],
  };
}

function northwindRegistration(server: RunningPartner, settings: Settings): PartnerRegistration {
  return {
    partner_id: 'northwind-gas',
    name: 'Northwind Gas',
    kind: 'biller',
    biller_id: 'northwind-gas',
    base_url: server.url,
    origins: [SITE_ORIGIN],
    auth: { method: 'key', header: 'X-Api-Key', key: settings.static_key },
  };
}

// What is done once -----------------------------------------------------------------------------------------------------------

/** Loads the billing system's export the first time; later starts keep what has been paid since. */
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
  if (partners.some(({ partner_id }) => partner_id === registration.partner_id)) return;
  await call('POST', url, headers, registration);
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

/** The lines of an export of ours: no field of it holds a comma or a quote. */
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

/** One account of each kind that a customer can meet, an ordinary one first. */
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

async function assertPortsFree(): Promise<void> {
  for (const [name, port] of Object.entries(PORTS)) {
    if (!(await isFree(port))) {
      throw new ConfigurationError(
        `port ${port} (${name}) is taken, perhaps by another duebridge demo: stop what listens there and start again`,
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
