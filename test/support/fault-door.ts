/**
 * Stands before a platform and makes it fail inside when a request says so: the table that the request needs is away while the platform
 * serves it. The failure is real; only its moment is chosen. No build of the platform has such a door (T20).
 */
import { createServer, request, Agent, type IncomingMessage, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
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
    const isToFail = incoming.headers[FAULT_HEADER] !== undefined;
    // A platform may answer and close before it has read the whole body.
    (isToFail ? failInside(incoming, response) : forward(incoming, response)).catch(() => {
      response.destroy();
    });
  });

  function send(incoming: IncomingMessage): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const { method, headers, url: path = '' } = incoming;
      const options = { agent, headers, ...(method === undefined ? {} : { method }) };
      incoming.pipe(request(url + path, options, resolve).on('error', reject));
    });
  }

  async function forward(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const answer = await send(incoming);
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  }

  /** The table is back before the caller has the answer: its next request must not fail. */
  async function failInside(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const { answer, body } = await withoutTokens(books, async () => {
      const answer = await send(incoming);
      return { answer, body: await buffer(answer) };
    });
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    response.end(body);
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

async function withoutTokens<T>(books: Database, act: () => Promise<T>): Promise<T> {
  await books.query('ALTER TABLE duebridge_platform.tokens RENAME TO tokens_away');
  try {
    return await act();
  } finally {
    await books.query('ALTER TABLE duebridge_platform.tokens_away RENAME TO tokens');
  }
}
