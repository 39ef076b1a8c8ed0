/**
 * A whole partner server from one configuration: database, migrations, the kit on its port and the operator's side on another.
 * What `duebridge partner serve` runs, and what a program that wants a partner in its own process calls.
 */
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { partnerAdminRoutes, partnerRoutes, renderOpenApi, type Route } from '@duebridge/contract';
import {
  ConfigurationError,
  createMetrics,
  createServer,
  ensureDatabase,
  keptSecret,
  migrate,
  mountOperations,
  openDatabase,
  readKeptSecret,
  silentLog,
  startEmbeddedPostgres,
  type Database,
  type Log,
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
  /** Makes the books on the opened database; default: the ledger. */
  readonly accounts?: ((database: Database) => AccountSystem) | undefined;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds; default 0. */
  readonly holdMs?: number | undefined;
  /** Address of the public listener; default 127.0.0.1. */
  readonly host?: string | undefined;
  /** Port of the public listener; default 4100 (decision 29), 0 for any free one. */
  readonly port?: number | undefined;
  /** Address of the admin listener; default 127.0.0.1, whatever `host` is. */
  readonly adminHost?: string | undefined;
  /** Port of the admin listener; default 4101 (decision 29), 0 for any free one. */
  readonly adminPort?: number | undefined;
  /** PostgreSQL to use; without it the embedded one in `dataDirectory` (decision 28). */
  readonly databaseUrl?: string | undefined;
  /** Connections at most; default 10. */
  readonly databaseConnections?: number | undefined;
  /** Where the embedded database and a generated admin key lie; default DUEBRIDGE_DATA_DIR or `.duebridge`. */
  readonly dataDirectory?: string | undefined;
  /** Bearer key of the admin API; default: made once and kept in the data directory. */
  readonly adminKey?: string | undefined;
  readonly log?: Log | undefined;
}

/** A partner server that runs. */
export interface RunningPartner {
  /** Base address of the operations of the interface, without a slash at its end. */
  readonly url: string;
  readonly adminUrl: string;
  readonly adminKey: string;
  /** The public server; `app.partnerKit` is the kit. */
  readonly app: FastifyInstance;
  /** The kit's database, open until `stop`. */
  readonly database: Database;
  /** Answers what is under way, applies what is in hand, closes everything this call opened. */
  stop(): Promise<void>;
}

/** Makes or updates the kit's tables. Gives the names of the migrations applied now. */
export function migratePartner(database: Database, log: Log = silentLog): Promise<string[]> {
  return migrate(database, migrations, { log });
}

/** Opens the database of a configuration: the one named, or the embedded one (decision 28). */
export async function openPartnerDatabase(
  config: Pick<PartnerConfig, 'databaseUrl' | 'databaseConnections' | 'dataDirectory' | 'log'>,
): Promise<{ database: Database; close: () => Promise<void> }> {
  const { log = silentLog, databaseUrl, databaseConnections } = config;
  const embedded =
    databaseUrl === undefined
      ? await startEmbeddedPostgres({ dataDirectory: dataDirectoryOf(config), log })
      : undefined;
  const url = databaseUrl ?? (await ensureDatabase(embedded?.url ?? '', 'duebridge_partner'));
  const database = openDatabase({
    url,
    applicationName: 'duebridge partner',
    log,
    ...(databaseConnections === undefined ? {} : { maxConnections: databaseConnections }),
  });
  return {
    database,
    async close() {
      await database.close();
      await embedded?.stop();
    },
  };
}

/** Starts a partner server; resolves when both listeners take requests. Throws ConfigurationError. */
export async function startPartner(config: PartnerConfig): Promise<RunningPartner> {
  const { log = silentLog, auth, billers } = config;
  const adminKey =
    config.adminKey ?? (await keptSecret(path.join(dataDirectoryOf(config), adminKeyFile)));
  const opened = await openPartnerDatabase(config);
  const { database } = opened;
  const metrics = createMetrics();
  const singleHeaders = auth.method === 'key' ? [auth.header] : [];
  const app = createServer({ log, metrics, singleHeaders });
  const admin = createServer({ log });
  const stop = async (): Promise<void> => {
    await Promise.all([app.close(), admin.close()]);
    await opened.close();
  };
  try {
    await migratePartner(database, log);
    const ready = async (): Promise<Record<string, boolean>> => ({
      database: await database.query('SELECT 1').then(
        () => true,
        () => false,
      ),
    });
    await app.register(partnerKit, {
      database,
      auth,
      log,
      metrics,
      ...(config.accounts === undefined ? {} : { accounts: config.accounts(database) }),
      ...(billers === undefined ? {} : { billers }),
      ...(config.holdMs === undefined ? {} : { holdMs: config.holdMs }),
    });
    mountOperations(app, { ready, openapi: partnerOpenApi(auth) });
    mountPartnerAdmin(admin, { database, kit: app.partnerKit, adminKey, billers });
    mountOperations(admin, { ready, metrics, openapi: adminOpenApi() });
    const url = await listen(app, config.host ?? '127.0.0.1', config.port ?? 4100);
    const adminUrl = await listen(admin, config.adminHost ?? '127.0.0.1', config.adminPort ?? 4101);
    log.info({ url, adminUrl }, 'the partner server takes requests');
    let stopping: Promise<void> | undefined;
    return { url, adminUrl, adminKey, app, database, stop: () => (stopping ??= stop()) };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** The OpenAPI document of the operations, as this way of authentication has them: no token endpoint where a key protects. */
export function partnerOpenApi(auth: AuthOptions): object {
  const { access_token, ...operations } = partnerRoutes;
  const routes: Record<string, Route> =
    auth.method === 'oauth' ? { access_token, ...operations } : operations;
  return renderOpenApi(routes, {
    title: 'duebridge partner kit',
    description: 'Accounts and payments of a partner, as the platform calls them.',
    version: '1',
    servers: [{ url: '/', description: 'This server.' }],
    ...(auth.method === 'key' ? { keyHeader: auth.header } : {}),
  });
}

function adminOpenApi(): object {
  return renderOpenApi(partnerAdminRoutes, {
    title: 'duebridge partner kit, operator',
    description: 'What the operator of a partner server does.',
    version: '1',
    servers: [{ url: '/', description: 'This server.' }],
  });
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<string> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code !== 'EADDRINUSE' && code !== 'EACCES' && code !== 'EADDRNOTAVAIL') throw error;
    throw new ConfigurationError(`cannot listen on ${host} port ${port} (${code})`, {
      cause: error,
    });
  }
  const address = app.server.address() as AddressInfo;
  const shown = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  return `http://${shown.includes(':') ? `[${shown}]` : shown}:${address.port}`;
}

function dataDirectoryOf(config: Pick<PartnerConfig, 'dataDirectory'>): string {
  return path.resolve(config.dataDirectory ?? process.env['DUEBRIDGE_DATA_DIR'] ?? '.duebridge');
}

/** Where the generated admin key lies, in the data directory. */
const adminKeyFile = 'partner-admin-key';

/** The admin key that the command line uses: given, or the one in the data directory. Throws ConfigurationError when there is none. */
export async function knownAdminKey(
  adminKey: string | undefined,
  dataDirectory?: string,
): Promise<string> {
  if (adminKey !== undefined) return adminKey;
  const file = path.join(dataDirectoryOf({ dataDirectory }), adminKeyFile);
  const stored = await readKeptSecret(file);
  if (stored === undefined) {
    throw new ConfigurationError(
      `there is no admin key in ${file}: start the server here once, or set DUEBRIDGE_ADMIN_KEY`,
    );
  }
  return stored;
}
