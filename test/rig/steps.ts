/**
 * The numbered steps at which the crash rig kills or pauses a process: each is a moment in the life of a payment that the program
 * passes anyway, recognized by the name of a prepared statement, a commit, or a message on the wire. Nothing in the product code knows
 * of them; preload.ts watches for them from inside the process. A step that no payment reaches any more fails the rig, and one whose
 * statement is gone fails steps.test.ts.
 */

/** One step. */
export interface Step {
  readonly side: 'platform' | 'kit';
  /** The event that preload.ts reports there. */
  readonly at: string;
  /** Whether the process holds a lock of the database there, or a lease or claim that others wait for. */
  readonly locked?: true;
  /** Only reached when a worker takes over from another, so another one has to die first. */
  readonly takesOver?: true;
}

/** The steps, in the order of a payment's life. A step's number is its place in the list, from 1. */
export const STEPS: readonly Step[] = [
  { side: 'platform', at: 'before token_insert' },
  { side: 'platform', at: 'after token_insert' },
  { side: 'platform', at: 'after flow_lock', locked: true },
  { side: 'platform', at: 'before payment_insert', locked: true },
  { side: 'platform', at: 'after payment_insert', locked: true },
  { side: 'platform', at: 'before commit of payment_insert', locked: true },
  { side: 'platform', at: 'after commit of payment_insert' },
  { side: 'platform', at: 'before payment_step' },
  { side: 'platform', at: 'after payment_step' },
  { side: 'platform', at: 'sends PUT' },
  { side: 'platform', at: 'sent PUT' },
  { side: 'platform', at: 'hears PUT' },
  { side: 'platform', at: 'heard PUT' },
  { side: 'platform', at: 'sends GET' },
  { side: 'platform', at: 'heard GET' },
  { side: 'platform', at: 'before payment_step of an end' },
  { side: 'platform', at: 'after payment_step of an end' },
  { side: 'platform', at: 'before worker_renew', locked: true },
  { side: 'platform', at: 'after worker_renew', locked: true },
  { side: 'platform', at: 'before slot_take', takesOver: true },
  { side: 'platform', at: 'after slot_take', takesOver: true },
  { side: 'kit', at: 'asked PUT' },
  { side: 'kit', at: 'before kit_insert_payments' },
  { side: 'kit', at: 'after kit_insert_payments' },
  { side: 'kit', at: 'told PUT' },
  { side: 'kit', at: 'asked GET' },
  { side: 'kit', at: 'after kit_lock_payments', locked: true },
  { side: 'kit', at: 'after kit_lock_accounts', locked: true },
  { side: 'kit', at: 'after kit_pay_accounts', locked: true },
  { side: 'kit', at: 'after kit_end_payments', locked: true },
  { side: 'kit', at: 'before commit of kit_end_payments', locked: true },
  { side: 'kit', at: 'after commit of kit_end_payments' },
];
