/**
 * What the kit asks of the accounts behind it: the AccountSystem. `ledger.ts` is the default one; a biller whose accounts live in a
 * system of its own writes one in a few dozen lines (example/own-accounts.ts) and changes nothing else.
 *
 * What an AccountSystem answers is checked before it is believed: its account records by account-reads.ts, its outcomes here.
 */
import {
  FAILURE_REASONS,
  instantText,
  MAX_FAILURE_REASON_LENGTH,
  type AccountOutcome,
  type AccountPosting,
  type AccountRecord,
} from '@duebridge/contract';
import { DatabaseUnavailable, kindOfError, type Clock, type Transaction } from '@duebridge/runtime';
import type { PaymentEnd, PaymentRow } from './store.ts';

/**
 * A payment to be posted to its account. `platform_payment_id` is the idempotency key: posting the same id again must change nothing and
 * return the same outcome (PF2). `amount_in_cents` are whole US cents, at least 1 (S5, decision 11).
 */
export type Posting = Readonly<AccountPosting>;

/**
 * The result of one posting: `posted` for good (ST2), `failed` for good with a reason that the customer reads (ST3, FR1), `canceled` there
 * before it was posted (ST4), or `later`: not decided yet (a nightly run, a queue), so that the payment stays processing and is asked for
 * again, not before `until` where it is given. An operator may cancel it meanwhile, unless `cancelable` is false: say that when the other
 * system has already taken the payment and will post it without being asked again. Times are ISO 8601 with offset.
 */
export type PostOutcome = Readonly<AccountOutcome>;

/** Not decided yet. */
export type Later = Extract<PostOutcome, { readonly outcome: 'later' }>;

/** How a payment ended in the account system. */
export type FinalOutcome = Exclude<PostOutcome, Later>;

/** In the kit's transaction alone: another transaction has the account locked. Nothing was written; it is tried again, alone. */
export interface Locked {
  readonly outcome: 'locked';
}

interface AccountReads {
  /** Returns the account, or undefined when there is none (404). Ids are compared byte by byte (decision 13). */
  findAccount(biller_id: string, account_id: string): Promise<AccountRecord | undefined>;
}

/** Accounts in the kit's own database: balances change in the transaction that ends the payment, so both happen or neither (KT6). */
export interface AccountsInTransaction extends AccountReads {
  readonly posts: 'in_transaction';
  /**
   * Posts hundreds at once and gives one outcome for each, in their order. Everything it writes goes through `tx`; it may run
   * again when PostgreSQL breaks the transaction off. Lock accounts in one order (sorted), or two replicas will collide.
   *
   * Throwing changes nothing; the payments are tried again, each alone, so that one bad payment holds up no other. So are they
   * when one waits for a lock for 100 ms, when a statement takes longer than 0.8 s, or when no statement runs for as long. Alone, a
   * payment has 0.5 s for each, and 10 s from its second try on. Given several, answer `locked` for those whose account another
   * transaction has (SELECT ... FOR UPDATE SKIP LOCKED): then they delay no other.
   */
  post(payments: readonly Posting[], tx: Transaction): Promise<readonly (PostOutcome | Locked)[]>;
}

/** Settings of the calls to another system. */
export interface CallOptions {
  /**
   * Concurrent calls, not counting those beyond their deadline; default 16. An account has one of them, a biller at most half, and half of
   * what is left where others hang. With 1, or 2 for an only biller, a call that hangs delays all others.
   */
  readonly concurrency?: number;
  /**
   * The deadline in milliseconds, after which a call no longer delays others; default 10,000. Its answer still counts. After six deadlines
   * the call is given up, and its `signal` aborts. A look-up is given up after one, or after five seconds if that is longer.
   */
  readonly deadlineMs?: number;
}

/** Accounts in another system, which must keep a repeated id from posting twice. */
export interface AccountsInOwnSystem extends AccountReads {
  readonly posts: 'in_own_system';
  readonly calls?: CallOptions;
  /**
   * Posts one payment and gives its outcome, both in a list of one. Throw when the outcome is not known (a timeout): the payment is looked
   * up, or posted again, until there is one, and cannot be canceled meanwhile. The same id is never posted while a call that holds
   * it has not returned, at this replica or another living one; so return or throw once nothing more will happen. `signal` aborts
   * when the call is given up.
   */
  post(payments: readonly Posting[], signal: AbortSignal): Promise<readonly PostOutcome[]>;
  /**
   * Reports the outcome of a payment that was posted before with an unknown outcome; undefined when the other system has never
   * heard of it. If present, the kit looks such a payment up before posting it again.
   */
  lookup?(platform_payment_id: string, signal: AbortSignal): Promise<PostOutcome | undefined>;
}

/** The accounts behind the kit. */
export type AccountSystem = AccountsInTransaction | AccountsInOwnSystem;

/** A biller's rules for all its accounts. */
export interface BillerRules {
  readonly biller_id: string;
  /** A payment below this fails; an account may have a higher minimum. */
  readonly min_amount_in_cents?: number;
  /** A payment above this fails (FR1, decision 10); an account may have a lower maximum. */
  readonly max_amount_in_cents?: number;
  /**
   * Another payment of the same account and amount within this many seconds fails as a duplicate (FR1, decision 10). Absent or 0:
   * no detection, because two equal payments a day may both be intended.
   */
  readonly duplicate_window_seconds?: number;
}

