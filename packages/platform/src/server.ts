/**
 * One platform process: everything opened in order, mounted on two listeners, closed in reverse. Nothing is decided here.
 *
 * The public listener takes Create Token, the flow API and the pages; the admin listener takes the admin API and the figures, and is
 * bound to this machine unless it is told otherwise.
 *
 * One file because it is a list: what is opened, in which order, and mounted where.
 */
import { createSecretKey, hkdfSync } from 'node:crypto';
import { platformAdminRoutes, platformRoutes, renderOpenApi } from '@duebridge/contract';
import {
  ConfigurationError,
  addressKey,
  bearerOf,
  createLogger,
  createMetrics,
  createServer,
  hostsOf,
  keepSealing,
  listen,
  mount,
  mountOperations,
  openAuditChain,
  openDatabase,
  openServerDatabase,
  rateLimiter,
  systemClock,
  takesWrites,
  tooManyRequests,
  type Database,
  type DeploymentSecret,
  type Log,
  type ServerDatabase,
  type ServerDatabaseOptions,
} from '@duebridge/runtime';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { mountAdmin } from './admin/admin.ts';
import { serveConsole } from './admin/console.ts';
import { mountOpenId } from './admin/openid.ts';
import { openOperators } from './admin/operators.ts';
import { keepGauges, openFigures } from './admin/overview.ts';
import { adminAuthentication, mountSignIn } from './admin/sign-in.ts';
import { readSecrets, type PlatformConfig } from './config.ts';
import { createEngine } from './engine/engine.ts';
import { keepMailing } from './checkout/mail.ts';
import { openPaymentEvents, type PaymentEvents } from './checkout/events.ts';
import type { Session } from './checkout/flow.ts';
import { openAdapters } from './funding/configured.ts';
import { openFunds, type Funds } from './funding/funds.ts';
import { openSandbox } from './funding/sandbox.ts';
import { keepSweeping } from './funding/sweep.ts';
import { mountProcessorEvents } from './funding/processor-events.ts';
import { openClientKeys, type Client, type ClientKeys } from './checkout/keys.ts';
import { servePages } from './checkout/pages.ts';
import { serveTestApproval } from './checkout/test-approval.ts';
import { createPartnerClient } from './partners/client.ts';
import { openPartnerRegistry } from './partners/registry.ts';
import { openAccountReads } from './checkout/account-reads.ts';
import { openPayments, withAction, type Payments } from './checkout/confirm.ts';
import { openLostPayments } from './checkout/lost-payments.ts';
import { keepForgetting } from './checkout/retention.ts';
import { migrations } from './migrations.ts';
import { openReconciliations } from './reconciliation/reconcile.ts';
import { openSealer } from './partners/seal.ts';
import { keepAttempts, openAttempts } from './store/attempts.ts';
import { findPayment } from './store/payments.ts';
import { openSessions, type Sessions } from './checkout/session.ts';
import { openTokens, type Tokens } from './checkout/token.ts';
import { openVisits, type Visits } from './checkout/visit.ts';
import { auditTables } from './store/audit.ts';

/** Version of both APIs in their OpenAPI documents: the `/v1` of the paths (VE1). */
const API_VERSION = '1';
/** Clients and addresses whose rate is remembered at most; one more forgets the one unheard of for longest. */
const MAX_RATE_KEYS = 100_000;

