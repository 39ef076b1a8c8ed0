/**
 * One platform process: everything opened in order, mounted on two listeners, closed in reverse. Nothing is decided here.
 *
 * The public listener takes Create Token, the flow API and the pages; the admin listener takes the admin API and the figures, and is
 * bound to this machine unless it is told otherwise.
 *
 * One file because it is a list: what is opened, in which order, and mounted where.
 */
import type { KeyObject } from 'node:crypto';
import { platformAdminRoutes, platformRoutes, renderOpenApi } from '@duebridge/contract';
import {
  ConfigurationError,
  createLogger,
  createMetrics,
  createServer,
  hostsOf,
  listen,
  mountOperations,
  openDatabase,
  openServerDatabase,
  systemClock,
  takesWrites,
  type Clock,
  type Database,
  type DeploymentSecret,
  type Log,
  type Metrics,
  type ServerDatabase,
  type ServerDatabaseOptions,
  type Tracing,
} from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { mountAdmin, type AdminDependencies } from './admin/admin.ts';
import { serveConsole } from './admin/console.ts';
import { mountOpenId } from './admin/openid.ts';
import { openOperators } from './admin/operators.ts';
import { adminAuthentication, mountSignIn } from './admin/sign-in.ts';
import { keepWorking, measurePools } from './background.ts';
import { readSecrets, type PlatformConfig } from './config.ts';
import { createEngine, type Engine } from './engine/engine.ts';
import { limitAddresses, mountPublic, type PublicStages } from './checkout/public-routes.ts';
import { openPaymentEvents } from './checkout/events.ts';
import { openAdapters } from './funding/configured.ts';
import { openFunds, type Funds } from './funding/funds.ts';
import { openSandbox } from './funding/sandbox.ts';
import { mountProcessorEvents } from './funding/processor-events.ts';
import { openClientKeys } from './checkout/keys.ts';
import { servePages } from './checkout/pages.ts';
import { mountPolicyReports } from './checkout/policy-reports.ts';
import { serveTestApproval } from './checkout/test-approval.ts';
import { createPartnerClient, type PartnerClient } from './partners/client.ts';
import { openPartnerRegistry, type PartnerRegistry } from './partners/registry.ts';
import { openAccountReads } from './checkout/account-reads.ts';
import { openPayments } from './checkout/confirm.ts';
import { openLostPayments } from './checkout/lost-payments.ts';
import { migrations } from './migrations.ts';
import { openReconciliations } from './reconciliation/reconcile.ts';
import { openSealer, type Sealer } from './partners/seal.ts';
import { keepAttempts, openAttempts } from './store/attempts.ts';
import { findPayment } from './store/payments.ts';
import { openSessions } from './checkout/session.ts';
import { openTokens } from './checkout/token.ts';
import { openVisits } from './checkout/visit.ts';

/** Version of both APIs in their OpenAPI documents: the `/v1` of the paths (VE1). */
const API_VERSION = '1';

/** A platform that runs. */
export interface Platform {
  /** Where the public listener answers, such as http://127.0.0.1:4000. */
  readonly url: string;
  /** Where the admin listener answers. */
  readonly adminUrl: string;
  /** Bearer key of the admin API. */
  readonly adminKey: string;
  /** Stops gracefully: no new requests, streams ended, what is under way finished or handed over. Calling it again is harmless. */
  stop(): Promise<void>;
}

/**
 * Starts a platform: database, migrations, engine, both listeners. Throws ConfigurationError with one sentence for whatever the
 * deployment has to put right (a port taken, a database that is not durable, a secret missing); then nothing is left running.
 */
export async function startPlatform(config: PlatformConfig = {}): Promise<Platform> {
  const closers: (() => Promise<unknown>)[] = [];
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= closeAll(closers));
  try {
    return { ...(await openAll(config, closers)), stop };
  } catch (error) {
    // The reason for not starting is told; what went wrong while tidying up after it would hide it.
    await stop().catch(() => undefined);
    throw error;
  }
}

