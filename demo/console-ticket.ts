/**
 * A link that signs in to the demo's console once, so that nobody has to look for the key.
 *
 * enters: the platform's admin address and key.  leaves: an address on this machine that opens the console, signed in.
 * holds:  it listens on the loopback address, takes one random ticket, and takes it once. Cookies belong to a host and not to a port, so
 *         the one that it sets is sent to the console on the same host.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Opens the listener on a free port; gives the link, and the end of the listener. `adminUrl`: such as http://127.0.0.1:4001. */
export async function consoleTicket(platform: {
  readonly adminUrl: string;
  readonly adminKey: string;
}): Promise<{ readonly url: string; stop(): void }> {
  const { hostname } = new URL(platform.adminUrl);
  const path = `/${randomBytes(16).toString('hex')}`;
  let isUsed = false;
  const server = createServer((request, response) => {
    if (isUsed || request.method !== 'GET' || request.url !== path) {
      response.writeHead(404, { 'content-type': 'text/plain' });
      response.end('This link signed in once already. npm start prints a new one.\n');
      return;
    }
    isUsed = true;
    const session = fetch(`${platform.adminUrl}/console/sign-in`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key: platform.adminKey }),
    });
    session.then(
      ({ headers }) =>
        response
          .writeHead(303, {
            location: `${platform.adminUrl}/console`,
            'set-cookie': headers.getSetCookie(),
            'cache-control': 'no-store',
          })
          .end(),
      () => response.destroy(),
    );
  });
  server.listen(0, hostname);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${hostname}:${port}${path}`,
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}
