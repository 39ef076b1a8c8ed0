/**
 * The four values of a payment's status.
 *
 * A payment starts as `processing` (RU1, ST1). It changes once, to one of the three terminal statuses (ST2 posted, ST3 could not
 * be completed, ST4 canceled), and then never again (RU2).
 */

/** Every status, in the order of a payment's life (PF4). */
export const PAYMENT_STATUSES = ['processing', 'succeeded', 'failed', 'canceled'] as const;
export type PaymentStatus = (typeof PAYMENT_STATUSES)[number];

/** The statuses that never change again (RU2). */
export const TERMINAL_STATUSES = ['succeeded', 'failed', 'canceled'] as const;
export type TerminalStatus = (typeof TERMINAL_STATUSES)[number];

/** True for exactly the four status strings; case and spaces matter (PF4). */
export function isPaymentStatus(value: unknown): value is PaymentStatus {
  return PAYMENT_STATUSES.some((status) => status === value);
}

/** True when the status never changes again; decided by membership, never by "not processing" (decision 22). */
export function isTerminal(status: unknown): status is TerminalStatus {
  return TERMINAL_STATUSES.some((terminal) => terminal === status);
}
