/**
 * For the judge's own tests: a TLS proxy in front of a plain server, with a certificate for this
 * machine generated at each start, so that the repository contains no private key.
 */
import { generateKeyPairSync, sign } from 'node:crypto';
import { connect, type AddressInfo } from 'node:net';
import { createServer, type TlsOptions } from 'node:tls';

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

const tag = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  sequence: 0x30,
  set: 0x31,
  generalized: 0x18,
};
const ECDSA_WITH_SHA256 = der(tag.sequence, der(tag.oid, Buffer.from('2a8648ce3d040302', 'hex')));
const COMMON_NAME = der(tag.oid, Buffer.from('550403', 'hex'));
const SUBJECT_ALT_NAME = der(tag.oid, Buffer.from('551d11', 'hex'));
const BASIC_CONSTRAINTS = der(tag.oid, Buffer.from('551d13', 'hex'));

/** A self-signed certificate for 127.0.0.1 and partner.example that is its own authority, valid until 2100. */
export function makeCertificate(): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const name = der(
    tag.sequence,
    der(tag.set, der(tag.sequence, COMMON_NAME, der(tag.utf8, Buffer.from('duebridge test')))),
  );
  const extensions = der(
    0xa3,
    der(
      tag.sequence,
      der(
        tag.sequence,
        SUBJECT_ALT_NAME,
        // [7] iPAddress, [2] dNSName
        der(
          tag.octets,
          der(
            tag.sequence,
            der(0x87, Buffer.from([127, 0, 0, 1])),
            der(0x82, Buffer.from('partner.example')),
          ),
        ),
      ),
      der(
        tag.sequence,
        BASIC_CONSTRAINTS,
        der(tag.octets, der(tag.sequence, Buffer.from([0x01, 0x01, 0xff]))),
      ),
    ),
  );
  const body = der(
    tag.sequence,
    der(0xa0, der(tag.integer, Buffer.from([2]))),
    der(tag.integer, Buffer.from([1])),
    ECDSA_WITH_SHA256,
    name,
    der(
      tag.sequence,
      der(tag.generalized, Buffer.from('20200101000000Z')),
      der(tag.generalized, Buffer.from('21000101000000Z')),
    ),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    extensions,
  );
  const signature = sign('sha256', body, privateKey);
  const whole = der(
    tag.sequence,
    body,
    ECDSA_WITH_SHA256,
    der(tag.bits, Buffer.from([0]), signature),
  );
  const lines = whole.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
  };
}

function der(kind: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const length =
    content.length < 128
      ? Buffer.from([content.length])
      : content.length < 256
        ? Buffer.from([0x81, content.length])
        : Buffer.from([0x82, content.length >> 8, content.length & 0xff]);
  return Buffer.concat([Buffer.from([kind]), length, content]);
}
