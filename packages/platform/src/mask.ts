/**
 * What may be shown of an account id: enough for its holder to recognise it, too little to use it.
 */

/** Most characters shown (frontend: the customer compares them with a bill). */
const MAX_SHOWN = 4;

/**
 * The account id with all but its last characters hidden: at most four shown, and never more than half of a short one.
 * The number of dots says nothing about its length.
 */
export function maskAccountId(account_id: string): string {
  const shown = Math.min(MAX_SHOWN, Math.floor(account_id.length / 2));
  return `••••${shown === 0 ? '' : account_id.slice(-shown)}`;
}
