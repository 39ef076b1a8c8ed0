/**
 * A service's life: configuration read once and whole, a log that cannot tell a secret, figures for Prometheus, a start that fails
 * with a sentence, and one graceful stop.
 */
import { pino, type DestinationStream, type LevelWithSilent, type Logger } from 'pino';
import {
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram,
  Registry,
  type OpenMetricsContentType,
  type PrometheusContentType,
} from 'prom-client';
import { ConfigurationError, messageOf } from './errors.ts';
import { silentLog, type Log } from './log.ts';

// Configuration ------------------------------------------------------------------------------------------------------------

/** Reads one variable's text; throws an Error whose message says what is wrong without quoting the text. */
export type Parser<T> = (text: string) => T;

/** One variable of the environment. Without `default` it is required; an empty text counts as unset. */
export interface Variable<T> {
  readonly name: string;
  readonly parse: Parser<T>;
  readonly description: string;
  readonly default?: T;
}

/** Any text. */
export const text: Parser<string> = (value) => value;

/** A secret: at least 16 characters, without spaces or control characters, which headers and shells lose. */
export const secret: Parser<string> = (value) => {
  if (value.length < 16) throw new Error('must be at least 16 characters long');
  if (!/^[\u0021-\u007e]+$/.test(value)) throw new Error('must be visible ASCII without spaces');
  return value;
};

/** A whole number between two bounds, both allowed. */
export function integer(min: number, max: number): Parser<number> {
  return (value) => {
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) {
      throw new Error(`must be a whole number from ${min} to ${max}`);
    }
    return number;
  };
}

/** An absolute address with one of the given schemes (`https:`); gives it as written. */
export function address(...schemes: string[]): Parser<string> {
  return (value) => {
    if (!URL.canParse(value) || !schemes.includes(new URL(value).protocol)) {
      throw new Error(`must be an address that begins with ${schemes.join(' or ')}//`);
    }
    return value;
  };
}

/** Yes or no: 1, true, yes, on; 0, false, no, off. */
export const flag: Parser<boolean> = (value) => {
  switch (value.toLowerCase()) {
    case '1':
    case 'true':
    case 'yes':
    case 'on':
      return true;
    case '0':
    case 'false':
    case 'no':
    case 'off':
      return false;
    default:
      throw new Error('must be 1 or 0');
  }
};

/** One of a closed set of words. */
export function oneOf<const T extends string>(...words: T[]): Parser<T> {
  return (value) => {
    const found = words.find((word) => word === value);
    if (found === undefined) throw new Error(`must be one of ${words.join(', ')}`);
    return found;
  };
}

/** The values of a specification. */
export type Config<S> = { readonly [K in keyof S]: S[K] extends Variable<infer T> ? T : never };

/** Variables of the project that are read elsewhere and so are never reported as unknown. */
const readElsewhere = new Set(['DUEBRIDGE_DATA_DIR', 'DUEBRIDGE_TEST_DATABASE_URL']);

/**
 * Reads all variables of `spec` from `env`. Throws one ConfigurationError that names every variable that is missing or wrong, and
 * never quotes a value. A DUEBRIDGE_ variable that nobody knows (a slip of the pen) is warned of; `alsoKnown` names those that
 * other parts of the program read.
 */
export function readConfig<const S extends Readonly<Record<string, Variable<unknown>>>>(
  spec: S,
  env: Readonly<Record<string, string | undefined>> = process.env,
  options: { log?: Log; alsoKnown?: readonly string[] } = {},
): Config<S> {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  for (const [key, variable] of Object.entries(spec)) {
    const given = env[variable.name];
    if (given === undefined || given === '') {
      if ('default' in variable) values[key] = variable.default;
      else problems.push(`${variable.name} is not set (${variable.description})`);
      continue;
    }
    try {
      values[key] = variable.parse(given);
    } catch (error) {
      problems.push(`${variable.name} ${messageOf(error)} (${variable.description})`);
    }
  }
  const known = new Set(Object.values(spec).map((variable) => variable.name));
  for (const name of Object.keys(env)) {
    if (!name.startsWith('DUEBRIDGE_') || known.has(name) || readElsewhere.has(name)) continue;
    if (options.alsoKnown?.includes(name)) continue;
    (options.log ?? silentLog).warn(
      { variable: name },
      'this variable is not known; is it misspelt?',
    );
  }
  if (problems.length > 0) {
    throw new ConfigurationError(`the configuration is not usable: ${problems.join('; ')}`);
  }
  // Each key was filled from its own variable above.
  return values as Config<S>;
}

