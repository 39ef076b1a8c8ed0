/** What makes the platform under test pay: drivers.ts and by-hand.ts hold the ways to do it. */

/** A payment that a platform was asked to make. */
export interface Driven {
  /** Undefined where only the PUT that comes of it will tell. */
  readonly platform_payment_id: string | undefined;
  /** What the platform tells its customer now; undefined when it cannot be asked. */
  readonly status: (platform_payment_id: string) => Promise<string | undefined>;
}

/** Makes the platform under test pay. */
export interface Driver {
  /** How many payments it can be asked for at the same moment. */
  readonly at_once: number;
  readonly pay: (amount_in_cents: number) => Promise<Driven>;
  /** How long the first PUT may take to come, where that is longer than the platform's next call. */
  readonly arrival_ms?: number;
  /** What the account owes while a payment is asked for; undefined when that is of no matter. */
  readonly due_in_cents?: () => number | undefined;
  /** Told that the payment asked for has come. */
  readonly arrived?: () => void;
  /** Ends what it has started. */
  readonly close?: () => void;
}

/** Makes a driver, given the address at which the scripted partner listens. */
export type MakeDriver = (partner_url: string) => Driver;