/** Reads of one session, each of which asks the partner: a page reads when it opens, after a confirm, and every few seconds in trouble. */
const SESSION_READS = { perSecond: 1, burst: 20 };

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
  const allowPrivateAddresses = config.allowPrivateAddresses ?? false;
  // First: a platform that cannot start with these settings leaves nothing behind, neither files nor a database that is migrated.
  const { adapters, offersSandbox } = await openAdapters(config);
  if (config.smtpUrl !== undefined && config.mailFrom === undefined) {
    throw new ConfigurationError(
      'DUEBRIDGE_SMTP_URL is set without a sender: set DUEBRIDGE_MAIL_FROM, such as Payments <pay@example.com>',
    );
  }
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

  const stopping = new AbortController();
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
    signal: stopping.signal,
  });
  const events = openPaymentEvents({ engine, clock });
  metrics.gauge('duebridge_event_streams', 'Payment event streams open now', [], () => events.size);
  for (const [pool, opened] of Object.entries({
    front: database,
    engine: engineDatabase,
    heartbeat,
  })) {
    for (const state of ['open', 'idle', 'waiting'] as const) {
      const what =
        state === 'waiting' ? 'Callers waiting for a connection' : `Connections ${state}`;
      metrics.gauge(
        `duebridge_pool_${pool}_${state}`,
        `${what}, ${pool}`,
        [],
        () => opened.stats()[state],
      );
    }
  }
  const watching = lost.watch(stopping.signal);
  const forgetting = keepForgetting({ database, clock, log, signal: stopping.signal });
  const mailing =
    config.smtpUrl === undefined || config.mailFrom === undefined
      ? Promise.resolve()
      : keepMailing({
          database,
          registry,
          sealer,
          transport: { url: config.smtpUrl, from: config.mailFrom },
          clock,
          log,
          signal: stopping.signal,
        });
  // Keyed with what is outside the database, so that whoever can write to it cannot make seals of their own.
  const sealing = hkdfSync('sha256', keyPepper, '', 'duebridge audit seals', 32);
  const auditChain = openAuditChain({
    database,
    tables: auditTables,
    key: createSecretKey(Buffer.from(sealing)),
  });
  metrics.gauge(
    'duebridge_audit_seal_age_seconds',
    'Time since when the audit has not been sealed',
    [],
    () => auditChain.ageMs / 1_000,
  );
  const sealed = keepSealing({ chain: auditChain, clock, log, signal: stopping.signal });
  const sweeping = keepSweeping({ funds: funding, clock, log, signal: stopping.signal });
  const figures = openFigures(database);
  const gauges = keepGauges({ database, metrics, figures, clock, log, signal: stopping.signal });
  closers.push(async () => {
    stopping.abort();
    // A mail server that is silent holds up no stop.
    const late = new AbortController();
    await Promise.race([
      Promise.all([forgetting, gauges, mailing, sealed, sweeping, watching]),
      clock.sleep(LOOPS_STOP_MS, late.signal),
    ]);
    late.abort();
  });

  const ready = async (): Promise<Record<string, boolean>> => ({
    database: await takesWrites(database),
    ...engine.health,
  });
  const { hstsSeconds, trustedProxies } = config;
  const publicApp = createServer({ log, clock, metrics, hstsSeconds, trustedProxies });
  limitAddresses(publicApp, config);
  const visits = openVisits({ database, registry, sealer, sealKeys: sealKey, clock });
  mountPublic(publicApp, { config, keys, tokens, sessions, payments, events, funding, visits });
  mountProcessorEvents(publicApp, { funding, log });
  serveTestApproval(publicApp, { sandbox, funding, find: (id) => findPayment(database, id) });
  servePages(publicApp, {
    registry,
    visits,
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

  // One server of a process keeps the figures of requests: the one that the world asks.
  const adminHost = config.adminHost ?? '127.0.0.1';
  const adminApp = createServer({
    log,
    clock,
    hstsSeconds,
    trustedProxies,
    hosts: hostsOf(adminHost, config.adminHosts),
  });
  const operators = openOperators({ database, adminKey, pepper: keyPepper, clock });
  const reconciliations = openReconciliations({ database, registry, client, clock });
  closers.push(() => reconciliations.stop());
  mountAdmin(adminApp, {
    log,
    database,
    registry,
    client,
    reconciliations,
    keys,
    operators,
    attempts,
    figures,
    engine,
    auditChain,
    sealer,
    pepper: keyPepper,
    clock,
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
  // First of all, and beside each other: no reader of a listener may use up the time in which the slots are given back.
  closers.push(async () => {
    stopping.abort();
    await Promise.all([engine.stop(), publicApp.close(), adminApp.close()]);
  });
  log.info({ url, admin_url: adminUrl }, 'the platform is up');
  return { url, adminUrl, adminKey };
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

/** Who a request was found to come from: put there before its body is read, taken by its handler. */
interface Callers<T> {
  set(request: FastifyRequest, caller: T): void;
  get(request: FastifyRequest): T;
}

function callers<T extends object>(): Callers<T> {
  const found = new WeakMap<FastifyRequest, T>();
  return {
    set: (request, caller) => void found.set(request, caller),
    get(request) {
      const caller = found.get(request);
      if (caller === undefined) throw new Error('a handler ran for a caller nobody knows');
      return caller;
    },
  };
}

/** Routes that are not counted. */
const UNCOUNTED = new Set(['/healthz', '/readyz', '/v1/funding/:adapter/events']);

/**
 * Limits the requests of each address before anything is looked at: guessing and flooding end here, pages and files included. Probes
 * and a processor's signed events, which come in bulk from few addresses, are not counted.
 */
function limitAddresses(app: FastifyInstance, config: PlatformConfig): void {
  const rate = 'ipRate' in config ? config.ipRate : { perSecond: 200, burst: 400 };
  if (rate === undefined) return;
  const clock = config.clock ?? systemClock;
  const perAddress = rateLimiter({ ...rate, maxKeys: MAX_RATE_KEYS, clock });
  app.addHook('onRequest', (request, _reply, done) => {
    const route = request.routeOptions.url;
    if (route !== undefined && UNCOUNTED.has(route)) {
      done();
      return;
    }
    const permit = perAddress.take(addressKey(request.ip));
    done(permit.ok ? undefined : tooManyRequests(permit.retryAfterSeconds));
  });
}

function mountPublic(
  app: FastifyInstance,
  stages: {
    config: PlatformConfig;
    keys: ClientKeys;
    tokens: Tokens;
    sessions: Sessions;
    payments: Payments;
    events: PaymentEvents;
    funding: Funds;
    visits: Visits;
  },
): void {
  const { config, keys, tokens, sessions, payments, events, funding, visits } = stages;
  const clock = config.clock ?? systemClock;
  const clientRate = config.clientRate ?? { perSecond: 25, burst: 50 };
  const perClient = rateLimiter({ ...clientRate, maxKeys: MAX_RATE_KEYS, clock });

  const clients = callers<Client>();
  mount(
    app,
    platformRoutes.create_token,
    async ({ body, request, reply }) => {
      const { token, expires_at } = await tokens.create(clients.get(request), body);
      reply.header('Token-Expires-At', expires_at);
      return { token };
    },
    {
      async onRequest(request) {
        const caller = await keys.verify(
          oneHeader(request, 'x-client-id'),
          oneHeader(request, 'x-api-key'),
        );
        const permit = perClient.take(caller.client_id);
        if (!permit.ok) throw tooManyRequests(permit.retryAfterSeconds);
        clients.set(request, caller);
      },
    },
  );

  mount(app, platformRoutes.create_flow_session, ({ body, request }) =>
    sessions.open(bearerOf(request), body),
  );

  const sessionOf = callers<Session>();
  const withSession = {
    async onRequest(request: FastifyRequest): Promise<void> {
      sessionOf.set(request, await sessions.authenticate(bearerOf(request)));
    },
  };
  const perSession = rateLimiter({ ...SESSION_READS, maxKeys: MAX_RATE_KEYS, clock });
  mount(
    app,
    platformRoutes.get_flow_session,
    ({ request }) => {
      const session = sessionOf.get(request);
      const permit = perSession.take(session.session_id);
      if (!permit.ok) throw tooManyRequests(permit.retryAfterSeconds);
      return sessions.read(session);
    },
    withSession,
  );
  mount(
    app,
    platformRoutes.create_flow_payment,
    async ({ body, request }) =>
      withAction(await payments.confirm(sessionOf.get(request), body), funding),
    withSession,
  );
  mount(
    app,
    platformRoutes.create_flow_return,
    ({ body, request }) => visits.leave(sessionOf.get(request), body),
    withSession,
  );
  mount(
    app,
    platformRoutes.get_flow_payment,
    async ({ params, request }) =>
      withAction(await payments.read(sessionOf.get(request), params.platform_payment_id), funding),
    withSession,
  );
  mount(
    app,
    platformRoutes.get_flow_payment_events,
    async ({ params, request, reply, signal }) => {
      const session = sessionOf.get(request);
      const { platform_payment_id } = params;
      await events.follow({
        reply,
        signal,
        flow: session.flow_id?.toString('hex') ?? session.session_id,
        address: request.ip,
        expiresAt: Date.parse(session.expires_at),
        platform_payment_id,
        read: () => payments.read(session, platform_payment_id),
      });
      // The stream was the answer.
      return '';
    },
    withSession,
  );
}

function oneHeader(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