async function openAll(
  config: PlatformConfig,
  closers: (() => Promise<unknown>)[],
): Promise<Omit<Platform, 'stop'>> {
  const log = config.log ?? createLogger({ name: 'platform' });
  const clock = config.clock ?? systemClock;
  // First: a platform that cannot start with these settings leaves nothing behind, neither files nor a database that is migrated.
  const { adapters, offersSandbox } = await openAdapters(config);
  assertSender(config);
  const { checked, sealKey, keyPepper, adminKey } = await readSecrets(config);
  const metrics = createMetrics();
  const tracing = await config.tracing?.();
  // Closed last: what is under way until then has spans.
  if (tracing !== undefined) closers.push(() => tracing.close());
  const {
    front: database,
    engine: engineDatabase,
    heartbeat,
  } = await openPools(config, checked, log, closers);

  const { registry, sealer, attempts, client, sandbox, funding, engine } = await openDriving({
    config,
    database,
    engineDatabase,
    heartbeat,
    sealKey,
    adapters,
    offersSandbox,
    metrics,
    tracing,
    clock,
    log,
    closers,
  });

  const stopping = new AbortController();
  const { keys, tokens, sessions, lost, payments, events } = openCheckout({
    config,
    database,
    registry,
    client,
    engine,
    funding,
    sealer,
    keyPepper,
    metrics,
    tracing,
    clock,
    log,
    signal: stopping.signal,
    closers,
  });
  metrics.gauge('duebridge_event_streams', 'Payment event streams open now', [], () => events.size);
  measurePools(metrics, { front: database, engine: engineDatabase, heartbeat });
  const { auditChain, ended } = keepWorking({
    config,
    database,
    registry,
    sealer,
    funding,
    lost,
    keyPepper,
    metrics,
    clock,
    log,
    signal: stopping.signal,
  });
  closers.push(async () => {
    stopping.abort();
    // A mail server that is silent holds up no stop.
    const late = new AbortController();
    await Promise.race([ended, clock.sleep(LOOPS_STOP_MS, late.signal)]);
    late.abort();
  });

  const ready = async (): Promise<Record<string, boolean>> => ({
    database: await takesWrites(database),
    ...engine.health,
  });
  const visits = openVisits({ database, registry, sealer, sealKeys: sealKey, clock });
  const publicApp = openPublicListener({
    stages: { config, keys, tokens, sessions, payments, events, funding, visits },
    database,
    registry,
    sandbox,
    offersSandbox,
    adapters,
    ready,
    metrics,
    clock,
    log,
  });
  const adminHost = config.adminHost ?? '127.0.0.1';
  const reconciliations = openReconciliations({ database, registry, client, clock });
  closers.push(() => reconciliations.stop());
  const adminApp = openAdminListener({
    config,
    adminHost,
    adminKey,
    ready,
    metrics,
    stages: {
      log,
      database,
      registry,
      client,
      reconciliations,
      keys,
      attempts,
      engine,
      auditChain,
      sealer,
      pepper: keyPepper,
      clock,
    },
  });

  const { url, adminUrl } = await listenBoth(config, { publicApp, adminApp, adminHost }, closers);
  // First of all, and beside each other: no reader of a listener may use up the time in which the slots are given back.
  closers.push(async () => {
    stopping.abort();
    await Promise.all([engine.stop(), publicApp.close(), adminApp.close()]);
  });
  log.info({ url, admin_url: adminUrl }, 'the platform is up');
  return { url, adminUrl, adminKey };
}

