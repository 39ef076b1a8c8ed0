/** Opens a listener, or explains in one sentence why this machine does not allow it. */
import type { FastifyInstance } from 'fastify';
import type { AddressInfo } from 'node:net';
import { ConfigurationError } from '../errors.ts';

/** Where to listen. */
export interface ListenAt {
  readonly host: string;
  /** 0 for any free one. */
  readonly port: number;
  /** Begins the names of the variables that an operator would change: HOST and PORT. */
  readonly variables?: 'ADMIN_';
}

/**
 * Connections that may wait to be accepted: the usual limit of Linux, of which Node takes 511. When they are all a stranger's, the next
 * person's waits for a second or more until it is tried again.
 */
const BACKLOG = 4_096;

/**
 * Listens and returns the base URL, without a trailing slash. Throws ConfigurationError for a port that is taken or not allowed,
 * and for an address that this machine does not have.
 */
export async function listen(app: FastifyInstance, at: ListenAt): Promise<string> {
  const { host, port, variables = '' } = at;
  try {
    await app.listen({ host, port, backlog: BACKLOG });
  } catch (error) {
    const noAddress = `this machine has no address ${host}: set ${variables}HOST to one it has, such as 127.0.0.1`;
    const sentences: Readonly<Record<string, string>> = {
      EADDRINUSE: `port ${port} of ${host} is taken: stop the program that uses it, or set ${variables}PORT to another one`,
      EACCES: `port ${port} of ${host} may not be opened by this user: set ${variables}PORT to one above 1023`,
      EADDRNOTAVAIL: noAddress,
      ENOTFOUND: noAddress,
      EAI_AGAIN: noAddress,
      EINVAL: noAddress,
    };
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    const sentence = sentences[code];
    throw sentence === undefined ? error : new ConfigurationError(sentence, { cause: error });
  }
  const { port: bound } = app.server.address() as AddressInfo;
  // A client cannot connect to a wildcard address, so the URL needs another host.
  const shown = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  return `http://${shown.includes(':') ? `[${shown}]` : shown}:${bound}`;
}
