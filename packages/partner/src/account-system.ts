/**
 * What the kit asks of the books behind it: the AccountSystem. `ledger.ts` is the default one; a biller whose accounts live in a
 * system of its own writes one in a few dozen lines (example/own-accounts.ts) and changes nothing else.
 */
import type { AccountRecord, Balance } from '@duebridge/contract';
import type { Transaction } from '@duebridge/runtime';

/** A payment that is to be posted to its account. */
export interface Posting {
  /** The key of idempotency: posting the same id again must change nothing and give the same outcome (PF2). */
  readonly platform_payment_id: string;
  readonly payment_id: string;
  readonly platform_batch_id: string;
  readonly biller_id: string;
  readonly account_id: string;
  /** Whole US cents, at least 1 (S5, decision 11). */
  readonly amount_in_cents: number;
  /** When the kit accepted it: ISO 8601 in UTC (PF7). */
  readonly initiated_at: string;
}

/**
 * What became of one posting.
 * `posted`: it is final in the books (ST2). `failed`: it can never be posted, and why, in words for the customer (ST3, FR1).
 * `later`: not decided yet (a nightly run, a queue); the payment stays processing and is asked for again.
 */
export type PostOutcome =
  | { readonly outcome: 'posted' }
  | { readonly outcome: 'failed'; readonly reason: string }
  | { readonly outcome: 'later' };

interface AccountReads {
  /** Gives the account, or undefined when there is none (404). Ids are compared byte by byte (decision 13). */
  findAccount(biller_id: string, account_id: string): Promise<AccountRecord | undefined>;
  /** Gives the balance, undefined when there is no such account. Without it, Get Balance answers the account's `balance`. */
  findBalance?(biller_id: string, account_id: string): Promise<Balance | undefined>;
}

/** Books in the kit's own database: they move in the transaction that ends the payment, so both happen or neither (Q6). */
export interface AccountsInTransaction extends AccountReads {
  readonly posts: 'in_transaction';
  /**
   * Posts hundreds at once and gives one outcome for each, in their order. Everything it writes goes through `tx`; it may run
   * again when PostgreSQL breaks the transaction off. Lock accounts in one order (sorted), or two replicas will collide.
   * Throwing changes nothing; the payments are tried again, each alone, so that one bad payment holds up no other.
   */
  post(payments: readonly Posting[], tx: Transaction): Promise<readonly PostOutcome[]>;
}

/** Books in another system, reached by its own means: it must itself keep a repeated id from posting twice. */
export interface AccountsInOwnSystem extends AccountReads {
  readonly posts: 'in_own_system';
  /**
   * Posts and gives one outcome for each, in their order. Throw when the outcome is not known (a timeout): the same payments are
   * posted again until there is one, and cannot be canceled meanwhile. `signal` aborts when the deadline of the call has passed.
   */
  post(payments: readonly Posting[], signal: AbortSignal): Promise<readonly PostOutcome[]>;
}

/** The books behind the kit. */
export type AccountSystem = AccountsInTransaction | AccountsInOwnSystem;

/** What a biller allows on all its accounts. */
export interface BillerRules {
  readonly biller_id: string;
  /** A payment above this fails (FR1, decision 10); an account may have a lower maximum of its own. */
  readonly max_amount_in_cents?: number;
  /**
   * Another payment of the same account and amount within this many seconds fails as a duplicate (FR1, decision 10).
   * Absent or 0: no such detection, because two equal payments a day can both be meant.
   */
  readonly duplicate_window_seconds?: number;
}