/** The registry of partners, the calls to them, the funds and the engine, which has been started. */
async function openDriving(given: {
  readonly config: PlatformConfig;
  readonly database: Database;
  readonly engineDatabase: Database;
  readonly heartbeat: Database;
  readonly sealKey: string;
  readonly adapters: Awaited<ReturnType<typeof openAdapters>>['adapters'];
  readonly offersSandbox: boolean;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly closers: (() => Promise<unknown>)[];
}) {
  const { config, database, engineDatabase, heartbeat, sealKey, adapters, offersSandbox } = given;
  const { metrics, tracing, clock, log, closers } = given;
  const allowPrivateAddresses = config.allowPrivateAddresses ?? false;
  if (allowPrivateAddresses) {
    log.warn({}, 'partners at http and private addresses are allowed: for development only');
  }
  const registry = openPartnerRegistry({
    database: engineDatabase,
    sealKey,
    allowPrivateAddresses,
    clock,
    log,
  });
  const sealer = openSealer(sealKey);
  const attempts = openAttempts({ database, sealer, clock, log });
  const recording = new AbortController();
  const recorded = keepAttempts({ attempts, clock, signal: recording.signal });
  // Closed after the engine, whose last answers it writes.
  closers.push(async () => {
    recording.abort();
    await recorded;
  });
  const client = createPartnerClient({
    registry,
    clock,
    log,
    metrics,
    tracing,
    allowPrivateAddresses,
    answered: (call) => attempts.note(call),
  });
  closers.push(() => client.close());
  const sandbox = openSandbox({
    database: engineDatabase,
    publicUrl: config.publicUrl,
    clock,
  });
  const funding = openFunds({
    database: engineDatabase,
    sealer,
    clock,
    log,
    metrics,
    adapters: offersSandbox ? [sandbox, ...adapters] : adapters,
    former: offersSandbox ? [] : [sandbox],
    publicUrl: config.publicUrl,
  });
  const engine = createEngine({
    database: engineDatabase,
    leaseDatabase: heartbeat,
    registry,
    client,
    funding,
    clock,
    log,
    metrics,
  });
  closers.push(() => engine.stop());
  await engine.start();
  return { registry, sealer, attempts, client, sandbox, funding, engine };
}

/** The stages from the token to the confirm. */
function openCheckout(given: {
  readonly config: PlatformConfig;
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly client: PartnerClient;
  readonly engine: Engine;
  readonly funding: Funds;
  readonly sealer: Sealer;
  readonly keyPepper: KeyObject;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
  readonly closers: (() => Promise<unknown>)[];
}) {
  const { config, database, registry, client, engine, funding, sealer, keyPepper } = given;
  const { metrics, tracing, clock, log, signal, closers } = given;
  const keys = openClientKeys({ database, pepper: keyPepper, clock, log });
  closers.push(() => keys.flushUsed());
  const reads = openAccountReads({ client, clock });
  const tokens = openTokens({
    database,
    registry,
    client: reads,
    sealer,
    pepper: keyPepper,
    clock,
    log,
  });
  closers.push(() => tokens.drain());
  const mails = config.smtpUrl !== undefined;
  const sessions = openSessions({
    database,
    registry,
    client: reads,
    funding,
    sealer,
    mails,
    clock,
  });
  const lost = openLostPayments({ database, registry, funding, clock, log, metrics });
  const payments = openPayments({
    database,
    registry,
    client: reads,
    engine,
    funding,
    lost,
    clock,
    log,
    tracing,
    paidRetentionDays: config.paidRetentionDays ?? 90,
    signal,
  });
  const events = openPaymentEvents({ engine, clock });
  return { keys, tokens, sessions, lost, payments, events };
}

