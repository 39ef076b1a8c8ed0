/**
 * A whole partner server from one configuration: database, migrations, the kit on its port and the operator's side on another.
 * What `duebridge partner serve` runs, and what a program that wants a partner in its own process calls.
 */
import {
  accountServiceRoutes,
  partnerAdminRoutes,
  partnerRoutes,
  renderOpenApi,
  type Route,
} from '@duebridge/contract';
import {
  adminKeyFile,
  createMetrics,
  createServer,
  hostsOf,
  dataDirectory,
  keptSecret,
  listen,
  migrate,
  mountOperations,
  openServerDatabase,
  silentLog,
  takesWrites,
  type Database,
  type Log,
  type ServerDatabase,
  type ServerDatabaseOptions,
} from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import type { AccountSystem, BillerRules } from './account-system.ts';
import { mountPartnerAdmin } from './admin.ts';
import type { AuthOptions } from './auth.ts';
import { migrations } from './migrations.ts';
import { partnerKit } from './plugin.ts';

/** Everything a partner server needs to know. */
export interface PartnerConfig {
  /** How the operations are protected (S3). */
  readonly auth: AuthOptions;
  /** The billers served, with their rules; default: every biller that has accounts. */
  readonly billers?: readonly BillerRules[] | undefined;
  /** Makes the account system on the opened database; default: the ledger. */
  readonly accounts?: ((database: Database) => AccountSystem | Promise<AccountSystem>) | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds; default 0. */
  readonly holdMs?: number | undefined;
  /** Address of the public listener; default 127.0.0.1. */
  readonly host?: string | undefined;
  /** Port of the public listener; default 4100 (decision 27), 0 for any free one. */
  readonly port?: number | undefined;
  /** Address of the admin listener; default 127.0.0.1, whatever `host` is. */
  readonly adminHost?: string | undefined;
  /**
   * Host names accepted by the admin listener, besides addresses; default: only localhost on this machine, any name elsewhere.
   */
  readonly adminHosts?: readonly string[] | undefined;
  /** Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, as addresses or networks; default: those of this machine. */
  readonly trustedProxies?: readonly string[] | undefined;
  /** Port of the admin listener; default 4101 (decision 27), 0 for any free one. */
  readonly adminPort?: number | undefined;
  /** Whether to apply missing migrations at the start; default true. */
  readonly migrate?: boolean | undefined;
  /** PostgreSQL to use; without it the embedded one in `dataDirectory` (decision 28). */
  readonly databaseUrl?: string | undefined;
  /** Seconds for which the start waits for a database that does not answer; default 0. */
  readonly databaseWaitSeconds?: number | undefined;
  /** Maximum connections; default 10. */
  readonly databaseConnections?: number | undefined;
  /** Directory of the embedded database and a generated admin key; default DUEBRIDGE_DATA_DIR or `.duebridge`. */
  readonly dataDirectory?: string | undefined;
  /** Bearer key of the admin API; default: generated once and kept in the data directory. */
  readonly adminKey?: string | undefined;
  readonly log?: Log | undefined;
}

/** A running partner server. */
export interface RunningPartner {
  /** Base address of the operations of the interface, without a slash at its end. */
  readonly url: string;
  readonly adminUrl: string;
  readonly adminKey: string;
  /** The public server; `app.partnerKit` is the kit. */
  readonly app: FastifyInstance;
  /** The kit's database, open until `stop`. */
  readonly database: Database;
  /** Finishes requests in progress, applies payments in hand, and closes everything that this call opened. */
  stop(): Promise<void>;
}

/** Creates or updates the kit's tables. Returns the names of the migrations applied now. */
export function migratePartner(database: Database, log: Log = silentLog): Promise<string[]> {
  return migrate(database, migrations, { log });
}

/** Opens the kit's database, checked and migrated. Throws ConfigurationError; close it with its `close`. */
export function openPartnerDatabase(
  config: Pick<
    PartnerConfig,
    | 'databaseUrl'
    | 'databaseWaitSeconds'
    | 'databaseConnections'
    | 'dataDirectory'
    | 'migrate'
    | 'log'
  >,
  more: Partial<Pick<ServerDatabaseOptions, 'secrets' | 'beside'>> = {},
): Promise<ServerDatabase> {
  return openServerDatabase({
    server: 'partner',
    migrations,
    databaseUrl: config.databaseUrl,
    waitSeconds: config.databaseWaitSeconds,
    connections: config.databaseConnections ?? 10,
    dataDirectory: config.dataDirectory,
    migrate: config.migrate,
    log: config.log,
    ...more,
  });
}

