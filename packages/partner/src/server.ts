/**
 * A whole partner server from one configuration: database, migrations, the kit on its port and the operator's side on another.
 * What `duebridge partner serve` runs, and what a program that wants a partner in its own process calls.
 */
import {
  accountServiceRoutes,
  partnerAdminRoutes,
  partnerRoutes,
  renderOpenApi,
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
  type Config,
  type Database,
  type Log,
  type ServerDatabase,
  type ServerDatabaseOptions,
} from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import type { AccountSystem } from './account-system.ts';
import { mountPartnerAdmin } from './admin.ts';
import type { AuthOptions } from './auth.ts';
import { migrations } from './migrations.ts';
import { partnerKit } from './plugin.ts';
import type { variables } from './variables.ts';

type Environment = Config<typeof variables>;

/**
 * Everything a partner server needs to know. What is left out has the default of its variable, but for `databaseWaitSeconds`: a program that
 * starts a partner itself does not wait for its database.
 */
export interface PartnerConfig extends Partial<
  Omit<
    Environment,
    'logLevel' | 'holdSeconds' | 'key' | 'keyHeader' | `client${string}` | `accounts${string}`
  >
> {
  /** How the operations are protected (S3). */
  readonly auth: AuthOptions;
  /** How long a request waits for a connection to the database, in milliseconds; default 5,000. For tests, which a busy machine keeps waiting. */
  readonly databaseAcquireMs?: number;
  /** Makes the account system on the opened database; default: the ledger. */
  readonly accounts?: ((database: Database) => AccountSystem | Promise<AccountSystem>) | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds; default 0. */
  readonly holdMs?: number;
  /** Whether to apply missing migrations at the start; default true. */
  readonly migrate?: boolean;
  readonly log?: Log;
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
  config: Omit<ServerDatabaseOptions, 'server' | 'migrations'>,
): Promise<ServerDatabase> {
  return openServerDatabase({ ...config, server: 'partner', migrations });
}

/** Starts a partner server; resolves when both listeners accept requests. Throws ConfigurationError. */
export async function startPartner(config: PartnerConfig): Promise<RunningPartner> {
  const { log = silentLog, auth, billers } = config;
  const directory = config.dataDirectory ?? dataDirectory();
  const adminKey = config.adminKey ?? (await keptSecret(adminKeyFile(directory, 'partner')));
  // Credentials are compared, never decrypted, so no secret has to match the data; the row identifies only the deployment.
  const opened = await openPartnerDatabase({ ...config, secrets: [] });
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
    mountPartnerAdmin(admin, { database, kit: app.partnerKit, adminKey });
    const openapi = renderOpenApi(partnerAdminRoutes, {
      title: 'duebridge partner kit, operator',
      description: 'Operations for the operator of a partner server.',
    });
    mountOperations(admin, { ready, metrics, openapi });
    const url = await listen(app, {
      host: config.host ?? '127.0.0.1',
      port: config.port ?? 4100,
    });
    const adminUrl = await listen(admin, {
      host: adminHost,
      port: config.adminPort ?? 4101,
      variables: 'ADMIN_',
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
  return renderOpenApi(routes, { title: 'duebridge partner kit', description, keyHeader });
}

/** The OpenAPI document of the account service called by `--accounts-url`, which the biller's own program implements. */
export function accountServiceOpenApi(): object {
  const description =
    'What a biller hosts so that the partner kit can find accounts and post payments. Its address is given as --accounts-url.';
  return renderOpenApi(accountServiceRoutes, { title: 'duebridge account service', description });
}
