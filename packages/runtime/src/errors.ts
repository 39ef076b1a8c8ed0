/**
 * Errors that both servers share: a start that its configuration prevents, and a database that cannot answer.
 * They are apart from the modules that throw them, so that the command line can print them without loading a server.
 */

/** Exit codes of every command (decision 30). */
export const exitCodes = { done: 0, failed: 1, configuration: 2, usage: 3 } as const;

/** A command could not do what was asked. The message is one sentence for the person at the terminal. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number;
  /** The code of the admin API's answer, such as `NOT_FOUND`; undefined when the failure is none of its answers. */
  readonly code: string | undefined;
  constructor(message: string, exitCode: number, options?: ErrorOptions & { code?: string }) {
    super(message, options);
    this.exitCode = exitCode;
    this.code = options?.code;
  }
}

/**
 * The deployment is set up wrongly. The message is one sentence that says what is wrong and how to fix it, and never holds a
 * secret. The command line prints it alone and ends with exit code 2 (decision 30).
 */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  /** The exit code of a process that ends because of this error (decision 30). */
  readonly exitCode: number = exitCodes.configuration;
}

/** The database did not answer for as long as a start waits for it. Ends with code 1: units restart on it, and not on 2. */
export class DatabaseDown extends ConfigurationError {
  override readonly exitCode = exitCodes.failed;
}

/**
 * The database did not answer or refused to work: connection lost, too many connections, shutdown, read only, disk full, no free
 * connection in time, a time limit hit (F69, F73, F78). The HTTP layer answers 503 with Retry-After.
 *
 * `outcome` tells what is known of the statement: `not_executed` means it surely left no trace; `unknown` means that it may have
 * been committed (13 % of the calls that failed in a kill test had been), so the writer must read again before deciding.
 */
export class DatabaseUnavailable extends Error {
  override readonly name = 'DatabaseUnavailable';
  readonly outcome: 'not_executed' | 'unknown';
  constructor(message: string, outcome: 'not_executed' | 'unknown', options?: ErrorOptions) {
    super(message, options);
    this.outcome = outcome;
  }
}

/** The message of whatever was thrown, for a log line or a wrapping error. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(messageOf).join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}

/**
 * What a log may contain of an error thrown by third-party code (a biller's account system, a funding adapter): its type, its
 * code and where it was thrown. Never its message: redaction goes by keys, so a message that quotes a customer's name or an
 * account's row would pass it (PL15).
 */
export function kindOfError(error: unknown): string {
  if (!(error instanceof Error)) return `a thrown ${error === null ? 'null' : typeof error}`;
  const name = /^[A-Za-z_$][\w$]{0,59}$/.test(error.name) ? error.name : 'Error';
  // `fetch` throws a TypeError, whose cause says that nobody listens.
  const [code = ''] = [error, error.cause].flatMap((one) =>
    one instanceof Error && 'code' in one ? String(one.code) : [],
  );
  // The stack begins with the message; only the text after it is a location in the code.
  const header = `${error.name}: ${error.message}\n`;
  const stack = error.stack ?? '';
  const frame = stack.startsWith(header) ? stack.slice(header.length).split('\n', 1)[0] : undefined;
  return [name, /^\w{1,40}$/.test(code) ? code : '', frame?.trim() ?? '']
    .filter((part) => part !== '')
    .join(' ');
}
