/** Certificates made here, so that no key stands in the repository. */
import { generateKeyPairSync, sign, type KeyObject } from 'node:crypto';

export interface TestCertificate {
  readonly name: string;
  /** PEM. */
  readonly key: string;
  readonly cert: string;
  readonly signer: KeyObject;
}

let serial = 0;

function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  const size =
    length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
}

const ecdsaWithSha256 = der(0x30, der(0x06, Buffer.from('2a8648ce3d040302', 'hex')));

function nameOf(text: string): Buffer {
  const commonName = der(
    0x30,
    der(0x06, Buffer.from('550403', 'hex')),
    der(0x0c, Buffer.from(text)),
  );
  return der(0x30, der(0x31, commonName));
}

/** A certificate for a name, signed by `authority` or by itself. */
export function certificate(name: string, authority?: TestCertificate): TestCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  serial += 1;
  const body = der(
    0x30,
    der(0x02, Buffer.from([serial])),
    ecdsaWithSha256,
    nameOf(authority?.name ?? name),
    der(0x30, der(0x17, Buffer.from('250101000000Z')), der(0x17, Buffer.from('490101000000Z'))),
    nameOf(name),
    publicKey.export({ type: 'spki', format: 'der' }),
  );
  const signature = der(
    0x03,
    Buffer.from([0]),
    sign('sha256', body, authority?.signer ?? privateKey),
  );
  const cert = der(0x30, body, ecdsaWithSha256, signature).toString('base64');
  return {
    name,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${cert.match(/.{1,64}/g)?.join('\n')}\n-----END CERTIFICATE-----\n`,
    signer: privateKey,
  };
}