/** The public listener with everything mounted; it keeps the figures of requests of this process. */
function openPublicListener(given: {
  readonly stages: PublicStages;
  readonly database: Database;
  readonly registry: PartnerRegistry;
  readonly sandbox: ReturnType<typeof openSandbox>;
  readonly offersSandbox: boolean;
  readonly adapters: Awaited<ReturnType<typeof openAdapters>>['adapters'];
  readonly ready: () => Promise<Record<string, boolean>>;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly log: Log;
}): FastifyInstance {
  const { stages, database, registry, sandbox, offersSandbox } = given;
  const { adapters, ready, metrics, clock, log } = given;
  const { config, funding } = stages;
  const { hstsSeconds, trustedProxies } = config;
  const publicApp = createServer({ log, clock, metrics, hstsSeconds, trustedProxies });
  limitAddresses(publicApp, config);
  mountPublic(publicApp, stages);
  mountProcessorEvents(publicApp, { funding, log });
  if (offersSandbox) {
    const find = (id: string) => findPayment(database, id);
    serveTestApproval(publicApp, { sandbox, funding, find, clock });
  }
  mountPolicyReports(publicApp, { clock, log, metrics });
  servePages(publicApp, {
    registry,
    visits: stages.visits,
    adapters,
    ...(config.webDist === undefined ? {} : { dist: config.webDist }),
  });
  mountOperations(publicApp, {
    ready,
    openapi: renderOpenApi(platformRoutes, {
      title: 'duebridge platform',
      description:
        'Create Token, called by partners, and the flow API, called by the payment page.',
      version: API_VERSION,
      servers: [{ url: '/', description: 'This host.' }],
    }),
  });
  return publicApp;
}

/** The admin listener with everything mounted. */
function openAdminListener(given: {
  readonly config: PlatformConfig;
  readonly adminHost: string;
  readonly adminKey: string;
  readonly ready: () => Promise<Record<string, boolean>>;
  readonly metrics: Metrics;
  readonly stages: Omit<AdminDependencies, 'operators' | 'secondPersonAboveCents' | 'authenticate'>;
}): FastifyInstance {
  const { config, adminHost, adminKey, ready, metrics, stages } = given;
  const { log, clock, database, pepper, sealer } = stages;
  const { hstsSeconds, trustedProxies } = config;
  const adminApp = createServer({
    log,
    clock,
    hstsSeconds,
    trustedProxies,
    hosts: hostsOf(adminHost, config.adminHosts),
  });
  const operators = openOperators({ database, adminKey, pepper, clock });
  mountAdmin(adminApp, {
    ...stages,
    operators,
    secondPersonAboveCents: config.secondPersonAboveCents ?? 100_000,
    authenticate: adminAuthentication(operators, clock),
  });
  mountSignIn(adminApp, { operators, clock, oidc: config.openId !== undefined });
  if (config.openId !== undefined) {
    mountOpenId(adminApp, { provider: config.openId, operators, sealer, log });
  }
  serveConsole(adminApp, config.webDist);
  mountOperations(adminApp, {
    ready,
    metrics,
    openapi: renderOpenApi(platformAdminRoutes, {
      title: 'duebridge platform, admin',
      description: 'Operations for operators; the console and the command line use nothing else.',
      version: API_VERSION,
      servers: [{ url: '/', description: 'This host.' }],
    }),
  });
  return adminApp;
}

function assertSender(config: PlatformConfig): void {
  if (config.smtpUrl !== undefined && config.mailFrom === undefined) {
    throw new ConfigurationError(
      'DUEBRIDGE_SMTP_URL is set without a sender: set DUEBRIDGE_MAIL_FROM, such as Payments <pay@example.com>',
    );
  }
}

/** Lets both listeners answer, the public one first. */
async function listenBoth(
  config: PlatformConfig,
  on: {
    readonly publicApp: FastifyInstance;
    readonly adminApp: FastifyInstance;
    readonly adminHost: string;
  },
  closers: (() => Promise<unknown>)[],
): Promise<{ url: string; adminUrl: string }> {
  const { publicApp, adminApp, adminHost } = on;
  closers.push(() => publicApp.close());
  const url = await listen(publicApp, {
    host: config.host ?? '127.0.0.1',
    port: config.port ?? 4000,
    hostVariable: 'HOST',
    portVariable: 'PORT',
  });
  closers.push(() => adminApp.close());
  const adminUrl = await listen(adminApp, {
    host: adminHost,
    port: config.adminPort ?? 4001,
    hostVariable: 'ADMIN_HOST',
    portVariable: 'ADMIN_PORT',
  });
  return { url, adminUrl };
}

