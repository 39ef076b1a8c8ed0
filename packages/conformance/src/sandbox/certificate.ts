/**
 * A certificate that no caller may accept: self-signed, expired, and for a foreign host name (F47). Generated at each start, so
 * that the repository contains no private key.
 */
import { generateKeyPairSync, sign } from 'node:crypto';

/** Key and certificate in PEM, for node:tls. */
export function makeBadCertificate(): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const subject = der(
    SEQUENCE,
    der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, Buffer.from('expired.sandbox.invalid')))),
  );
  const toBeSigned = der(
    SEQUENCE,
    der(CONTEXT_0, der(INTEGER, Buffer.from([2]))), // version 3
    der(INTEGER, Buffer.from([1])), // serial number
    ECDSA_WITH_SHA256,
    subject, // issuer: itself
    der(
      SEQUENCE,
      der(UTC_TIME, Buffer.from('190101000000Z')),
      der(UTC_TIME, Buffer.from('200101000000Z')),
    ),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
  );
  const signature = sign('sha256', toBeSigned, privateKey);
  const certificate = der(
    SEQUENCE,
    toBeSigned,
    ECDSA_WITH_SHA256,
    der(BIT_STRING, Buffer.from([0]), signature),
  );
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
  };
}

// The DER tags (X.690) that this certificate needs.
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OBJECT_ID = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const SEQUENCE = 0x30;
const SET = 0x31;
const CONTEXT_0 = 0xa0;

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  // Short form below 128, else two length bytes: no part of this certificate is longer.
  const size = length < 128 ? [length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

/** 2.5.4.3 */
const COMMON_NAME = der(OBJECT_ID, Buffer.from('550403', 'hex'));
/** 1.2.840.10045.4.3.2 */
const ECDSA_WITH_SHA256 = der(SEQUENCE, der(OBJECT_ID, Buffer.from('2a8648ce3d040302', 'hex')));
