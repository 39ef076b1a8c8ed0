/**
 * The state of the scripted partner: accounts, payments, ledger, clock and random sequence.
 * A payment is stored as processing and ends when the sandbox's clock has passed its time. Every read, every move of the clock
 * and a timer check this, so that no reader sees an ended payment as processing.
 */
import { createHash, randomUUID } from 'node:crypto';
import {
  FAILURE_REASONS,
  isTerminal,
  PAYMENT_STATUSES,
  type BatchStatement,
} from '@duebridge/contract';
import type { Clock } from '../clock.ts';
import type { Insides, Posting, StoredPayment } from './behaviour.ts';
import { MAGIC_AMOUNTS, type Ending, type SandboxAccount } from './magic.ts';

/** A payment of the same amount on the same account within this time is a duplicate (FR1, decision 10). */
const DUPLICATE_WINDOW_MS = 24 * 60 * 60 * 1000;

/** The input of a new payment. */
export interface NewPayment {
  readonly key: string;
  readonly platform_payment_id: string;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  readonly amount_in_cents: number;
}

/** The partner's memory. */
export interface Book extends Insides {
  /** Creates a payment from an instruction without storing it. */
  draft(fields: NewPayment): StoredPayment;
  store(payment: StoredPayment): void;
  accounts(): readonly SandboxAccount[];
  /** Resolves when the payment has ended, or the signal aborts. */
  whenEnded(payment: StoredPayment, signal: AbortSignal): Promise<void>;
  /** Ends the payments that are due. */
  settle(): void;
  reset(): void;
  close(): void;
}

/** Creates an empty state. `processing_ms` is the usual time from accepted to ended. */
export function openBook(options: {
  accounts: readonly SandboxAccount[];
  processing_ms: number;
  clock: Clock;
  seed: number;
  ended: (payment: StoredPayment, partner: Insides) => void;
}): Book {
  let offsetMs = 0;
  let chance = seeded(options.seed);
  let accounts = new Map<string, SandboxAccount>();
  let stored: StoredPayment[] = [];
  let byKey = new Map<string, StoredPayment>();
  let lines: Posting[] = [];
  const open = new Set<StoredPayment>();
  const waiting = new Map<StoredPayment, Set<() => void>>();
  let disarm = (): void => undefined;

  const accountKey = (biller_id: string, account_id: string) => `${biller_id}/${account_id}`;
  const load = () => {
    accounts = new Map(options.accounts.map((a) => [accountKey(a.biller_id, a.account_id), a]));
  };
  load();

  const dueMs = (payment: StoredPayment) =>
    payment.ending.after_ms === undefined
      ? undefined
      : payment.accepted_ms + payment.ending.after_ms;

  const arm = () => {
    disarm();
    const next = Math.min(...[...open].map((payment) => dueMs(payment) ?? Infinity));
    if (!Number.isFinite(next)) return;
    // A machine's clock may be behind its timers by a millisecond: this then fires again, at most every 5 ms.
    disarm = options.clock.after(Math.max(5, next - book.now()), () => book.settle());
  };

  const book: Book = {
    now: () => options.clock.now() + offsetMs,
    instant: () => new Date(book.now()).toISOString(),
    chance: () => chance(),
    payments: () => stored,
    postings: () => lines,
    accounts: () => [...accounts.values()],
    find: (key) => byKey.get(key),
    account: (biller_id, account_id) => accounts.get(accountKey(biller_id, account_id)),

    draft(fields) {
      const accepted_ms = book.now();
      return {
        ...fields,
        payment_id: `pay_${randomUUID()}`,
        status: 'processing',
        initiated_at: new Date(accepted_ms).toISOString(),
        posted_at: null,
        ending: endingOf(book, options.processing_ms, fields),
        accepted_ms,
      };
    },

    store(payment) {
      stored.push(payment);
      byKey.set(payment.key, payment);
      if (!isTerminal(payment.status)) {
        open.add(payment);
        arm();
      }
    },

    post(payment) {
      lines.push({
        platform_payment_id: payment.platform_payment_id,
        payment_id: payment.payment_id,
        biller_id: payment.biller_id,
        account_id: payment.account_id,
        amount_in_cents: payment.amount_in_cents,
        posted_at: book.instant(),
      });
      const key = accountKey(payment.biller_id, payment.account_id);
      const account = accounts.get(key);
      if (account?.balance?.amount_due_in_cents === undefined) return;
      accounts.set(key, {
        ...account,
        balance: {
          ...account.balance,
          amount_due_in_cents: account.balance.amount_due_in_cents - payment.amount_in_cents,
          last_updated_at: book.instant(),
        },
      });
    },

    end(payment, ending, force = false) {
      if (isTerminal(payment.status) && !force) return;
      open.delete(payment);
      payment.status = ending.status;
      delete payment.failure_reason;
      if (ending.status === 'succeeded') {
        payment.posted_at = book.instant();
        book.post(payment);
      } else {
        payment.posted_at = null;
        if (ending.status === 'failed') {
          payment.failure_reason = ending.failure_reason ?? 'The biller refused the payment.';
        }
      }
      options.ended(payment, book);
      for (const wake of waiting.get(payment) ?? []) wake();
      waiting.delete(payment);
    },

    record: (payment) => ({
      payment_id: payment.payment_id,
      platform_payment_id: payment.platform_payment_id,
      platform_batch_id: payment.platform_batch_id,
      biller_id: payment.biller_id,
      account_id: payment.account_id,
      status: payment.status,
      amount_in_cents: payment.amount_in_cents,
      initiated_at: payment.initiated_at,
      posted_at: payment.posted_at,
      ...(payment.failure_reason === undefined ? {} : { failure_reason: payment.failure_reason }),
    }),

    settle() {
      const now = book.now();
      for (const payment of open) {
        const due = dueMs(payment);
        if (due !== undefined && due <= now) book.end(payment, payment.ending);
      }
      arm();
    },

    whenEnded(payment, signal) {
      if (isTerminal(payment.status) || signal.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const wakers = waiting.get(payment) ?? new Set();
        waiting.set(payment, wakers);
        const wake = () => {
          wakers.delete(wake);
          signal.removeEventListener('abort', wake);
          resolve();
        };
        wakers.add(wake);
        signal.addEventListener('abort', wake);
      });
    },

    advance(ms) {
      offsetMs += ms;
      book.settle();
    },

    reset() {
      offsetMs = 0;
      chance = seeded(options.seed);
      stored = [];
      byKey = new Map();
      lines = [];
      open.clear();
      for (const wakers of waiting.values()) for (const wake of wakers) wake();
      waiting.clear();
      disarm();
      load();
    },

    close() {
      disarm();
    },
  };
  return book;
}

