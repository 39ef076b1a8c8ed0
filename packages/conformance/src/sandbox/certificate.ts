/**
 * Self-signed certificates, made at each start so that the repository contains no private key: one that no caller may accept (F47), and,
 * for tests, one that is its own authority.
 */
import { generateKeyPairSync, sign } from 'node:crypto';

/** Key and certificate in PEM, for node:tls. */
export interface Pem {
  readonly key: string;
  readonly cert: string;
}

/** Expired, and for a foreign host name. */
export const makeBadCertificate = (): Pem =>
  makeCertificate('expired.sandbox.invalid', ['190101000000Z', '200101000000Z']);

/** A certificate for a name and these times in UTC. `hosts`: host names and IPv4 addresses for which it is valid. */
export function makeCertificate(
  name: string,
  [from, to]: readonly [string, string],
  hosts: readonly string[] = [],
): Pem {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const named = der(SET, der(SEQUENCE, COMMON_NAME, der(UTF8_STRING, Buffer.from(name))));
  const subject = der(SEQUENCE, named);
  const times = [from, to].map((time) => der(UTC_TIME, Buffer.from(time)));
  const toBeSigned = der(
    SEQUENCE,
    der(CONTEXT_0, der(INTEGER, Buffer.from([2]))), // version 3
    der(INTEGER, Buffer.from([1])), // serial number
    ECDSA_WITH_SHA256,
    subject, // issuer: itself
    der(SEQUENCE, ...times),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    ...(hosts.length === 0 ? [] : [der(CONTEXT_3, der(SEQUENCE, ...extensions(hosts)))]),
  );
  const signature = sign('sha256', toBeSigned, privateKey);
  const bits = der(BIT_STRING, Buffer.from([0]), signature);
  const certificate = der(SEQUENCE, toBeSigned, ECDSA_WITH_SHA256, bits);
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
  };
}

/** The hosts, and that it is an authority. */
function extensions(hosts: readonly string[]): Buffer[] {
  const names = hosts.map((host) =>
    /^[\d.]+$/.test(host)
      ? der(IP_ADDRESS, Buffer.from(host.split('.').map(Number)))
      : der(DNS_NAME, Buffer.from(host)),
  );
  return [
    der(SEQUENCE, SUBJECT_ALT_NAME, der(OCTET_STRING, der(SEQUENCE, ...names))),
    der(SEQUENCE, BASIC_CONSTRAINTS, der(OCTET_STRING, der(SEQUENCE, Buffer.from([1, 1, 0xff])))),
  ];
}

// The DER tags (X.690) that this certificate needs.
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OBJECT_ID = 0x06;
const UTF8_STRING = 0x0c;
const UTC_TIME = 0x17;
const SEQUENCE = 0x30;
const SET = 0x31;
const CONTEXT_0 = 0xa0;
const CONTEXT_3 = 0xa3;
const DNS_NAME = 0x82;
const IP_ADDRESS = 0x87;

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  // Short form below 128, else two length bytes: no part of this certificate is longer.
  const size = length < 128 ? [length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

/** 2.5.4.3 */
const COMMON_NAME = der(OBJECT_ID, Buffer.from('550403', 'hex'));
/** 2.5.29.17 and 2.5.29.19 */
const SUBJECT_ALT_NAME = der(OBJECT_ID, Buffer.from('551d11', 'hex'));
const BASIC_CONSTRAINTS = der(OBJECT_ID, Buffer.from('551d13', 'hex'));
/** 1.2.840.10045.4.3.2 */
const ECDSA_WITH_SHA256 = der(SEQUENCE, der(OBJECT_ID, Buffer.from('2a8648ce3d040302', 'hex')));