/** Starts a partner server; resolves when both listeners accept requests. Throws ConfigurationError. */
export async function startPartner(config: PartnerConfig): Promise<RunningPartner> {
  const { log = silentLog, auth, billers } = config;
  const directory = config.dataDirectory ?? dataDirectory();
  const adminKey = config.adminKey ?? (await keptSecret(adminKeyFile(directory, 'partner')));
  // Credentials are compared, never decrypted, so no secret has to match the data; the row identifies only the deployment.
  const opened = await openPartnerDatabase(config, { secrets: [] });
  const { database } = opened;
  const metrics = createMetrics();
  const singleHeaders = auth.method === 'key' ? [auth.header] : [];
  const shared = { log, trustedProxies: config.trustedProxies };
  // Its one caller is the platform, which may hold thousands of waiting reads from one address.
  const limits = { connectionsPerAddress: Infinity };
  const app = createServer({ ...shared, metrics, singleHeaders, limits });
  const adminHost = config.adminHost ?? '127.0.0.1';
  const admin = createServer({ ...shared, hosts: hostsOf(adminHost, config.adminHosts) });
  const stop = async (): Promise<void> => {
    await Promise.all([app.close(), admin.close()]);
    await opened.close();
  };
  try {
    const ready = async (): Promise<Record<string, boolean>> => ({
      database: await takesWrites(database),
      ...app.partnerKit.health,
    });
    await app.register(partnerKit, {
      database,
      auth,
      log,
      metrics,
      ...(config.accounts === undefined ? {} : { accounts: await config.accounts(database) }),
      ...(billers === undefined ? {} : { billers }),
      ...(config.holdMs === undefined ? {} : { holdMs: config.holdMs }),
    });
    mountOperations(app, {
      ready,
      openapi: partnerOpenApi(auth.method === 'key' ? auth.header : undefined),
    });
    mountPartnerAdmin(admin, { database, kit: app.partnerKit, adminKey, billers });
    const description = 'Operations for the operator of a partner server.';
    const openapi = openApi(partnerAdminRoutes, 'partner kit, operator', description);
    mountOperations(admin, { ready, metrics, openapi });
    const url = await listen(app, {
      host: config.host ?? '127.0.0.1',
      port: config.port ?? 4100,
      hostVariable: 'HOST',
      portVariable: 'PORT',
    });
    const adminUrl = await listen(admin, {
      host: adminHost,
      port: config.adminPort ?? 4101,
      hostVariable: 'ADMIN_HOST',
      portVariable: 'ADMIN_PORT',
    });
    log.info({ url, admin_url: adminUrl }, 'the partner is up');
    let stopping: Promise<void> | undefined;
    return { url, adminUrl, adminKey, app, database, stop: () => (stopping ??= stop()) };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The OpenAPI document of the operations. With a static key, whose header is given, there is no token endpoint (KY1). */
export function partnerOpenApi(keyHeader?: string): object {
  const { access_token, ...operations } = partnerRoutes;
  const routes = keyHeader === undefined ? { access_token, ...operations } : operations;
  const description = 'Accounts and payments of a partner, as the platform calls them.';
  return openApi(routes, 'partner kit', description, keyHeader === undefined ? {} : { keyHeader });
}

/** The OpenAPI document of the account service called by `--accounts-url`, which the biller's own program implements. */
export function accountServiceOpenApi(): object {
  const description =
    'What a biller hosts so that the partner kit can find accounts and post payments. Its address is given as --accounts-url.';
  return openApi(accountServiceRoutes, 'account service', description);
}

function openApi(
  routes: Readonly<Record<string, Route>>,
  what: string,
  description: string,
  more: { readonly keyHeader?: string } = {},
): object {
  const servers = [{ url: '/', description: 'This server.' }];
  return renderOpenApi(routes, {
    title: `duebridge ${what}`,
    description,
    version: '1',
    servers,
    ...more,
  });
}
