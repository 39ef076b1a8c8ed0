/** A log that never contains a secret. */
import { pino, type DestinationStream, type LevelWithSilent, type Logger } from 'pino';

/** Keys whose values never reach a log, at any depth and in any case (PL15). */
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
const REDACTED = '[redacted]';
/** Deeper structures are cut: a log line holds facts, not documents. */
const MAX_LOG_DEPTH = 6;

/** How to log. */
export interface LoggerOptions {
  /** Name of the program, on each line. */
  name: string;
  level?: LevelWithSilent;
  /** Additional keys to hide: the header that a partner chose for its key. Case-insensitive. */
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
      // Without host name and process id: the collector adds them.
      base: { name: options.name },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log: (line) => redact(line, hidden, 0) as Record<string, unknown>,
      },
      // The fields of a child logger pass by the formatter above; pino's own redaction reaches them.
      redact: { paths: [...hidden].map((key) => `["${key}"]`), censor: REDACTED },
      // Applied to every line, however it was logged: messages are ours, but one may quote an address with a password.
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
  if (depth >= MAX_LOG_DEPTH) return '[deeper]';
  if (Array.isArray(value)) return value.map((item) => redact(item, hidden, depth + 1));
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      hidden.has(key.toLowerCase()) ? REDACTED : redact(inner, hidden, depth + 1),
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
