/**
 * PostgreSQL for both servers: a pool with deadlines, statements prepared by name, transactions that are retried when PostgreSQL
 * asks for it, and a check that an acknowledged write is a durable one. Migrations are in migrations.ts.
 *
 * The connection's startup message contains no option that a pooler refuses (decision 34). On a direct connection the settings we
 * rely on (UTC, READ COMMITTED, time limits) are set once per session. Behind a pooler such as PgBouncer two transactions of one
 * client may run in two sessions, so there each statement runs in a transaction that applies the settings itself, and nothing is
 * prepared by name. Neither the database's defaults nor options in the address change what a statement does.
 *
 * What a caller may rely on: a row's bigint is a safe integer, its timestamptz an ISO 8601 text in UTC with milliseconds
 * (decision 12), its date the text YYYY-MM-DD; and an error is either a `DatabaseUnavailable` (try later; nothing is wrong with
 * the statement) or PostgreSQL's own error, whose SQLSTATE `sqlState` gives.
 *
 * One file because its parts share private state: a session of the pool, how it may be used, and what an error says about it.
 */
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import {
  DatabaseError,
  Pool,
  types,
  type ClientBase,
  type PoolClient,
  type QueryConfig,
  type QueryResult,
} from 'pg';
import { ConfigurationError, DatabaseUnavailable, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';
import { endSilentConnections, type WatchedConnection } from './silent-connections.ts';

/** One SQL statement. Named ones are parsed and planned once per connection; the name must be unique to the text. */
export interface NamedStatement {
  readonly name: string;
  readonly text: string;
}
/** A statement prepared by name, or plain text that is parsed each time (setup, tools, tests). */
export type Statement = NamedStatement | string;

/** A statement that is prepared under a name made of its text, which is put together of texts of ours alone: values are parameters. */
export function sql(text: string): NamedStatement;
/** The same under a name that tests watch for: unique in the process, at most 63 bytes (PostgreSQL cuts longer ones). */
export function sql(name: string, text: string): NamedStatement;
export function sql(name: string, text?: string): NamedStatement {
  if (text === undefined) return { name: crypto.hash('sha1', name), text: name };
  assert(name.length > 0 && Buffer.byteLength(name) <= 63, `statement name ${name} is too long`);
  return { name, text };
}

/** Runs statements inside one transaction; unusable after it ended. */
export interface Transaction {
  query<Row = Record<string, unknown>>(
    statement: Statement,
    values?: readonly unknown[],
  ): Promise<Row[]>;
}

/** Options of a transaction. */
export interface TransactionOptions {
  /** READ COMMITTED is the default, whatever the database's is: the safe shape of an idempotent insert needs it. */
  isolation?: 'read committed' | 'repeatable read' | 'serializable';
  /** Time limit of each of its statements in milliseconds, instead of the pool's; 0 is none (migrations). */
  statementTimeoutMs?: number;
  /** How long each of its statements waits for one lock, in milliseconds; default: as long as the statement may take. */
  lockTimeoutMs?: number;
}

/** A pool of connections to one database. */
export interface Database {
  /**
   * Runs one statement in its own transaction. Throws DatabaseUnavailable, or PostgreSQL's error. Retried only when PostgreSQL
   * reports a rollback (40001, 40P01), never when its answer was lost, because the statement may have been executed.
   */
  query<Row = Record<string, unknown>>(
    statement: Statement,
    values?: readonly unknown[],
  ): Promise<Row[]>;
  /**
   * Runs `work` in a transaction and returns its result after the commit. On a serialization failure or deadlock (40001, 40P01) the
   * whole of `work` runs again, so it must do nothing outside the database. An error that `work` throws rolls back and is thrown.
   * A connection lost before COMMIT was sent is `not_executed`; one lost while its answer was awaited is `unknown`, never repeated.
   */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /**
   * Runs `work` on one connection outside a transaction: session locks, index builds, tools. Its session ends with it. Throws
   * ConfigurationError behind a pooler, which lends one session to several. The client waits for an answer without end: what limits a statement is the server's setting alone.
   */
  withConnection<T>(work: (connection: Transaction) => Promise<T>): Promise<T>;
  /** Connections that it may open. */
  readonly connections: number;
  /** Counts of the pool: open connections, those at rest, and callers waiting for one. */
  stats(): { open: number; idle: number; waiting: number };
  /** Ends all connections after the running statements. Later calls fail as DatabaseUnavailable. Calling it again is harmless. */
  close(): Promise<void>;
}

/** How to reach a database, and its time limits. */
export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database?sslmode=…`. */
  url: string;
  /** Shown in pg_stat_activity, so that an operator can tell who holds a connection. */
  applicationName: string;
  /** Connections at most; default 10: beyond a few per core PostgreSQL gains nothing, and group commit needs few. */
  maxConnections?: number;
  /** PostgreSQL cancels a statement that runs longer, in milliseconds; default 10,000: under the 15 s a platform waits for an answer. */
  statementTimeoutMs?: number;
  /** How long a caller waits for a free connection or a new one, in milliseconds; default 5,000. */
  acquireTimeoutMs?: number;
  /** Callers that may wait for a connection; the next is refused at once. Default 5,000: a queue beyond that outlives its deadlines. */
  maxWaiting?: number;
  /**
   * Restricts plans to nested loops over indexes, whatever the statistics say. For a caller whose every statement names keys. A
   * new table has no statistics, and a plan that was right while it was empty is kept for minutes while it fills: an update of 64
   * rows then joined all of it and took 2.7 s. A statement is planned once per connection, not anew at each of its first executions.
   */
  plansByKey?: boolean;
  /** PostgreSQL gives up a statement that waits longer for a lock, in milliseconds; default: as long as the statement may take. */
  lockTimeoutMs?: number;
  log?: Log;
}

/** Retries of a transaction that PostgreSQL rolled back; a contended row resolves within a few, a wrong lock order never does. */
const MAX_ATTEMPTS = 8;
/** First pause between two attempts in milliseconds; doubled each time, jittered, so that the same two do not meet again. */
const FIRST_PAUSE_MS = 4;
/** The client's own limit, above the server's: it ends a call whose connection died silently. */
const DEAD_CONNECTION_GRACE_MS = 5_000;

/** An idle connection is probed by TCP after this long, so that one that is dead is replaced before it is needed. */
const KEEP_ALIVE_MS = 5_000;

/** Opens a pool. No connection is made until the first statement. Throws ConfigurationError when the url cannot be read. */
export function openDatabase(options: DatabaseOptions): Database {
  const log = options.log ?? silentLog;
  const statementTimeoutMs = options.statementTimeoutMs ?? 10_000;
  const maxWaiting = options.maxWaiting ?? 5_000;
  assertDatabaseUrl(options.url);
  const pool = new Pool({
    connectionString: options.url,
    application_name: options.applicationName,
    max: options.maxConnections ?? 10,
    connectionTimeoutMillis: options.acquireTimeoutMs ?? 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    ...(statementTimeoutMs > 0
      ? { query_timeout: statementTimeoutMs + DEAD_CONNECTION_GRACE_MS }
      : undefined),
    types: { getTypeParser: (type: number) => PARSERS[type] ?? ordinaryParser(type) },
  });
  // An idle connection that breaks (restart, failover) is dropped by the pool; without a listener Node would end the process.
  pool.on('error', (error) => log.warn({ error: messageOf(error) }, 'idle connection lost'));
  // The same on a connection in use, whose statement reports the failure.
  pool.on('connect', (client) => client.on('error', () => undefined));

  let closing: Promise<void> | undefined;
  /** The state of each connection of the pool. */
  const sessions = new Map<PoolClient, Session>();
  pool.on('remove', (client) => sessions.delete(client));
  const stopWatching = endSilentConnections({
    url: options.url,
    all: () => sessions.values(),
    log,
  });

  const withClient = async <T>(
    work: (session: Session) => Promise<T>,
    isForOnce = false,
  ): Promise<T> => {
    if (closing) throw new DatabaseUnavailable('the database pool is closed', 'not_executed');
    if (pool.waitingCount >= maxWaiting) {
      throw new DatabaseUnavailable('too many callers wait for a connection', 'not_executed');
    }
    let client: PoolClient;
    try {
      client = await pool.connect();
    } catch (error) {
      throw new DatabaseUnavailable(`no connection: ${messageOf(error)}`, 'not_executed', {
        cause: error,
      });
    }
    let session = sessions.get(client);
    if (session === undefined) {
      try {
        session = await setUp(client, {
          ...settingsOf(statementTimeoutMs),
          ...(options.plansByKey === true ? PLANS_BY_KEY : {}),
          ...(options.lockTimeoutMs === undefined
            ? {}
            : { lock_timeout: String(options.lockTimeoutMs) }),
        });
        sessions.set(client, session);
      } catch (error) {
        client.release(true);
        throw explained(error, 'not_executed');
      }
    }
    try {
      const result = await work(session);
      client.release(isForOnce);
      return result;
    } catch (error) {
      client.release(isForOnce || breaksSession(error));
      throw explained(error, 'unknown');
    }
  };

  return {
    query: <Row>(statement: Statement, values?: readonly unknown[]) =>
      withRetries(log, () =>
        withClient((session) =>
          session.pooled
            ? oneTransaction(session, (tx) => tx.query<Row>(statement, values))
            : runRefreshed<Row>(session, statement, values),
        ),
      ),
    transaction: (work, transactionOptions) =>
      withRetries(log, () =>
        withClient((session) => oneTransaction(session, work, transactionOptions)),
      ),
    // The session may hold a lock or other settings: that connection is not used again.
    withConnection: (work) =>
      withClient((session) => {
        if (session.pooled) {
          throw new ConfigurationError(
            'this needs one session: run the migrate command with a direct connection to PostgreSQL, not through a pooler',
          );
        }
        const query: Transaction['query'] = (statement, values) =>
          run(session, statement, values, NO_CLIENT_TIMEOUT_MS);
        return work({ query });
      }, true),
    connections: pool.options.max,
    stats: () => ({ open: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
    close: () => (closing ??= pool.end().finally(stopWatching)),
  };
}

function assertDatabaseUrl(url: string): void {
  const protocol = URL.canParse(url) ? new URL(url).protocol : '';
  if (protocol !== 'postgres:' && protocol !== 'postgresql:') {
    throw new ConfigurationError(
      'the database address cannot be read: give it as postgres://user:password@host:port/database',
    );
  }
}

/** A connection of the pool, and how it is to be used. */
interface Session extends WatchedConnection {
  readonly client: ClientBase;
  askedAt: number | undefined;
  /** Whether there is a pooler in between: then the session belongs to a transaction, not to the connection. */
  pooled: boolean;
  /** `SET LOCAL …` of the settings that a transaction has to make itself behind a pooler; empty on a direct connection. */
  settings: string;
}

/** The settings of each session. */
function settingsOf(statementTimeoutMs: number): Record<string, string> {
  return {
    // Text forms of time depend on these two; the parsers below rely on them.
    TimeZone: 'UTC',
    DateStyle: 'ISO, MDY',
    // Migrations write regular expressions as '\S', which a database with the old rule for strings would store as 'S'.
    standard_conforming_strings: 'on',
    default_transaction_isolation: 'read committed',
    statement_timeout: String(statementTimeoutMs),
    // A session that stops in the middle of a transaction (a stalled process) must not hold its row locks forever.
    idle_in_transaction_session_timeout: String(statementTimeoutMs),
  };
}

/**
 * JIT compilation is off as well: a plan that can only scan would look expensive enough to trigger it. So are plans for the values of
 * one execution: five hundred ids looked like more than all of a small table, which was then read for each of them. Citus keeps its own
 * choice: it sends most statements to a node by their values, and refuses a generic plan of them.
 */
const PLANS_BY_KEY = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  jit: 'off',
};

/**
 * Applies the settings to a new connection, and detects a pooler. PostgreSQL sends each client its session's process id; a pooler
 * sends one that it made up. One statement does both, so that behind a pooler, where the settings would stay in somebody else's
 * session, they end with it.
 */
async function setUp(
  client: PoolClient,
  settings: Readonly<Record<string, string>>,
): Promise<Session> {
  const processId = Number((client as { processID?: unknown }).processID);
  const result = await client.query<{ pooled: boolean; name: string }>({
    text: `SELECT pg_backend_pid() <> $1 AS pooled, name, set_config(name, value, pg_backend_pid() <> $1)
             FROM unnest($2::text[], $3::text[]) AS setting (name, value)
            WHERE name <> 'plan_cache_mode' OR NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`,
    values: [processId, Object.keys(settings), Object.values(settings)],
  });
  const pooled = result.rows[0]?.pooled !== false;
  const set = new Set(result.rows.map(({ name }) => name));
  const { stream } = (client as PoolClient & { connection: { stream: Duplex } }).connection;
  return {
    client,
    pooled,
    processId: pooled ? undefined : processId,
    askedAt: undefined,
    destroy: () => void stream.destroy(new Error('Connection terminated: it fell silent')),
    settings: pooled
      ? Object.entries(settings)
          .filter(([name]) => set.has(name) && name !== 'default_transaction_isolation') // BEGIN says it
          .map(([name, value]) => `; SET LOCAL ${name} = '${value}'`)
          .join('')
      : '',
  };
}

/** Sends one statement and waits for its answer. */
async function ask(session: Session, statement: string | QueryConfig): Promise<QueryResult> {
  session.askedAt = performance.now();
  try {
    return await session.client.query(statement);
  } finally {
    session.askedAt = undefined;
  }
}

/** Without a name and values the text may have several statements. */
async function run<Row>(
  session: Session,
  statement: Statement,
  values: readonly unknown[] = [],
  clientTimeoutMs?: number,
): Promise<Row[]> {
  const config: QueryConfig & { query_timeout?: number } =
    typeof statement === 'string' || session.pooled
      ? { text: typeof statement === 'string' ? statement : statement.text, values: [...values] }
      : { ...statement, values: [...values] };
  if (clientTimeoutMs !== undefined) config.query_timeout = clientTimeoutMs;
  const result = await ask(session, config);
  // The caller declares the row type of its own statement; it cannot be checked here.
  return result.rows as Row[];
}

/**
 * Outside a transaction, a plan that a migration made stale (0A000 from the plan cache) is parsed afresh under another name and
 * run again: the refusal came before execution, so nothing happened twice. Inside one, the caller gets the error and retries.
 */
async function runRefreshed<Row>(
  session: Session,
  statement: Statement,
  values?: readonly unknown[],
): Promise<Row[]> {
  try {
    return await run<Row>(session, statement, values);
  } catch (error) {
    const isStale = error instanceof DatabaseError && error.routine === 'RevalidateCachedQuery';
    if (typeof statement === 'string' || !isStale) throw error;
    return run<Row>(session, statement.text, values);
  }
}

/** The longest time limit that a timer of Node takes, in milliseconds: 24 days. The client library takes 0 as "the pool's". */
const NO_CLIENT_TIMEOUT_MS = 2 ** 31 - 1;

async function oneTransaction<T>(
  session: Session,
  work: (tx: Transaction) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  const { isolation = 'read committed', statementTimeoutMs: limitMs, lockTimeoutMs } = options;
  const clientTimeoutMs =
    limitMs === 0 ? NO_CLIENT_TIMEOUT_MS : limitMs && limitMs + DEAD_CONNECTION_GRACE_MS;
  const begin = [
    `BEGIN ISOLATION LEVEL ${isolation}${session.settings}`,
    ...(limitMs === undefined ? [] : [`SET LOCAL statement_timeout = ${limitMs}`]),
    ...(lockTimeoutMs === undefined ? [] : [`SET LOCAL lock_timeout = ${lockTimeoutMs}`]),
  ].join('; ');
  let ended = false;
  // Whether a lost connection may have committed.
  let outcome: 'not_executed' | 'unknown' = 'not_executed';
  try {
    await ask(session, begin);
    const result = await work({
      query: (statement, values) => {
        assert(!ended, 'a statement was sent to a transaction that has ended');
        return run(session, statement, values, clientTimeoutMs);
      },
    });
    ended = true;
    outcome = 'unknown';
    const { command } = await ask(session, 'COMMIT');
    // PostgreSQL answers COMMIT of a failed transaction with ROLLBACK: a statement's error was swallowed inside `work`.
    assert.equal(command, 'COMMIT', 'a transaction whose statement failed was committed');
    return result;
  } catch (error) {
    ended = true;
    const trouble = explained(error, outcome);
    if (!breaksSession(trouble)) {
      await ask(session, 'ROLLBACK').catch((lost: unknown) => {
        throw explained(lost, 'not_executed');
      });
    }
    throw trouble;
  }
}

async function withRetries<T>(log: Log, attempt: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await attempt();
    } catch (error) {
      const state = sqlState(error);
      if (state !== '40001' && state !== '40P01') throw error;
      if (tried >= MAX_ATTEMPTS) {
        const sentence = 'a transaction conflicted with others at every attempt';
        throw new DatabaseUnavailable(sentence, 'not_executed', { cause: error });
      }
      log.debug({ state, tried }, 'transaction retried');
      await delay(FIRST_PAUSE_MS * 2 ** (tried - 1) * (0.5 + Math.random()));
    }
  }
}

/** The SQLSTATE of PostgreSQL's error (`23505`), looking through DatabaseUnavailable to its cause; undefined for anything else. */
export function sqlState(error: unknown): string | undefined {
  if (error instanceof DatabaseError) return error.code;
  if (error instanceof DatabaseUnavailable) return sqlState(error.cause);
  return undefined;
}

/**
 * The constraint PostgreSQL names in an error, if any: to tell which unique rule a 23505 broke. Citus passes on a node's error without
 * that field, so the name is then read from the message, where the shard's number follows it: `constraint "payments_pkey_102080"`.
 */
export function constraintOf(error: unknown): string | undefined {
  if (!(error instanceof DatabaseError)) return undefined;
  return error.constraint ?? /constraint "(\w+?)(?:_\d{6,})?"/.exec(error.message)?.[1];
}

/** Whether the error is caused by the database or the network, not by the statement. */
export function isDatabaseTrouble(error: unknown): boolean {
  return error instanceof DatabaseUnavailable || explained(error, 'unknown') !== error;
}

/**
 * Whether the session may not be used again. A statement that PostgreSQL gave up after its time, or after its wait for a lock, costs its
 * transaction alone: new connections beside accounts that stay locked took the processor from healthy payments.
 */
function breaksSession(error: unknown): boolean {
  return isDatabaseTrouble(error) && !['57014', '55P03'].includes(sqlState(error) ?? '');
}

/** SQLSTATEs that end the connection, so that the outcome is open: connection exceptions, shutdowns, the operating system beneath. */
const LOST = /^(08|57P|58)/;
/**
 * SQLSTATEs of a database that answers and cannot work, which has rolled back: disk full, out of memory, too many connections (53); no
 * longer admitted (28, 3D000); read only, as a replica is after a failover (25006); limits of a statement (57014), of a lock (55P03), of a
 * transaction (25P03, 25P04).
 */
const UNABLE = /^(53|28|3D000|25006|57014|55P03|25P03|25P04)/;

/** Failures of the socket or the client library itself, known by code or by the texts of pg 8 and pg-pool 3. */
const SOCKET_TROUBLE =
  /^(ECONN|EPIPE$|ETIMEDOUT$|EHOST|ENET|ENOTFOUND$|EAI_|EADDR|EMFILE$|ENFILE$|ENOENT$|EACCES$)/;
const CLIENT_TROUBLE =
  /^(Connection terminated|Client has encountered a connection error|Client was closed|timeout exceeded|Query read timeout|Cannot use a pool)/;

function explained(error: unknown, outcomeWhenLost: 'not_executed' | 'unknown'): unknown {
  if (error instanceof DatabaseUnavailable || !(error instanceof Error)) return error;
  if (error instanceof DatabaseError) {
    const state = error.code ?? '';
    if (!LOST.test(state) && !UNABLE.test(state)) return error;
    const outcome = LOST.test(state) ? outcomeWhenLost : 'not_executed';
    return new DatabaseUnavailable(`PostgreSQL: ${error.message}`, outcome, { cause: error });
  }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  if (!SOCKET_TROUBLE.test(code) && !CLIENT_TROUBLE.test(error.message)) return error;
  return new DatabaseUnavailable(`connection lost: ${error.message}`, outcomeWhenLost, {
    cause: error,
  });
}

// Types --------------------------------------------------------------------------------------------------------------------

/** The library's own parsers; its types know only the numbers it has names for. */
const ordinaryParser = types.getTypeParser as (type: number) => (text: string) => unknown;

/** By the type's number in PostgreSQL (pg_type.oid), fixed since its beginning: int8, its array, date, timestamp, timestamptz. */
const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  20: safeInteger,
  1016: (text) =>
    (ordinaryParser(1016)(text) as (string | null)[]).map((item) => item && safeInteger(item)),
  1082: String,
  1114: String,
  1184: isoUtc,
};

function safeInteger(text: string): number {
  const value = Number(text);
  assert(Number.isSafeInteger(value), 'a bigint column contains a value above 2^53');
  return value;
}

/** `2026-03-01 09:30:00.123456+00` to `2026-03-01T09:30:00.123Z`. Microseconds are cut, not rounded, so that order is kept. */
function isoUtc(text: string): string {
  // What nearly every time is: years of four digits, and a fraction of at least three. A row in flight has five of them.
  if (text.length >= 26 && text.length <= 29 && text.endsWith('+00') && text[10] === ' ') {
    return `${text.slice(0, 10)}T${text.slice(11, 23)}Z`;
  }
  const parts = /^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00$/.exec(text);
  assert(parts, 'a timestamptz column contains no ordinary UTC time');
  return `${parts[1]}T${parts[2]}.${(parts[3] ?? '').slice(0, 3).padEnd(3, '0')}Z`;
}
