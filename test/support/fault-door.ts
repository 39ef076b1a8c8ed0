/**
 * Stands before a platform and makes it fail inside when a request says so: the table that the request needs is away while the platform
 * serves it. The failure is real; only its moment is chosen. No build of the platform has such a door (T12).
 */
import { createServer, request, Agent, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Database } from '@duebridge/runtime';
import { listen } from './listening.ts';

/** The header that asks for the failure. */
export const FAULT_HEADER = 'x-test-fault';

/** Opens the door before the platform at `url`, whose database is `books`. */
export async function openFaultDoor(
  url: string,
  books: Database,
): Promise<{ readonly url: string; readonly close: () => void }> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer((incoming, response) => {
    void (incoming.headers[FAULT_HEADER] === undefined
      ? forward(incoming, response)
      : withoutTokens(books, () => forward(incoming, response)));
  });

  function forward(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    return new Promise((resolve) => {
      response.once('close', resolve);
      const { method, headers, url: path = '' } = incoming;
      const options = { agent, headers, ...(method === undefined ? {} : { method }) };
      const upstream = request(url + path, options, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      });
      // A platform may answer and close before it has read the whole body.
      upstream.on('error', () => {
        if (!response.headersSent) response.destroy();
      });
      incoming.pipe(upstream);
    });
  }

  return {
    url: `http://127.0.0.1:${await listen(server)}`,
    close() {
      server.close();
      server.closeAllConnections();
      agent.destroy();
    },
  };
}

async function withoutTokens(books: Database, act: () => Promise<void>): Promise<void> {
  await books.query('ALTER TABLE duebridge_platform.tokens RENAME TO tokens_away');
  try {
    await act();
  } finally {
    await books.query('ALTER TABLE duebridge_platform.tokens_away RENAME TO tokens');
  }
}