// Log ----------------------------------------------------------------------------------------------------------------------

/** Keys whose values never reach a log, at any depth and in any case (reliability P15). */
const privateKeys = [
  'authorization',
  'proxy-authorization',
  'cookie',
  'set-cookie',
  'x-api-key',
  'api_key',
  'key',
  'client_secret',
  'access_token',
  'refresh_token',
  'token',
  'secret',
  'password',
  'session',
  'first_name',
  'last_name',
  'email',
  'phone_number',
  'address',
  'holder',
  'customer',
  'address_line_1',
  'address_line_2',
  'city',
  'state',
  'zip',
];
const redacted = '[redacted]';
/** Deeper structures are cut: a log line is for facts, not for documents. */
const maxLogDepth = 6;

/** How to log. */
export interface LoggerOptions {
  /** Name of the program, on each line. */
  name: string;
  level?: LevelWithSilent;
  /** More keys to hide: the header a partner chose for its key. Compared without case. */
  privateKeys?: readonly string[];
  /** Default: standard error, written at once, so that a crash loses no line. */
  destination?: DestinationStream;
}

/**
 * A JSON log, one object per line. Values under private keys are replaced at any depth, credentials in addresses are cut out, and
 * of an error only its kind, message and stack are kept: PostgreSQL's errors carry the row they failed on.
 */
