/**
 * Amounts that choose how a payment of a test ends (decision 161): the platform answers them in test mode, the sandbox partner always. The
 * guide prints this table. Unusual enough that no bill has one by coincidence.
 */
import { FAILURE_REASONS } from './payment.ts';
import type { TerminalStatus } from './status.ts';

/** One of them. */
export interface TestAmount {
  readonly amount_in_cents: number;
  readonly note: string;
  /** The funding method declines. */
  readonly isDeclined?: true;
  /** What the biller does; absent when the biller is never asked. */
  readonly ending?: {
    readonly status?: TerminalStatus;
    /** Set when, and only when, the status is failed (PF5). */
    readonly failure_reason?: string;
    /** Milliseconds; absent: the usual time; null: it stays processing. */
    readonly after_ms?: number | null;
  };
}

const SLOW_MS = 30_000;

export const TEST_AMOUNTS: readonly TestAmount[] = [
  { amount_in_cents: 66_600, note: 'succeeded', ending: { status: 'succeeded' } },
  {
    amount_in_cents: 66_601,
    note: 'failed: account not found or inactive',
    ending: { status: 'failed', failure_reason: FAILURE_REASONS.account },
  },
  {
    amount_in_cents: 66_602,
    note: 'failed: amount above the maximum',
    ending: { status: 'failed', failure_reason: FAILURE_REASONS.maximum },
  },
  {
    amount_in_cents: 66_603,
    note: 'failed: duplicate payment detected',
    ending: { status: 'failed', failure_reason: FAILURE_REASONS.duplicate },
  },
  { amount_in_cents: 66_604, note: 'canceled', ending: { status: 'canceled' } },
  {
    amount_in_cents: 66_605,
    note: `processing for ${SLOW_MS / 1000} s, then succeeded`,
    ending: { after_ms: SLOW_MS },
  },
  { amount_in_cents: 66_606, note: 'stays processing', ending: { after_ms: null } },
  { amount_in_cents: 66_607, note: 'declined by the funding method', isDeclined: true },
];

/** The entry of an amount, if it is one of them. */
export function testAmount(amount_in_cents: number): TestAmount | undefined {
  return TEST_AMOUNTS.find((one) => one.amount_in_cents === amount_in_cents);
}
