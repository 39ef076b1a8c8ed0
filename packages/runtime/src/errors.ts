/**
 * The errors of the ground: a start that cannot go on because of how it was set up, and a database that cannot answer.
 * They stand apart from the modules that throw them so that the command line can tell them without loading a server.
 */

/** Exit codes of every command (decision 30). */
export const exitCodes = { done: 0, failed: 1, configuration: 2, usage: 3 } as const;

/** A command could not do what it was asked. The message is one sentence for the person at the terminal. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number;
  constructor(message: string, exitCode: number, options?: ErrorOptions) {
    super(message, options);
    this.exitCode = exitCode;
  }
}

/**
 * The deployment is set up wrongly. The message is one sentence that says what is wrong and how to fix it, and never holds a
 * secret. The command line prints it alone and ends with exit code 2 (decision 30).
 */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError';
  /** The exit code of a process that ends because of this error (decision 30). */
  readonly exitCode = exitCodes.configuration;
}

/**
 * The database did not answer or refused to work: connection lost, too many connections, shutdown, read only, disk full, no free
 * connection in time, a time limit hit (reliability F69, F73, F78). The HTTP layer answers 503 with Retry-After.
 *
 * `outcome` tells what is known of the statement: `not_executed` means it surely left no trace; `unknown` means that it may have
 * been committed (13 % of the calls that failed in a kill test had been), so whoever wrote must read again before deciding.
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