/** Opens the platform's database, checked and migrated. Throws ConfigurationError; close it with its `close`. */
export function openPlatformDatabase(
  config: PlatformConfig,
  more: Partial<Pick<ServerDatabaseOptions, 'secrets' | 'beside' | 'connections'>> = {},
): Promise<ServerDatabase> {
  return openServerDatabase({
    server: 'platform',
    migrations,
    databaseUrl: config.databaseUrl,
    waitSeconds: config.databaseWaitSeconds,
    connections: config.databaseConnections ?? 20,
    dataDirectory: config.dataDirectory,
    migrate: config.migrate,
    log: config.log,
    ...more,
  });
}

/** The embedded database has no standby and no backup: a disk that fails takes the record of real payments with it. */
async function warnOfLivePartners(database: Database, log: Log): Promise<void> {
  const rows = await database.query<{ partner_id: string }>(
    `SELECT partner_id FROM duebridge_platform.partners WHERE mode = 'live' ORDER BY partner_id LIMIT 20`,
  );
  if (rows.length === 0) return;
  const partners = rows.map(({ partner_id }) => partner_id);
  log.warn(
    { partners },
    'live partners are on the embedded database, which has no standby: set DATABASE_URL to a PostgreSQL of your own',
  );
}

/**
 * Opens the three pools of a server, so that none starves another (LV10): the front's slow reads must not keep the engine from
 * recording what partners answered, and neither may keep the heartbeat from renewing the lease.
 */
async function openPools(
  config: PlatformConfig,
  secrets: readonly DeploymentSecret[],
  log: Log,
  closers: (() => Promise<unknown>)[],
): Promise<Record<'front' | 'engine' | 'heartbeat', Database>> {
  const all = config.databaseConnections ?? 20;
  const ofEngine = Math.max(2, Math.floor(all * ENGINE_PART));
  const opened = await openPlatformDatabase(
    { ...config, log },
    { secrets, connections: all - ofEngine - HEARTBEAT_CONNECTIONS },
  );
  closers.push(() => opened.close());
  const { url, database: front } = opened;
  if (config.databaseUrl === undefined) await warnOfLivePartners(front, log);
  const engine = openDatabase({
    url,
    applicationName: 'duebridge platform engine',
    maxConnections: ofEngine,
    plansByKey: true,
    // A row that a person holds in psql is tried again by itself (engine/records.ts).
    lockTimeoutMs: 300,
    // Each payment that an answer came for may have a write waiting.
    maxWaiting: 10_000,
    log,
  });
  closers.push(() => engine.close());
  const heartbeat = openDatabase({
    url,
    applicationName: 'duebridge platform heartbeat',
    maxConnections: HEARTBEAT_CONNECTIONS,
    // One that takes longer is of no use: the next is sent before that.
    statementTimeoutMs: HEARTBEAT_TIMEOUT_MS,
    acquireTimeoutMs: HEARTBEAT_TIMEOUT_MS,
    log,
  });
  closers.push(() => heartbeat.close());
  return { front, engine, heartbeat };
}

/** How long a stop waits for the loops beside the engine. */
const LOOPS_STOP_MS = 1_000;
/** Of all connections, the part that is the engine's. */
const ENGINE_PART = 0.4;
/** One is in use; the second is for when that one hangs. */
const HEARTBEAT_CONNECTIONS = 2;
/** Between two heartbeats. */
const HEARTBEAT_TIMEOUT_MS = 2_000;

/** Closes in reverse, all of them whatever one throws. */
async function closeAll(closers: readonly (() => Promise<unknown>)[]): Promise<void> {
  const errors: unknown[] = [];
  for (const close of closers.toReversed()) {
    await close().catch((error: unknown) => errors.push(error));
  }
  if (errors.length > 0) throw new AggregateError(errors, 'the platform did not stop cleanly');
}

// The public listener --------------------------------------------------------------------------------------------------------
