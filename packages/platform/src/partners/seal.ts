/**
 * Partner credentials at rest: AES-256-GCM with a random 96-bit nonce, the id of the key that sealed, and associated data that
 * binds a secret to its partner and field, so that a row copied to another partner does not open.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  randomBytes,
  type KeyObject,
} from 'node:crypto';
import { ConfigurationError } from '@duebridge/runtime';

/** Seals and opens texts. `place` names where the text belongs, such as `partners/demo/auth`. */
export type Sealer = ReturnType<typeof openSealer>;

/** AES-256. */
const KEY_BYTES = 32;
/** The length GCM is specified for; random ones are safe for 2^32 seals of one key, far above the number of partners. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Reads the sealing keys: each 32 bytes in base64, separated by commas. The first seals; all of them open, so that a key is
 * replaced by putting the new one in front; the old one stays for what it has sealed. Throws ConfigurationError, which never holds the text.
 */
export function openSealer(keys: string) {
  const ring = new Map<string, KeyObject>();
  for (const text of keys.split(',')) {
    const key = Buffer.from(text.trim(), 'base64');
    if (key.length !== KEY_BYTES) {
      throw new ConfigurationError(
        'the sealing key cannot be used: give 32 random bytes in base64, such as openssl rand -base64 32 prints',
      );
    }
    ring.set(
      createHash('sha256').update('duebridge seal key').update(key).digest('hex').slice(0, 8),
      // Imported once: from a Buffer, Node 24 would import it at every seal, 16 of its 26 microseconds.
      createSecretKey(key),
    );
  }
  const [first] = ring;
  if (first === undefined) throw new ConfigurationError('no sealing key was given');
  const [keyId, key] = first;
  return {
    /** The sealed form: `v1.KEYID.NONCE.CIPHERTEXT`, the latter two in base64url. */
    seal(text: string, place: string): string {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv('aes-256-gcm', key, nonce);
      cipher.setAAD(Buffer.from(place));
      const body = Buffer.concat([
        cipher.update(text, 'utf8'),
        cipher.final(),
        cipher.getAuthTag(),
      ]);
      return `v1.${keyId}.${nonce.toString('base64url')}.${body.toString('base64url')}`;
    },
    /** The text again. Throws ConfigurationError for an unknown key, and when the text was sealed for another place or altered. */
    open(sealed: string, place: string): string {
      const [version, id = '', nonce = '', body = ''] = sealed.split('.');
      const opener = version === 'v1' ? ring.get(id) : undefined;
      if (opener === undefined) {
        throw new ConfigurationError(
          `a secret was sealed with key ${id}, which is not among the sealing keys: add it at the end of the list`,
        );
      }
      const bytes = Buffer.from(body, 'base64url');
      const decipher = createDecipheriv('aes-256-gcm', opener, Buffer.from(nonce, 'base64url'), {
        authTagLength: TAG_BYTES,
      });
      try {
        decipher.setAAD(Buffer.from(place));
        decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
        return Buffer.concat([
          decipher.update(bytes.subarray(0, -TAG_BYTES)),
          decipher.final(),
        ]).toString('utf8');
      } catch {
        throw new ConfigurationError(
          `the secret at ${place} cannot be decrypted: it was altered or belongs elsewhere`,
        );
      }
    },
  };
}
