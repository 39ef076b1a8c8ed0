/** What a module needs of a logger; a pino logger is one. Details first, then the message. */
export interface Log {
  debug(details: object, message: string): void;
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

const nothing = (): void => undefined;

/** A logger that keeps nothing: the default where none is given. */
export const silentLog: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };
