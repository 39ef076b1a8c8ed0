/** Servers of the tests: opened on a free port of this machine, closed with their connections, and certified by themselves. */
import type { IncomingMessage, Server } from 'node:http';
import type { Server as TcpServer, AddressInfo } from 'node:net';
import { makeCertificate as certificateFor } from '../src/sandbox/certificate.ts';

/** Listens on a free port of 127.0.0.1. Returns the port. */
export async function listen(server: TcpServer): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve);
  });
  return (server.address() as AddressInfo).port;
}

/** Ends every connection and stops listening. */
export async function closeAll(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => {
    server.close(resolve);
  });
}

/** The body of a request. Rejects when the caller disconnects before its end. */
export async function textOf(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of request.setEncoding('utf8')) text += String(piece);
  return text;
}

/** A self-signed certificate for 127.0.0.1 and partner.example that is its own authority. */
export const makeCertificate = () =>
  certificateFor(
    'duebridge test',
    ['200101000000Z', '491231235959Z'],
    ['127.0.0.1', 'partner.example'],
  );