/** The reason for a payment below a minimum. The interface names no such reason, but a biller may have such a rule. */
const BELOW_MINIMUM = 'The amount is below the minimum that the biller allows.';

/**
 * Returns the reason why a payment of this amount must fail on this account, for the customer, or undefined. Takes the current
 * account; undefined: it does not exist.
 */
export function reasonAgainst(
  amount_in_cents: number,
  account: Pick<AccountRecord, 'status' | 'payment_rules'> | undefined,
): string | undefined {
  if (account?.status !== 'active') return FAILURE_REASONS.account;
  return reasonByLimits(amount_in_cents, account.payment_rules ?? {});
}

/** The same by a minimum and a maximum alone. */
export function reasonByLimits(
  amount_in_cents: number,
  limits: { readonly min_amount_in_cents?: number; readonly max_amount_in_cents?: number },
): string | undefined {
  if (amount_in_cents > (limits.max_amount_in_cents ?? Infinity)) return FAILURE_REASONS.maximum;
  if (amount_in_cents < (limits.min_amount_in_cents ?? 0)) return BELOW_MINIMUM;
  return undefined;
}

/** An outcome that was checked: what the row of a payment that has ended gets from it, or why it has not ended. */
export type CheckedOutcome =
  | Pick<PaymentEnd, 'status' | 'failure_reason' | 'posted_at'>
  | { readonly outcome: 'later'; readonly until: string | null; readonly cancelable: boolean }
  | Locked;

/** An answer of an AccountSystem that does not match its type. */
export class WrongAnswer extends Error {
  override readonly name = 'WrongAnswer';
}

/** Checks the answer of `post`: as many outcomes as payments, each valid for `checkedOutcome`. Throws WrongAnswer. */
export function checkedOutcomes(answer: unknown, payments: number): CheckedOutcome[] {
  if (!Array.isArray(answer) || answer.length !== payments) {
    throw new WrongAnswer(`post must return one outcome for each of ${payments} payments`);
  }
  return answer.map(checkedOutcome);
}

/** Checks one outcome; a reason is cut to what the wire and the tables take, times are in UTC. Throws WrongAnswer. */
export function checkedOutcome(answer: unknown): CheckedOutcome {
  // Whatever is no object has no outcome.
  const given: Readonly<Record<string, unknown>> = { ...(answer as object | null | undefined) };
  switch (given['outcome']) {
    case 'posted': {
      const posted_at = instantOf(given['posted_at'], 'posted_at');
      return { status: 'succeeded', failure_reason: null, posted_at };
    }
    case 'failed': {
      const reason = given['reason'];
      // PostgreSQL does not accept NUL. What is left must still say something, or the payment could not be ended with it.
      const failure_reason =
        typeof reason === 'string'
          ? reason.replaceAll('\0', ' ').slice(0, MAX_FAILURE_REASON_LENGTH).toWellFormed()
          : '';
      if (!/\S/.test(failure_reason))
        throw new WrongAnswer('the outcome "failed" needs a reason (PF5)');
      return { status: 'failed', failure_reason, posted_at: null };
    }
    case 'canceled':
      return { status: 'canceled', failure_reason: null, posted_at: null };
    case 'locked':
      return { outcome: 'locked' };
    case 'later':
      return {
        outcome: 'later',
        until: instantOf(given['until'], 'until'),
        cancelable: given['cancelable'] !== false,
      };
    default:
      throw new WrongAnswer('an outcome must be posted, failed, canceled or later');
  }
}

function instantOf(value: unknown, name: string): string | null {
  if (value === undefined || value === null) return null;
  const instant = typeof value === 'string' ? instantText(value) : undefined;
  if (instant === undefined) {
    throw new WrongAnswer(`${name} must be a time such as 2026-03-01T09:30:00Z`);
  }
  return instant;
}

// Asking it ---------------------------------------------------------------------------------------------------------------

/** The data of a payment that an account system receives: what does not change when it ends. */
export function toPosting(payment: PaymentRow): Posting {
  const { status: _status, posted_at: _posted, failure_reason: _reason, ...posting } = payment;
  return posting;
}

/** A call that exceeded its deadline. */
export class TooLate extends Error {
  override readonly name = 'TooLate';
}

/**
 * What the log may contain of an account system's error: our own messages in full; of anything else only its type and location,
 * because its message may quote the customer.
 */
export function describeAccountSystemError(error: unknown): string {
  const isOurs =
    error instanceof WrongAnswer ||
    error instanceof TooLate ||
    error instanceof DatabaseUnavailable;
  return isOurs ? error.message : kindOfError(error);
}

/** Returns the result of `work`, or throws TooLate after `ms`. The work continues; later errors of it are ignored. */
export async function within<T>(
  clock: Clock,
  ms: number,
  what: string,
  work: Promise<T>,
): Promise<T> {
  const over = new AbortController();
  work.catch(() => undefined);
  const late = clock.sleep(ms, over.signal).then((): T => {
    throw new TooLate(`${what} took longer than ${ms} ms`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}
