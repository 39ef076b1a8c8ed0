/**
 * A payment that a worker drives, as it is in memory: what its row says, and what is remembered of its calls. A worker holds up to a
 * million, so the fields are few, and what payments have in common is one object for all of them.
 */
import { PAYMENT_STAGES, PAYMENT_STATUSES } from '@duebridge/contract';
import type { Collection, FundingOrder } from '../funding.ts';
import type { Intent } from '../partners/payment-record.ts';
import type { PaymentRow } from '../store/payments.ts';
import type { PartnerCalls } from './partner-calls.ts';
import type { CallQueue, Lane } from './call-queue.ts';
import type { StepWrite } from '../store/steps.ts';
import { nextStep, type PaymentMemory, type Step } from './payment-steps.ts';

/** What the payments of one partner, biller, batch and funding method have in common. */
export interface PaymentGroup {
  readonly partner: PartnerCalls<ActivePayment>;
  readonly biller_id: string;
  readonly platform_batch_id: string;
  readonly funding_method: string;
  /** The queue of the funding method, and the biller in it, among those of all partners. */
  readonly funding: CallQueue<ActivePayment>;
  readonly funding_party: string;
  readonly collection: Collection;
}

/** A payment that a worker drives. */
export interface ActivePayment extends PaymentMemory {
  /** When its next step is due, in whole monotonic milliseconds. */
  at: number;
  readonly platform_payment_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  readonly group: PaymentGroup;
  /** Wall milliseconds. */
  readonly createdAt: number;
  /** Its acceptance, until it is being written (dispatcher.ts); `saving` resolves once that is over. */
  unsaved: StepWrite | undefined;
  saving: Promise<void> | undefined;
  /** See slots.ts; GONE once the payment was forgotten or restarted from its row. */
  slot: number;
}

/** The slot of a payment that is not driven any more. */
export const GONE = -2;

/** A payment as its row tells of it, for which nothing was called yet. One literal, so that a million share their shape. */
export function activePayment(
  row: PaymentRow,
  slot: number,
  group: PaymentGroup,
  times: { readonly now: number; readonly at: number; readonly databaseNow: string },
): ActivePayment {
  const { now, at, databaseNow } = times;
  const { accepted_at } = row;
  const ageMs = accepted_at === null ? 0 : Date.parse(databaseNow) - Date.parse(accepted_at);
  return {
    at,
    platform_payment_id: row.platform_payment_id,
    account_id: row.account_id,
    amount_in_cents: row.amount_in_cents,
    group,
    createdAt: Date.parse(row.created_at),
    // Each row comes with strings of its own; a million payments share these.
    stage: PAYMENT_STAGES.find((stage) => stage === row.stage) ?? row.stage,
    status: PAYMENT_STATUSES.find((status) => status === row.status) ?? row.status,
    maybeSent: row.maybe_sent === true,
    declined: undefined,
    payment_id: row.payment_id,
    // Never in the future: the database's clock may have been stepped back since, and the next poll would wait for it (EE7).
    acceptedAt: Math.floor(now - Math.max(0, ageMs)),
    unsaved: undefined,
    saving: undefined,
    slot,
    processingMs: 0,
    polls: 0,
    tries: 0,
    failedAt: undefined,
    ownFaults: 0,
    crossed: 0,
    grace: 0,
    resubmit: false,
    losses: 0,
    hold: undefined,
    anomaly: undefined,
  };
}

/** False once the payment was forgotten or restarted from its row: whatever still holds this object drops it. */
export function isCurrent({ slot }: ActivePayment): boolean {
  return slot !== GONE;
}

/** The next call for a payment. */
export function stepOf(payment: ActivePayment): Step {
  return nextStep(payment, payment.group.collection);
}

/** The lane that a payment waits in: its first poll is not queued behind the polls of payments that take long. */
export function laneOf(payment: ActivePayment, step: Step): Lane {
  if (payment.tries > 0) return 'retry';
  if (step === 'poll') return payment.polls === 0 ? 'poll' : 'again';
  return step === 'settle' ? 'poll' : 'new';
}

/** A payment as its calls carry it. */
export type CallOrder = Intent & FundingOrder;

/** The payment as its calls carry it. A PUT may be answered with another payment_id by a partner that forgot it (decision 22). */
export function orderOf(payment: ActivePayment): CallOrder {
  const { platform_payment_id, account_id, amount_in_cents, group } = payment;
  return {
    platform_payment_id,
    biller_id: group.biller_id,
    account_id,
    platform_batch_id: group.platform_batch_id,
    amount_in_cents,
    funding_method: group.funding_method,
    payment_id: payment.stage === 'dispatching' ? null : payment.payment_id,
  };
}
