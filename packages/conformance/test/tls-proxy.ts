/**
 * For the judge's own tests: a TLS proxy in front of a plain server, with a certificate for this
 * machine generated at each start, so that the repository contains no private key.
 */
import { connect, type AddressInfo } from 'node:net';
import { createServer, type TlsOptions } from 'node:tls';
import { makeCertificate as certificateFor } from '../src/sandbox/certificate.ts';

/** A running TLS proxy. */
export interface TlsProxy {
  /** Such as https://127.0.0.1:41234. */
  readonly url: string;
  /** The certificate in PEM, for callers that should trust it. */
  readonly certificate: string;
  readonly stop: () => Promise<void>;
}

/** Opens a TLS proxy to a plain http server on this machine. `options` are passed to node:tls unchanged. */
export async function openTlsProxy(plain_url: string, options: TlsOptions = {}): Promise<TlsProxy> {
  const { key, cert } = makeCertificate();
  const port = Number(new URL(plain_url).port);
  const server = createServer({ key, cert, ...options }, (outer) => {
    const inner = connect({ host: '127.0.0.1', port });
    outer.pipe(inner).pipe(outer);
    outer.on('error', () => inner.destroy());
    inner.on('error', () => outer.destroy());
  });
  const open = new Set<{ destroy: () => void }>();
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve());
  });
  const { port: own } = server.address() as AddressInfo;
  return {
    url: `https://127.0.0.1:${own}`,
    certificate: cert,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}

/** A self-signed certificate for 127.0.0.1 and partner.example that is its own authority. */
export const makeCertificate = () =>
  certificateFor(
    'duebridge test',
    ['200101000000Z', '491231235959Z'],
    ['127.0.0.1', 'partner.example'],
  );
