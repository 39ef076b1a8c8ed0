/**
 * The instant in a payment's id: the ids are UUIDv7 (decision 13), whose first 48 bits are the milliseconds since 1970. Pure.
 */

/** When the payment of this id was made, in milliseconds since 1970. */
export function madeAt(platform_payment_id: string): number {
  return Number.parseInt(platform_payment_id.replaceAll('-', '').slice(0, 12), 16);
}

/** The smallest id of a millisecond since 1970. */
export function firstIdAt(ms: number): string {
  const hex = Math.max(0, Math.floor(ms)).toString(16).padStart(12, '0').slice(-12);
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}
