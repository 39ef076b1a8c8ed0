/** The part of a logger that a module needs; a pino logger fits. Details first, then the message. */
export interface Log {
  debug(details: object, message: string): void;
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

const nothing = (): void => undefined;

/** A logger that discards everything: the default. */
export const silentLog: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };
