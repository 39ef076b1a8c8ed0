/**
 * One platform process: everything opened in order, mounted on two listeners, closed in reverse. Nothing is decided here.
 *
 * The public listener takes Create Token, the flow API and the pages; the admin listener takes the admin API and the figures, and is
 * bound to this machine unless it is told otherwise.
 *
 * One file because it is a list: what is opened, in which order, and mounted where.
 */
import { platformAdminRoutes, platformRoutes, renderOpenApi } from '@duebridge/contract';
import {
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
  type Database,
  type DeploymentSecret,
  type Log,
  type ServerDatabase,
  type ServerDatabaseOptions,
} from '@duebridge/runtime';
import type { FastifyInstance } from 'fastify';
import { mountAdmin, type AdminDependencies } from './admin/admin.ts';
import { serveConsole } from './admin/console.ts';
import { mountOpenId } from './admin/openid.ts';
import { openOperators } from './admin/operators.ts';
import { adminAuthentication, mountSignIn } from './admin/sign-in.ts';
import { keepWorking, measurePools } from './background.ts';
import { readSecrets, settled, type PlatformConfig, type PlatformSettings } from './config.ts';
import { Engine } from './engine/engine.ts';
import { within } from './engine/timing.ts';
import { limitAddresses, mountPublic } from './checkout/public-routes.ts';
import { openAdapters } from './funding/configured.ts';
import { Funds } from './funding/funds.ts';
import { sandbox } from './funding/sandbox.ts';
import { mountProcessorEvents } from './funding/processor-events.ts';
import { openAnswers } from './checkout/answers.ts';
import { openClientKeys } from './checkout/keys.ts';
import { servePages } from './checkout/pages.ts';
import { mountPolicyReports } from './checkout/policy-reports.ts';
import { createPartnerClient } from './partners/client.ts';
import { openPartnerRegistry } from './partners/registry.ts';
import { openPayments } from './checkout/confirm.ts';
import { LostPayments } from './checkout/lost-payments.ts';
import { migrations } from './migrations.ts';
import { repeatRefunds } from './money/refunds.ts';
import { remit } from './money/remittance.ts';
import { openReconciliations } from './reconciliation/reconcile.ts';
import type { Services } from './services.ts';
import { openSealer } from './partners/seal.ts';
import { keepAttempts, openAttempts } from './store/attempts.ts';
import { openSessions } from './checkout/session.ts';
import { openTokens } from './checkout/token.ts';
import { openVisits } from './checkout/visit.ts';

/** A platform that runs. */
export interface Platform {
  /** Where the public listener answers, such as http://127.0.0.1:4000. */
  readonly url: string;
  /** Where the admin listener answers. */
  readonly adminUrl: string;
  /** Bearer key of the admin API. */
  readonly adminKey: string;
  /** Stops gracefully: no new requests, what is under way finished or handed over. Calling it again is harmless. */
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
    return { ...(await openAll(settled(config), closers)), stop };
  } catch (error) {
    // The reason for not starting is told; what went wrong while tidying up after it would hide it.
    await stop().catch(() => undefined);
    throw error;
  }
}

/** What the services are opened with. `closers` run in reverse at the stop. */
interface Ground
  extends
    Pick<Services, 'pepper' | 'metrics' | 'clock' | 'log'>,
    Awaited<ReturnType<typeof openPools>>,
    Awaited<ReturnType<typeof openAdapters>> {
  readonly config: PlatformSettings;
  readonly sealKey: string;
  readonly closers: (() => Promise<unknown>)[];
}
type Ready = () => Promise<Record<string, boolean>>;

async function openAll(
  config: PlatformSettings,
  closers: (() => Promise<unknown>)[],
): Promise<Omit<Platform, 'stop'>> {
  const log = config.log ?? createLogger({ name: 'platform' });
  const clock = config.clock ?? systemClock;
  // First: a platform that cannot start with these settings leaves nothing behind, neither files nor a database that is migrated.
  const { adapters, offersSandbox } = await openAdapters(config);
  const { checked, sealKey, pepper, adminKey } = await readSecrets(config);
  const metrics = createMetrics();
  const pools = await openPools(config, checked, log, closers);
  measurePools(metrics, pools);
  const around = { pepper, metrics, clock, log, closers };
  const ground = { config, adapters, offersSandbox, ...pools, sealKey, ...around };
  const services = await openServices(ground);
  const { database, engine, funding } = services;
  const stopping = new AbortController();
  const { signal } = stopping;
  const checkout = openCheckout(services, ground, signal);
  const reconciliations = openReconciliations(services);
  closers.push(() => reconciliations.stop());
  const { secondPersonAboveCents, publicUrl, payer } = config;
  const refunding = {
    ...services,
    refundPart: (...asked: Parameters<typeof funding.refundPart>) => funding.refundPart(...asked),
    secondPersonAboveCents,
  };
  // Its library has 218 modules, which a platform without Stripe need not load.
  const channel =
    config.stripe &&
    (await import('./money/stripe-transfers.ts')).openStripeTransfers(config.stripe);
  const compare = (id: string) => reconciliations.compare(id, 'remittance');
  const remitNow = async () => {
    await repeatRefunds(refunding);
    return remit({ ...services, channel, compare });
  };
  const { lost } = checkout;
  const { auditChain, ended } = keepWorking({ ...services, config, lost, signal, remit: remitNow });
  closers.push(async () => {
    stopping.abort();
    // A mail server that is silent holds up no stop.
    await within(clock, LOOPS_STOP_MS, [ended]);
  });

  const ready = async (): Promise<Record<string, boolean>> => ({
    database: await takesWrites(database),
    ...engine.health,
  });
  const publicApp = openPublicListener(services, ground, checkout, ready);
  const operators = openOperators(services, adminKey);
  const adminApp = openAdminListener(config, ready, {
    ...services,
    adapters,
    publicUrl,
    operators,
    reconciliations,
    auditChain,
    payer,
    refunding,
    secondPersonAboveCents,
    keys: checkout.keys,
    remit: remitNow,
    authenticate: adminAuthentication(operators, clock),
  });

  closers.push(() => publicApp.close());
  const url = await listen(publicApp, {
    host: config.host,
    port: config.port,
  });
  closers.push(() => adminApp.close());
  const adminUrl = await listen(adminApp, {
    host: config.adminHost,
    port: config.adminPort,
    variables: 'ADMIN_',
  });
  // First of all, and beside each other: no reader of a listener may use up the time in which the slots are given back.
  closers.push(async () => {
    stopping.abort();
    await Promise.all([engine.stop(), publicApp.close(), adminApp.close()]);
  });
  log.info({ url, admin_url: adminUrl }, 'the platform is up');
  return { url, adminUrl, adminKey };
}

/** Opens the services; the engine has been started. */
async function openServices(ground: Ground): Promise<Services> {
  const { config, front, engine: database, heartbeat, sealKey, adapters, offersSandbox } = ground;
  const { pepper, metrics, clock, log, closers } = ground;
  const { allowPrivateAddresses } = config;
  if (allowPrivateAddresses) {
    log.warn({}, 'partners at http and private addresses are allowed: for development only');
  }
  const base = { database, clock, log, metrics };
  const registry = openPartnerRegistry({ ...base, sealKey, allowPrivateAddresses });
  const sealer = openSealer(sealKey);
  const attempts = openAttempts({ database: front, sealer, clock, log });
  const recording = new AbortController();
  const recorded = keepAttempts({ attempts, clock, signal: recording.signal });
  // Closed after the engine, whose last answers it writes.
  closers.push(async () => {
    recording.abort();
    await recorded;
  });
  const client = createPartnerClient({
    ...base,
    registry,
    allowPrivateAddresses,
    answered: (call) => attempts.note(call),
  });
  closers.push(() => client.close());
  const funding = new Funds({
    ...base,
    sealer,
    adapters: offersSandbox ? [sandbox, ...adapters] : adapters,
    publicUrl: config.publicUrl,
  });
  const engine = new Engine({ ...base, leaseDatabase: heartbeat, registry, client, funding });
  closers.push(() => engine.stop());
  await engine.start();
  const around = { database: front, pepper, clock, log, metrics };
  return { ...around, registry, client, funding, engine, attempts, sealer };
}

