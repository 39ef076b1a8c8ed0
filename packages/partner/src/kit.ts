/**
 * Assembles the kit: mounts authentication and the stages on a server that parses strictly, and starts and stops them with it. No
 * decisions are made here. plugin.ts and handler.ts embed such a server in what the partner already runs.
 */
import {
  conflict,
  Refusal,
  partnerRoutes,
  type PartnerPaths,
  type Route,
} from '@duebridge/contract';
import {
  checkDurability,
  ConfigurationError,
  keepSealing,
  mount,
  OAuthRefusal,
  AuditChain,
  silentLog,
  systemClock,
  type Clock,
  type Database,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { openAccountReads } from './account-reads.ts';
import { openAcceptance } from './accept.ts';
import {
  checkedOutcome,
  type AccountSystem,
  type BillerRules,
  type FinalOutcome,
} from './account-system.ts';
import { Applier, type KitHealth } from './apply.ts';
import { openAuthenticator, type AuthOptions } from './auth.ts';
import type { EndedByHand } from './end-by-hand.ts';
import { ledger } from './ledger.ts';
import { kitMetrics } from './metrics.ts';
import { openStatements } from './statement.ts';
import { openStatusReads, waitPreference } from './status.ts';
import { auditTables, recordOf, toRecord, type PaymentRow } from './store.ts';
import { traced } from './traces.ts';

/** Path templates of the operations; absent ones are the defaults. */
export type KitPaths = PartnerPaths & { readonly access_token?: string };

/** The whole path of one operation. */
function pathOf(id: keyof KitPaths, { paths = {}, prefix = '' }: Where): string {
  return `${prefix}${paths[id] ?? partnerRoutes[id].path}`;
}

type Where = Pick<PartnerKitOptions, 'paths' | 'prefix'>;

/** Method and whole path of each operation served by a kit with these options. */
export function servedPaths(
  options: Where & Pick<PartnerKitOptions, 'auth'>,
): readonly { readonly method: Route['method']; readonly path: string }[] {
  return (Object.keys(partnerRoutes) as (keyof KitPaths)[])
    .filter((id) => id !== 'access_token' || options.auth.method === 'oauth')
    .map((id) => ({ method: partnerRoutes[id].method, path: pathOf(id, options) }));
}

/** The options of the kit. */
export interface PartnerKitOptions {
  /** Holds the kit's own tables, created by `migratePartner`. */
  readonly database: Database;
  /** How the operations are protected (S3). */
  readonly auth: AuthOptions;
  /** The account system; default: `ledger(database)`. */
  readonly accounts?: AccountSystem;
  /** The billers served, with their rules. Default: every biller that has accounts, without rules. */
  readonly billers?: readonly BillerRules[];
  /** Path templates that differ from the defaults (decision 1); each must contain the same fields. */
  readonly paths?: KitPaths;
  /** Prefix of every path, such as `/pay`; default none. */
  readonly prefix?: string;
  /** Time between acceptance and posting in which an operator can cancel, in milliseconds (ST4); default 0. */
  readonly holdMs?: number;
  readonly clock?: Clock;
  /** Default: in a server of your own, warnings and errors as JSON lines on standard error; on a server of `createServer`, nothing. */
  readonly log?: Log;
  readonly metrics?: Metrics;
}

/** What a running kit offers besides its routes: `app.partnerKit`. */
export interface PartnerKit {
  /** Cancels a payment that is processing (ST4, decision 18); `actor` and `reason` are kept in the audit. */
  cancel(platform_payment_id: string, actor: string, reason: string): Promise<EndedByHand>;
  /**
   * Ends a payment as the biller's own system reports it (for one that answered `later` and calls back); `actor` is kept in the
   * audit. Reporting the same again is harmless; a report that contradicts a recorded end changes nothing and is kept in the audit.
   * Throws WrongAnswer when the outcome is not a valid one, and Refusal CONFLICT when the accounts are in the kit's own database.
   */
  settle(
    platform_payment_id: string,
    outcome: FinalOutcome,
    actor?: string,
    reason?: string,
  ): Promise<EndedByHand>;
  /** Whether accepted payments are being applied, for a readiness check; every field is true while they are. */
  readonly health: KitHealth;
}

declare module 'fastify' {
  interface FastifyInstance {
    partnerKit: PartnerKit;
  }
}

/**
 * Mounts the operations of the interface (S2) on a server made by `createServer`. The server starts to apply payments when it is
 * ready and stops when it closes.
 * Throws ConfigurationError when the options or a database that loses what it acknowledged would put money at risk.
 */
export async function mountKit(app: FastifyInstance, options: PartnerKitOptions): Promise<void> {
  const { database } = options;
  if (!/^(\/[A-Za-z0-9._~-]+)*$/.test(options.prefix ?? '')) {
    throw new ConfigurationError("the prefix must be the beginning of a path, such as '/pay'");
  }
  await checkDurability(database);
  const { clock = systemClock, log = silentLog } = options;
  const stages = openStages(app, options, clock, log);
  app.decorate('partnerKit', kitOf(stages));
  mountInterface(app, options, stages);

  // Without a key: the kit has no secret beside its database (decision 135).
  const chain = new AuditChain({ database, tables: auditTables });
  const sealing = new AbortController();
  let sealed: Promise<void> | undefined;
  app.addHook('onReady', (done) => {
    stages.applier.start();
    sealed = keepSealing({ chain, clock, log, signal: sealing.signal });
    done();
  });
  // When the server begins to close, waiting reads end, then requests in flight are answered, and only then do the stages stop.
  app.addHook('onClose', async () => {
    sealing.abort();
    await stages.acceptance.drain();
    await Promise.all([stages.applier.stop(), stages.reads.stop(), sealed]);
  });
}

type Stages = ReturnType<typeof openStages>;

/** Opens the stages; nothing runs before the applier starts. */
function openStages(app: FastifyInstance, options: PartnerKitOptions, clock: Clock, log: Log) {
  const { auth, database, holdMs = 0 } = options;
  const accounts = options.accounts ?? ledger(database);
  const metrics = kitMetrics(options.metrics, database);
  const on = { accounts, billers: options.billers, database, metrics, log, clock };
  const authenticator = openAuthenticator({ ...on, auth });
  const { client_id } = authenticator;
  const reads = openStatusReads({ ...on, maxConnections: app.server.maxConnections });
  const applier = new Applier({ ...on, holdMs, announce: reads.announce });
  return {
    accounts,
    metrics,
    authenticator,
    reads,
    applier,
    accountReads: openAccountReads(on),
    statementOf: openStatements(database),
    acceptance: openAcceptance({ ...on, client_id, handOver: (made) => applier.take(made) }),
  };
}

/** What a running kit offers besides its routes. */
function kitOf({ accounts, applier }: Stages): PartnerKit {
  return {
    cancel: (platform_payment_id, actor, reason) =>
      applier.end(
        { platform_payment_id, status: 'canceled', failure_reason: null },
        { actor, event: 'canceled', reason },
      ),
    async settle(platform_payment_id, outcome, actor = 'account system', reason) {
      if (accounts.posts === 'in_transaction') {
        throw conflict(
          'The accounts are in the database of the kit, which ends a payment by what post answers',
        );
      }
      const checked = checkedOutcome(outcome);
      if (!('status' in checked)) throw new TypeError('settle takes posted, failed or canceled');
      return applier.end({ platform_payment_id, ...checked }, { actor, event: 'settled', reason });
    },
    get health() {
      return applier.health;
    },
  };
}

/** Mounts the operations of the interface, each behind the authenticator where the table gives it a scope. */
function mountInterface(app: FastifyInstance, options: PartnerKitOptions, stages: Stages): void {
  const { accountReads, acceptance, authenticator, metrics, reads, statementOf } = stages;
  const counted = (error: unknown): never => {
    if (error instanceof Refusal || error instanceof OAuthRefusal) metrics.count('auth_failures');
    throw error;
  };
  const on = <const K extends keyof KitPaths>(
    id: K,
    handler: Parameters<typeof mount<(typeof partnerRoutes)[K]>>[2],
  ): void => {
    const { scope } = partnerRoutes[id] as Route;
    const onRequest = async ({ headers }: FastifyRequest): Promise<void> => {
      if (scope !== undefined) await authenticator.authenticate(headers, scope).catch(counted);
    };
    mount(app, partnerRoutes[id], handler, { path: pathOf(id, options), onRequest });
  };

  const { issue } = authenticator;
  if (issue) {
    on('access_token', ({ body, reply }) => {
      // RFC 6749 section 5.1; Cache-Control: no-store is on every answer.
      reply.header('pragma', 'no-cache');
      return issue(body).catch(counted);
    });
  }
  on('get_account', ({ params }) => accountReads.account(params));
  on('get_balance', ({ params }) => accountReads.balance(params));
  on('put_account_payment', async ({ params, body, request }) => {
    const put = (): Promise<PaymentRow> => acceptance.put(params, body);
    return toRecord(await traced('accept payment', params.platform_payment_id, request, put));
  });
  on('get_account_payment', async (call) => {
    const { params, reply, request } = call;
    const id = params.platform_payment_id;
    const seconds = waitPreference(call.headers['prefer']);
    const reading = async (): Promise<{ payment: PaymentRow | undefined; applied: boolean }> =>
      seconds === 0
        ? { payment: await reads.read(id, params), applied: false }
        : reads.readWaiting(id, params, seconds * 1000, call.signal);
    const read = await traced('read payment', id, request, reading);
    if (read.applied) reply.header('preference-applied', 'wait');
    return recordOf(read.payment);
  });
  on('get_payment', async ({ params }) => recordOf(await reads.read(params.platform_payment_id)));
  on('get_batch_statement', ({ params }) => statementOf(params.platform_batch_id));
}
