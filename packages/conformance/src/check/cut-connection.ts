/** A request whose answer is never read (P34). */
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../clock.ts';
import { errorCode, REQUEST_TIMEOUT_MS } from './http.ts';
import { tunnelTo } from './proxy.ts';

/** Writes `text`, waits, destroys the socket. Returns what went wrong before the cut, if anything. */
export async function cutOff(
  url: URL,
  text: string,
  wait_ms: number,
  clock: Clock,
  ca_file: string | undefined,
): Promise<string | undefined> {
  let through: Socket | undefined;
  try {
    through = await tunnelTo(url, clock);
  } catch (error) {
    return `the connection failed (${errorCode(error)})`;
  }
  return new Promise((resolve) => {
    const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
    const host = url.hostname.replace(/^\[|\]$/g, '');
    let socket: Socket;
    const cancel = clock.after(REQUEST_TIMEOUT_MS, () => end('no connection in time'));
    const write = (): void => {
      socket.write(text, () => clock.after(wait_ms, () => end(undefined)));
    };
    const end = (problem: string | undefined): void => {
      cancel();
      socket.destroy();
      resolve(problem);
    };
    socket =
      url.protocol === 'https:'
        ? connectTls(
            {
              host,
              port,
              servername: host,
              ...(through === undefined ? {} : { socket: through }),
              ...(ca_file === undefined ? {} : { ca: readFileSync(ca_file, 'utf8') }),
            },
            write,
          )
        : connectTcp({ host, port }, write);
    socket.once('error', (error) => end(`the connection failed (${errorCode(error)})`));
  });
}