/** The stages from the token to the confirm. `signal` is aborted when the stop begins. */
function openCheckout(services: Services, { config, closers }: Ground, signal: AbortSignal) {
  const { clock } = services;
  const tokens = openTokens(services);
  closers.push(() => tokens.drain());
  const answers = openAnswers(services);
  const answered = keepAttempts({ attempts: answers, clock, signal });
  closers.push(() => answered);
  const lost = new LostPayments(services);
  const { paidRetentionDays } = config;
  return {
    keys: openClientKeys(services),
    answers,
    tokens,
    sessions: openSessions(services),
    lost,
    payments: openPayments({ ...services, lost, paidRetentionDays }),
  };
}

/** The public listener with everything mounted; it keeps the figures of requests of this process. */
function openPublicListener(
  services: Services,
  { config, sealKey, adapters }: Ground,
  checkout: ReturnType<typeof openCheckout>,
  ready: Ready,
): FastifyInstance {
  const { trustedProxies, webDist: dist } = config;
  const { registry, funding, clock, log, metrics } = services;
  const visits = openVisits(services, sealKey);
  const publicApp = createServer({ log, clock, metrics, trustedProxies });
  limitAddresses(publicApp, config);
  mountPublic(publicApp, { config, ...checkout, funding, visits });
  mountProcessorEvents(publicApp, services);
  mountPolicyReports(publicApp, services);
  servePages(publicApp, { registry, visits, adapters, dist });
  const description =
    'Create Token, called by partners, and the flow API, called by the payment page.';
  const openapi = renderOpenApi(platformRoutes, { title: 'duebridge platform', description });
  mountOperations(publicApp, { ready, openapi });
  return publicApp;
}

/** The admin listener with everything mounted. */
function openAdminListener(
  config: PlatformSettings,
  ready: Ready,
  dependencies: AdminDependencies,
): FastifyInstance {
  const { log, clock, metrics, operators } = dependencies;
  const { trustedProxies, openId } = config;
  const hosts = hostsOf(config.adminHost, config.adminHosts);
  const adminApp = createServer({ log, clock, trustedProxies, hosts });
  mountAdmin(adminApp, dependencies);
  mountSignIn(adminApp, { operators, clock, oidc: openId !== undefined });
  if (openId !== undefined) mountOpenId(adminApp, openId, dependencies);
  serveConsole(adminApp, config.webDist);
  const description =
    'Operations for operators; the console and the command line use nothing else.';
  const title = 'duebridge platform, admin';
  const openapi = renderOpenApi(platformAdminRoutes, { title, description });
  mountOperations(adminApp, { ready, metrics, openapi });
  return adminApp;
}

/** Opens the platform's database, checked and migrated. Throws ConfigurationError; close it with its `close`. */
export function openPlatformDatabase(
  config: Omit<ServerDatabaseOptions, 'server' | 'migrations'>,
): Promise<ServerDatabase> {
  return openServerDatabase({ ...config, server: 'platform', migrations });
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
  config: PlatformSettings,
  secrets: readonly DeploymentSecret[],
  log: Log,
  closers: (() => Promise<unknown>)[],
): Promise<Record<'front' | 'engine' | 'heartbeat', Database>> {
  const all = config.databaseConnections;
  const ofEngine = Math.max(2, Math.floor(all * ENGINE_PART));
  const databaseConnections = all - ofEngine - HEARTBEAT_CONNECTIONS;
  const opened = await openPlatformDatabase({ ...config, log, secrets, databaseConnections });
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
    ...(config.databaseAcquireMs && { acquireTimeoutMs: config.databaseAcquireMs }),
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
