/**
 * The state of the scripted partner: accounts and payments.
 * A payment is stored as processing and ends when the partner's clock has passed its time. Every read settles those that are due, so
 * that no reader sees an ended payment as processing.
 */
import { randomUUID } from 'node:crypto';
import {
  FAILURE_REASONS,
  isTerminal,
  type Balance,
  type PaymentRules,
  type PaymentStatus,
  type TerminalStatus,
} from '@duebridge/contract';
import type { Clock } from '../clock.ts';

/** How a payment ends: after how long (milliseconds of the partner's clock), and with which status. */
export interface Ending {
  readonly status: TerminalStatus;
  /** For people; set when, and only when, the status is failed (PF5). */
  readonly failure_reason?: string;
  /** Undefined: it stays processing until a person ends it by hand. */
  readonly after_ms: number | undefined;
}

/** One account of the scripted partner. */
export interface ScriptedAccount {
  readonly biller_id: string;
  readonly account_id: string;
  readonly status: 'active' | 'inactive';
  /** Undefined: the partner has no balance for it. Succeeded payments lower amount_due_in_cents. */
  readonly balance?: Balance;
  readonly payment_rules?: PaymentRules;
  /** A deviation from "succeeds after the usual time". */
  readonly ending?: Partial<Ending>;
}

/** A payment as stored by the scripted partner. Hooks are meant to write to it. */
export interface StoredPayment {
  /** Its key when it was created; a correct partner uses platform_payment_id (PF2). */
  readonly key: string;
  payment_id: string;
  platform_payment_id: string;
  platform_batch_id: string;
  biller_id: string;
  account_id: string;
  status: PaymentStatus;
  amount_in_cents: number;
  initiated_at: string;
  posted_at: string | null;
  failure_reason?: string;
  ending: Ending;
  /** Milliseconds of the partner's clock since 1970. */
  accepted_ms: number;
}

/** The input of a new payment. */
type NewPayment = Pick<
  StoredPayment,
  | 'key'
  | 'platform_payment_id'
  | 'platform_batch_id'
  | 'biller_id'
  | 'account_id'
  | 'amount_in_cents'
>;

/** The partner's memory. */
export class Book {
  readonly #options: BookOptions;
  readonly #accounts: Map<string, ScriptedAccount>;
  readonly #payments: StoredPayment[] = [];
  readonly #byKey = new Map<string, StoredPayment>();
  readonly #open = new Set<StoredPayment>();

  constructor(options: BookOptions) {
    this.#options = options;
    this.#accounts = new Map(options.accounts.map((one) => [keyOf(one), one]));
  }

  /** The partner's clock: milliseconds since 1970. */
  now(): number {
    return this.#options.clock.now();
  }

  /** The same time in wire format. */
  instant(): string {
    return new Date(this.now()).toISOString();
  }

  /** Every payment ever stored, oldest first. */
  payments(): readonly StoredPayment[] {
    return this.#payments;
  }

  find(key: string): StoredPayment | undefined {
    return this.#byKey.get(key);
  }

  account(biller_id: string, account_id: string): ScriptedAccount | undefined {
    return this.#accounts.get(keyOf({ biller_id, account_id }));
  }

  /** Creates a payment from an instruction without storing it. */
  draft(fields: NewPayment): StoredPayment {
    return {
      ...fields,
      payment_id: `pay_${randomUUID()}`,
      status: 'processing',
      initiated_at: this.instant(),
      posted_at: null,
      ending: endingOf(this, this.#options.processing_ms, fields),
      accepted_ms: this.now(),
    };
  }

  store(payment: StoredPayment): void {
    this.#payments.push(payment);
    this.#byKey.set(payment.key, payment);
    if (!isTerminal(payment.status)) this.#open.add(payment);
  }

  /** Lowers the balance by a payment. */
  post({ biller_id, account_id, amount_in_cents }: StoredPayment): void {
    const account = this.account(biller_id, account_id);
    const due = account?.balance?.amount_due_in_cents;
    if (account === undefined || due === undefined) return;
    const amount_due_in_cents = due - amount_in_cents;
    const last_updated_at = this.instant();
    const balance = { ...account.balance, amount_due_in_cents, last_updated_at };
    this.#accounts.set(keyOf(account), { ...account, balance });
  }

  /** Moves a payment to another status unless it is terminal; `force` moves it in any case. */
  end(payment: StoredPayment, ending: Ending, force = false): void {
    if (isTerminal(payment.status) && !force) return;
    this.#open.delete(payment);
    payment.status = ending.status;
    const posted = new Date(Math.min(this.now(), dueMs(payment))).toISOString();
    payment.posted_at = ending.status === 'succeeded' ? posted : null;
    delete payment.failure_reason;
    if (ending.status === 'succeeded') this.post(payment);
    if (ending.status === 'failed') {
      payment.failure_reason = ending.failure_reason ?? 'The biller refused the payment.';
    }
    this.#options.ended(payment, this);
  }

  /** The record of a payment as sent on the wire (decision 3). */
  record(payment: StoredPayment): Record<string, unknown> {
    this.settle();
    const { key: _key, ending: _ending, accepted_ms: _accepted, ...record } = payment;
    return record;
  }

  /** Ends the payments that are due. */
  settle(): void {
    const now = this.now();
    for (const payment of this.#open) {
      if (dueMs(payment) <= now) this.end(payment, payment.ending);
    }
  }
}

/** What a partner's memory is made with. `processing_ms`: the usual time from accepted to ended. */
interface BookOptions {
  readonly accounts: readonly ScriptedAccount[];
  readonly processing_ms: number;
  readonly clock: Clock;
  readonly ended: (payment: StoredPayment, partner: Book) => void;
}

const keyOf = (place: { readonly biller_id: string; readonly account_id: string }): string =>
  `${place.biller_id}/${place.account_id}`;

/** When a payment ends; never, while nobody ends it by hand. */
const dueMs = ({ accepted_ms, ending: { after_ms = Infinity } }: StoredPayment): number =>
  accepted_ms + after_ms;

/** How a payment will end: failed where the account or its rules do not allow it, otherwise as payments of the account end. */
function endingOf(book: Book, after_ms: number, payment: NewPayment): Ending {
  const failed = (failure_reason: string): Ending => ({
    status: 'failed',
    failure_reason,
    after_ms,
  });
  const account = book.account(payment.biller_id, payment.account_id);
  if (account?.status !== 'active') return failed(FAILURE_REASONS.account);
  const { max_amount_in_cents: maximum = Infinity } = account.payment_rules ?? {};
  if (payment.amount_in_cents > maximum) return failed(FAILURE_REASONS.maximum);
  return { status: 'succeeded', after_ms, ...account.ending };
}