export function createLogger(options: LoggerOptions): Logger {
  const hidden = new Set(
    [...privateKeys, ...(options.privateKeys ?? [])].map((key) => key.toLowerCase()),
  );
  return pino(
    {
      name: options.name,
      level: options.level ?? 'info',
      // Without the process's host and id: the collector knows them.
      base: { name: options.name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log: (line) => redact(line, hidden, 0) as Record<string, unknown>,
      },
      // The fields of a child logger pass by the formatter above; pino's own redaction reaches them.
      redact: { paths: [...hidden].map((key) => `["${key}"]`), censor: redacted },
      // The last word on every line, whichever way it came: messages are ours, but one may quote an address with a password.
      hooks: { streamWrite: withoutCredentials },
      serializers: { err: (error: unknown) => error },
    },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

function redact(value: unknown, hidden: ReadonlySet<string>, depth: number): unknown {
  if (typeof value === 'string') return withoutCredentials(value);
  if (typeof value !== 'object' || value === null) return value;
  if (value instanceof Error) return describeError(value);
  if (value instanceof URL) return value.origin;
  if (depth >= maxLogDepth) return '[deeper]';
  if (Array.isArray(value)) return value.map((item) => redact(item, hidden, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      hidden.has(key.toLowerCase()) ? redacted : redact(inner, hidden, depth + 1),
    ]),
  );
}

function withoutCredentials(line: string): string {
  return line.includes('//') ? line.replaceAll(/\/\/[^/@\s"']+@/g, '//') : line;
}

function describeError(error: Error): object {
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined;
  if ('severity' in error) {
    // PostgreSQL quotes the offending value in messages of class 22 and in `detail`.
    const constraint = 'constraint' in error ? error.constraint : undefined;
    const message = code?.startsWith('22') ? 'a value was not acceptable' : error.message;
    return { type: 'DatabaseError', sqlState: code, constraint, message };
  }
  return {
    type: error.name,
    code,
    message: withoutCredentials(error.message),
    stack: withoutCredentials(error.stack ?? ''),
    ...(error.cause instanceof Error ? { cause: describeError(error.cause) } : undefined),
  };
}

// Metrics ------------------------------------------------------------------------------------------------------------------

/** The figures of one process. Names begin with `duebridge_`; labels are few and closed, never ids of customers or payments. */
export interface Metrics {
  counter(name: string, help: string, labels?: readonly string[]): Counter;
  gauge(name: string, help: string, labels?: readonly string[], collect?: () => number): Gauge;
  /** `buckets` in the unit of the name, mostly seconds. */
  histogram(
    name: string,
    help: string,
    labels?: readonly string[],
    buckets?: readonly number[],
  ): Histogram;
  /** What /metrics answers. */
  text(): Promise<string>;
  readonly contentType: string;
}

/** From 1 ms to 30 s: a read from memory to the longest waiting read. */
const secondsBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

/** Makes the figures of one process, with Node's own (memory, event loop, garbage collection) unless `processFigures` is false. */
export function createMetrics(options: { processFigures?: boolean } = {}): Metrics {
  const register = new Registry<PrometheusContentType | OpenMetricsContentType>();
  const registers = [register];
  if (options.processFigures ?? true) collectDefaultMetrics({ register });
  return {
    counter: (name, help, labelNames = []) => new Counter({ name, help, labelNames, registers }),
    gauge: (name, help, labelNames = [], collect) =>
      new Gauge({
        name,
        help,
        labelNames,
        registers,
        ...(collect === undefined
          ? undefined
          : {
              collect() {
                this.set(collect());
              },
            }),
      }),
    histogram: (name, help, labelNames = [], buckets = secondsBuckets) =>
      new Histogram({ name, help, labelNames, registers, buckets: [...buckets] }),
    text: () => register.metrics(),
    contentType: register.contentType,
  };
}

// Life ---------------------------------------------------------------------------------------------------------------------

/** A started service. */
export interface Service {
  /** Stops accepting, finishes or hands over what is under way, closes. Called once. */
  stop(): Promise<void>;
}

/** How to run. */
export interface RunOptions {
  log: Log;
  start(): Promise<Service>;
  /** How long a stop may take in milliseconds; default 10,000 (reliability F82), what a container host grants before it kills. */
  stopTimeoutMs?: number;
}

/**
 * Starts a service and ends the process when it has stopped. SIGTERM and SIGINT stop it gracefully, once; a second one ends the
 * process at once. An error that nobody caught is logged and ends the process with 1, because its state is unknown and everything
 * durable survives (reliability F90). Exit codes: 0 stopped, 1 failed or forced, 2 configuration.
 */
export async function runService(options: RunOptions): Promise<void> {
  const { log, stopTimeoutMs = 10_000 } = options;
  const stopAsked = Promise.withResolvers<NodeJS.Signals>();
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    if (signals > 1) {
      log.warn({ signal }, 'second signal: ending at once');
      process.exit(1);
    }
    log.info({ signal }, 'stopping');
    stopAsked.resolve(signal);
  };
  process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  const onBug = (error: unknown): void => {
    log.error({ error: asError(error) }, 'an error was not caught; ending');
    process.exit(1);
  };
  process.on('unhandledRejection', onBug).on('uncaughtException', onBug);

  let service: Service;
  try {
    service = await options.start();
  } catch (error) {
    const isConfiguration = error instanceof ConfigurationError;
    // A sentence for the configuration; everything for a bug.
    if (isConfiguration) log.error({}, error.message);
    else log.error({ error: asError(error) }, 'the start failed');
    process.exit(isConfiguration ? error.exitCode : 1);
  }
  await stopAsked.promise;
  const late = setTimeout(() => {
    log.error({ stopTimeoutMs }, 'the stop took too long; ending');
    process.exit(1);
  }, stopTimeoutMs);
  try {
    await service.stop();
  } catch (error) {
    log.error({ error: asError(error) }, 'the stop failed');
    process.exit(1);
  }
  clearTimeout(late);
  log.info({}, 'stopped');
  process.exit(0);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
