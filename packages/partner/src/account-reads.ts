/**
 * Account and balance reads (B1, B2, AC1): read from the AccountSystem on every request. Nothing is cached, so nothing can be stale.
 */
import { AccountRecord, Balance, compileCheck, Refusal, type Detail } from '@duebridge/contract';
import { DatabaseUnavailable, type Clock, type Log } from '@duebridge/runtime';
import { WrongAnswer, type AccountSystem, type BillerRules } from './account-system.ts';
import type { KitMetrics } from './metrics.ts';
import { describeAccountSystemError, within } from './poster.ts';

/** An account as named in the path. */
export interface AccountPath {
  readonly biller_id: string;
  readonly account_id: string;
}

/** Where accounts are looked up. */
interface Lookup {
  findAccount(biller_id: string, account_id: string): Promise<AccountRecord | undefined>;
  readonly findBalance?: (biller_id: string, account_id: string) => Promise<Balance | undefined>;
}

/** The billers served; undefined: all. An account of another biller does not exist here. */
export function onlyServed(
  accounts: AccountSystem,
  billers: readonly BillerRules[] | undefined,
): Lookup {
  const served = billers && new Set(billers.map((biller) => biller.biller_id));
  const nothing = Promise.resolve(undefined);
  const isServed = (biller_id: string): boolean => served?.has(biller_id) ?? true;
  return {
    findAccount: (biller_id, account_id) =>
      isServed(biller_id) ? accounts.findAccount(biller_id, account_id) : nothing,
    ...(accounts.findBalance && {
      findBalance: (biller_id, account_id) =>
        isServed(biller_id) ? (accounts.findBalance?.(biller_id, account_id) ?? nothing) : nothing,
    }),
  };
}

/** Reads accounts and balances, and validates every answer. */
export interface AccountReads {
  /**
   * Returns the account record (decision 4). Refuses with ACCOUNT_NOT_FOUND, and SERVICE_UNAVAILABLE when the account system gives
   * no answer.
   */
  account(path: AccountPath): Promise<AccountRecord>;
  /**
   * Returns the balance; for an account without one an empty object, as no field is required (TR3). Refuses as `account` does.
   */
  balance(path: AccountPath): Promise<Balance>;
}

/** The account system's deadline in milliseconds: a customer is waiting. */
const DEADLINE_MS = 5_000;
const isAccount = compileCheck(AccountRecord);
const isBalance = compileCheck(Balance);

/** Creates the reads. `deadlineMs`: default 5,000. */
export function openAccountReads(options: {
  accounts: Lookup;
  metrics: KitMetrics;
  log: Log;
  clock: Clock;
  deadlineMs?: number;
}): AccountReads {
  const { accounts, metrics, log, clock } = options;

  /**
   * Asks the account system. An error, a late answer or an invalid one says nothing about the account, so the caller should
   * retry.
   */
  const ask = async <T>(
    operation: 'find_account' | 'find_balance',
    question: () => Promise<T | undefined>,
    problemsOf: (answer: T) => readonly Detail[],
  ): Promise<T> => {
    const began = clock.monotonic();
    let answer: T | undefined;
    try {
      const asked = Promise.resolve().then(question);
      answer = await within(clock, options.deadlineMs ?? DEADLINE_MS, operation, asked);
      const problems = answer === undefined ? [] : problemsOf(answer);
      if (problems.length > 0) {
        const named = problems.map(({ path, problem }) => `${path} ${problem}`).join('; ');
        throw new WrongAnswer(`${operation} returned an invalid answer: ${named}`);
      }
    } catch (error) {
      if (error instanceof Refusal || error instanceof DatabaseUnavailable) throw error;
      log.error(
        { operation, error: describeAccountSystemError(error) },
        'the account system gave no valid answer',
      );
      throw new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': '5' } });
    } finally {
      metrics.observeCore(operation, (clock.monotonic() - began) / 1000);
    }
    if (answer === undefined) throw new Refusal('ACCOUNT_NOT_FOUND');
    return answer;
  };

  const account = ({ biller_id, account_id }: AccountPath): Promise<AccountRecord> =>
    ask(
      'find_account',
      () => accounts.findAccount(biller_id, account_id),
      (answer) => {
        const problems = isAccount.problems(answer, 'account');
        if (problems.length > 0) return problems;
        // A case-insensitive lookup may return another customer's account.
        const isOther = answer.biller_id !== biller_id || answer.account_id !== account_id;
        return isOther ? [{ path: 'account', problem: 'is not the one that was asked for' }] : [];
      },
    );

  return {
    account,
    async balance(path) {
      const { findBalance } = accounts;
      if (!findBalance) return (await account(path)).balance ?? {};
      return ask(
        'find_balance',
        () => findBalance(path.biller_id, path.account_id),
        (answer) => isBalance.problems(answer, 'balance'),
      );
    },
  };
}
