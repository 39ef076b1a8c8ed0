/**
 * The secrets that open the flow, and what is kept of them: random values of 256 bits of which only a hash is stored, and keyed
 * names under which a customer is known again without being named (decision 8, PL11, PL15).
 */
import { createHmac, hash, randomBytes, type KeyObject } from 'node:crypto';

/** A new secret: the prefix says to people and to scanners what it is, the 256 random bits are all that it means. */
export function newSecret(prefix: 'dbt_' | 'dbs_'): string {
  return `${prefix}${randomBytes(32).toString('base64url')}`;
}

/** What is stored of a secret: 32 bytes. Plain SHA-256 is enough for 256 random bits; there is nothing to guess. */
export function hashSecret(secret: string): Buffer {
  return hash('sha256', secret, 'buffer');
}

/**
 * Names what one customer pays at one account of one partner: 32 bytes, the same for every token of theirs, and no name of anybody
 * to whoever lacks the pepper. The customer is known by their e-mail address, without case and outer spaces, and in one Unicode
 * form: the same letters typed on two systems are the same address.
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
    of.email.trim().normalize('NFC').toLowerCase().normalize('NFC'),
  ]);
  return createHmac('sha256', pepper).update('flow').update(name).digest();
}

/** By which a person is found again: 32 bytes of their e-mail address under the pepper, without case and outer spaces. */
export function emailDigest(pepper: KeyObject, email: string): Buffer {
  return createHmac('sha256', pepper).update('email').update(email.trim().toLowerCase()).digest();
}
