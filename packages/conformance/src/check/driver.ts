/** The interface to the platform under test that makes it pay; drivers.ts implements it. */

/** A payment that the platform was asked to make. */
export interface Driven {
  /** Undefined when only the resulting PUT reveals it. */
  readonly platform_payment_id: string | undefined;
  /** The status that the platform shows its customer now; undefined when it cannot be asked. */
  readonly status: (platform_payment_id: string) => Promise<string | undefined>;
}

/** Makes the platform under test pay. */
export interface Driver {
  /** How many payments can be requested in parallel. */
  readonly at_once: number;
  /** Makes it pay to the account of the target, or to `account_id`. */
  readonly pay: (amount_in_cents: number, account_id?: string) => Promise<Driven>;
  /** Stops everything it has started. */
  readonly close?: () => void;
}

/** Makes a driver, given the address at which the scripted partner listens. */
export type MakeDriver = (partner_url: string) => Driver;
