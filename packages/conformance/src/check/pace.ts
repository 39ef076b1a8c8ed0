/** How fast the judge goes, and how long it waits. */
import { REQUEST_TIMEOUT_MS } from './http.ts';

/** The pace of the judge. Tests shorten it; a real run uses USUAL_PACE. */
export interface Pace {
  /** First and longest wait between two polls of one payment. */
  readonly poll_first_ms: number;
  readonly poll_longest_ms: number;
  /** P57: polls per second, and for how long. */
  readonly burst_per_second: number;
  readonly burst_seconds: number;
  /** P54: delay between two of the ten polls after the end. */
  readonly after_end_ms: number;
  /** How long a balance may lag behind a status that says succeeded. */
  readonly balance_lag_ms: number;
  /** Maximum wait for one answer. */
  readonly request_timeout_ms: number;
  /** How long a platform must send no call for a payment that has ended (C03, F28). */
  readonly quiet_ms: number;
  /** Maximum concurrent requests, bursts excluded. */
  readonly at_once: number;
  /** Maximum time that a run waits for payments to end; --recheck covers those that take longer. */
  readonly longest_wait_ms: number;
  /** How long a check may keep repeating one request sequentially (P26). */
  readonly repeat_ms: number;
}

export const USUAL_PACE: Pace = {
  poll_first_ms: 150,
  poll_longest_ms: 2_000,
  burst_per_second: 10,
  burst_seconds: 10,
  after_end_ms: 100,
  balance_lag_ms: 2_000,
  request_timeout_ms: REQUEST_TIMEOUT_MS,
  quiet_ms: 3_000,
  at_once: 24,
  longest_wait_ms: 300_000,
  repeat_ms: 15_000,
};