/** How a payment will end: the account's own outcome first, then its rules, then the magic amounts. */
function endingOf(book: Book, processing_ms: number, payment: NewPayment): Ending {
  const usual: Ending = { status: 'succeeded', after_ms: processing_ms };
  const failed = (failure_reason: string): Ending => ({
    status: 'failed',
    failure_reason,
    after_ms: processing_ms,
  });
  const account = book.account(payment.biller_id, payment.account_id);
  if (account === undefined || account.status === 'inactive') {
    return failed(FAILURE_REASONS.account);
  }
  const maximum = account.payment_rules?.max_amount_in_cents;
  if (maximum !== undefined && payment.amount_in_cents > maximum) {
    return failed(FAILURE_REASONS.maximum);
  }
  if (account.refuses_duplicates === true && isDuplicate(book, payment)) {
    return failed(FAILURE_REASONS.duplicate);
  }
  const magic = MAGIC_AMOUNTS.find((entry) => entry.amount_in_cents === payment.amount_in_cents);
  return { ...usual, ...magic?.ending, ...account.ending };
}

function isDuplicate(book: Book, payment: NewPayment): boolean {
  return book
    .payments()
    .some(
      (other) =>
        other.biller_id === payment.biller_id &&
        other.account_id === payment.account_id &&
        other.amount_in_cents === payment.amount_in_cents &&
        other.status !== 'failed' &&
        book.now() - other.accepted_ms < DUPLICATE_WINDOW_MS,
    );
}

/** The statement of one batch (decision 26). */
export function statementOf(
  platform_batch_id: string,
  payments: readonly StoredPayment[],
): BatchStatement {
  const lines = payments
    .map((p) => Buffer.from(`${p.platform_payment_id},${p.status},${p.amount_in_cents}\n`))
    .sort((a, b) => Buffer.compare(a, b));
  return {
    platform_batch_id,
    count: payments.length,
    totals: PAYMENT_STATUSES.flatMap((status) => {
      const those = payments.filter((payment) => payment.status === status);
      if (those.length === 0) return [];
      const amount_in_cents = those.reduce((sum, payment) => sum + payment.amount_in_cents, 0);
      return [{ status, count: those.length, amount_in_cents }];
    }),
    sha256: createHash('sha256').update(Buffer.concat(lines)).digest('hex'),
  };
}

/** mulberry32: a small generator whose whole state is one number, so that a seed reproduces the sequence. */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
