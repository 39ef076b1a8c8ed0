/**
 * The four words a payment's status can be, and the only ways from one to another.
 *
 * A payment is born `processing` (RU1, ST1). From there it goes once, to one of the three terminal
 * words (ST2 posted, ST3 could not be completed, ST4 canceled), and then never again (RU2).
 */

/** Every status, in the order of a payment's life (PF4). */
export const PAYMENT_STATUSES = ['processing', 'succeeded', 'failed', 'canceled'] as const;
export type PaymentStatus = (typeof PAYMENT_STATUSES)[number];

/** The statuses that never change again (RU2). */
export const TERMINAL_STATUSES = ['succeeded', 'failed', 'canceled'] as const;
export type TerminalStatus = (typeof TERMINAL_STATUSES)[number];

/** From each status, the statuses it may become (ST1-ST4, RU2). */
export const TRANSITIONS: Readonly<Record<PaymentStatus, readonly PaymentStatus[]>> = {
  processing: TERMINAL_STATUSES,
  succeeded: [],
  failed: [],
  canceled: [],
};

/** True for exactly one of the four words, case and spaces included (PF4). */
export function isPaymentStatus(value: unknown): value is PaymentStatus {
  return PAYMENT_STATUSES.some((status) => status === value);
}

/** True when the status never changes again; decided by membership, never by "not processing" (decision 22). */
export function isTerminal(status: PaymentStatus): status is TerminalStatus {
  return TERMINAL_STATUSES.some((terminal) => terminal === status);
}

/** True when the table allows the move; staying put is not a move. */
export function canMove(from: PaymentStatus, to: PaymentStatus): boolean {
  return TRANSITIONS[from].includes(to);
}
