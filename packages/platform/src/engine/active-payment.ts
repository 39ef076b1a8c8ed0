/**
 * A payment in memory, kept as small as possible because a worker holds up to a million: what many payments have in
 * common is one object for all of them, and so is what is remembered of calls that failed, while none has.
 */
import type { PaymentStage, PaymentStatus } from '@duebridge/contract';
import type { Anomaly } from '../partners/payment-record.ts';
import type { CallOrder } from './calls.ts';
import type { PartnerQueue } from './partner-queue.ts';
import type { PaymentMemory } from './payment-steps.ts';

/** What the payments of one partner, biller, batch and funding method have in common. */
export interface PaymentGroup {
  readonly queue: PartnerQueue<ActivePayment>;
  readonly biller_id: string;
  readonly platform_batch_id: string;
  readonly funding_method: string;
}

/** What is remembered of calls that failed and of answers that were odd; most payments have none of it. */
type Trouble = Pick<
  PaymentMemory,
  'tries' | 'failedAt' | 'ownFaults' | 'wasCrossed' | 'grace' | 'resubmit' | 'funded' | 'anomaly'
>;

const NO_TROUBLE: Trouble = {
  tries: 0,
  failedAt: undefined,
  ownFaults: 0,
  wasCrossed: false,
  grace: 0,
  resubmit: false,
  funded: false,
  anomaly: undefined,
};
/** The one for payments whose funds were authorized here, which is every payment that this process made. */
const ONLY_FUNDED: Trouble = { ...NO_TROUBLE, funded: true };

/** The slot of a payment that is not driven any more. */
const GONE = -2;

/** A payment that a worker drives. Numbers are whole and small: a fraction, or one beyond 2^31, would cost 16 bytes more. */
export class ActivePayment implements PaymentMemory {
  /** When its next step is due, in whole monotonic milliseconds. */
  at: number;
  readonly platform_payment_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
  readonly group: PaymentGroup;
  /** Wall time of creation in milliseconds from the dispatcher's own beginning. */
  readonly createdAt: number;
  stage: PaymentStage;
  status: PaymentStatus;
  payment_id: string | null;
  acceptedAt: number;
  polls = 0;
  #slot: number;
  #trouble: Trouble = NO_TROUBLE;

  constructor(
    row: {
      readonly platform_payment_id: string;
      readonly account_id: string;
      readonly amount_in_cents: number;
      readonly stage: PaymentStage;
      readonly status: PaymentStatus;
      readonly payment_id: string | null;
    },
    group: PaymentGroup,
    slot: number,
    times: { readonly at: number; readonly createdAt: number; readonly acceptedAt: number },
  ) {
    this.at = times.at;
    this.platform_payment_id = row.platform_payment_id;
    this.account_id = row.account_id;
    this.amount_in_cents = row.amount_in_cents;
    this.group = group;
    this.createdAt = times.createdAt;
    this.stage = row.stage;
    this.status = row.status;
    this.payment_id = row.payment_id;
    this.acceptedAt = times.acceptedAt;
    this.#slot = slot;
  }

  get queue(): PartnerQueue<ActivePayment> {
    return this.group.queue;
  }

  /** See slots.ts. */
  get slot(): number {
    return this.#slot;
  }

  /** False for the state of a payment that was forgotten, or restarted from its row. */
  get isCurrent(): boolean {
    return this.#slot !== GONE;
  }

  /** Marks it as not driven any more: whatever still holds it drops it. */
  forget(): void {
    this.#slot = GONE;
  }

  get tries(): number {
    return this.#trouble.tries;
  }
  set tries(tries: number) {
    if (tries !== this.tries) this.#note({ tries });
  }

  get failedAt(): number | undefined {
    return this.#trouble.failedAt;
  }
  set failedAt(failedAt: number | undefined) {
    if (failedAt !== this.failedAt) this.#note({ failedAt });
  }

  get ownFaults(): number {
    return this.#trouble.ownFaults;
  }
  set ownFaults(ownFaults: number) {
    if (ownFaults !== this.ownFaults) this.#note({ ownFaults });
  }

  get wasCrossed(): boolean {
    return this.#trouble.wasCrossed;
  }
  set wasCrossed(wasCrossed: boolean) {
    if (wasCrossed !== this.wasCrossed) this.#note({ wasCrossed });
  }

  get grace(): number {
    return this.#trouble.grace;
  }
  set grace(grace: number) {
    if (grace !== this.grace) this.#note({ grace });
  }

  get resubmit(): boolean {
    return this.#trouble.resubmit;
  }
  set resubmit(resubmit: boolean) {
    if (resubmit !== this.resubmit) this.#note({ resubmit });
  }

  get funded(): boolean {
    return this.#trouble.funded;
  }
  set funded(funded: boolean) {
    if (funded === this.funded) return;
    if (this.#trouble === NO_TROUBLE) this.#trouble = ONLY_FUNDED;
    else this.#note({ funded });
  }

  get anomaly(): Anomaly | undefined {
    return this.#trouble.anomaly;
  }
  set anomaly(anomaly: Anomaly | undefined) {
    if (anomaly !== this.anomaly) this.#note({ anomaly });
  }

  /** What the rules of payment-steps.ts read, as an object of its own. */
  memory(): PaymentMemory {
    const { stage, status, payment_id, acceptedAt, polls } = this;
    return { stage, status, payment_id, acceptedAt, polls, ...this.#trouble };
  }

  #note(change: Partial<Trouble>): void {
    this.#trouble = { ...this.#trouble, ...change };
  }
}

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
