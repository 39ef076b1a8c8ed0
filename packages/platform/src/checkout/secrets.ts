/**
 * The secrets of the flow and their stored forms: random 256-bit values of which only a hash is stored, and keyed digests that
 * recognize a returning customer without storing who it is (decision 8, PL11, PL15).
 */
import crypto, { createHmac, randomBytes, type KeyObject } from 'node:crypto';

/** A new secret: a prefix that tells people and scanners what it is, and 256 random bits. */
export function newSecret(prefix: 'dbt_' | 'dbs_'): string {
  return `${prefix}${randomBytes(32).toString('base64url')}`;
}

/** Whether a text has the form of a secret of that kind. */
export function isSecret(prefix: Parameters<typeof newSecret>[0], text: string): boolean {
  return text.length === prefix.length + 43 && new RegExp(`^${prefix}[A-Za-z0-9_-]+$`).test(text);
}

/** What is stored of a secret: 32 bytes. Plain SHA-256 is enough for 256 random bits; there is nothing to guess. */
export function hashSecret(secret: string): Buffer {
  return crypto.hash('sha256', secret, 'buffer');
}

/**
 * Identifies one customer at one account of one partner: 32 bytes, the same for every token of theirs, and meaningless without the
 * pepper. The customer is identified by e-mail address, ignoring case and surrounding spaces, in one Unicode form: the same letters
 * typed on two systems are the same address.
 */
export function flowId(
  pepper: KeyObject,
  of: { partner_id: string; biller_id: string; account_id: string; email: string },
): Buffer {
  // A JSON array: no two different lists of texts have the same one.
  const name = JSON.stringify([
    of.partner_id,
    of.biller_id,
    of.account_id,
    canonicalEmail(of.email),
  ]);
  return createHmac('sha256', pepper).update('flow').update(name).digest();
}

/** Finds a person again: 32 bytes of the e-mail address under the pepper, in the same form as in `flowId`. */
export function emailDigest(pepper: KeyObject, email: string): Buffer {
  return digestOfText(pepper, canonicalEmail(email));
}

/**
 * Every digest under which this person may be kept: earlier versions digested an address in the Unicode form in which it was sent.
 */
export function emailDigests(pepper: KeyObject, email: string): Buffer[] {
  const forms = ['NFC', 'NFD'].map((form) => email.normalize(form).trim().toLowerCase());
  const texts = new Set([canonicalEmail(email), ...forms, email.trim().toLowerCase()]);
  return [...texts].map((text) => digestOfText(pepper, text));
}

function digestOfText(pepper: KeyObject, text: string): Buffer {
  return createHmac('sha256', pepper).update('email').update(text).digest();
}

function canonicalEmail(email: string): string {
  return email.trim().normalize('NFC').toLowerCase().normalize('NFC');
}
