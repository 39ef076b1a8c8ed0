/**
 * Account and balance reads (B1, B2, AC1): read from the AccountSystem on every request. Nothing is cached, so nothing can be stale.
 */
import { AccountRecord, compileCheck, Refusal, type Balance } from '@duebridge/contract';
import { DatabaseUnavailable } from '@duebridge/runtime';
import {
  describeAccountSystemError,
  within,
  WrongAnswer,
  type AccountSystem,
  type BillerRules,
} from './account-system.ts';
import type { KitContext } from './metrics.ts';
import type { AccountPath } from './store.ts';

/** The account system's deadline in milliseconds: a customer is waiting. */
const DEADLINE_MS = 5_000;
const isAccount = compileCheck(AccountRecord);

/** Creates the reads. An account of a biller that is not among `billers` (undefined: all are served) does not exist here. */
export function openAccountReads(
  options: Omit<KitContext, 'database'> & {
    readonly accounts: Pick<AccountSystem, 'findAccount'>;
    readonly billers: readonly BillerRules[] | undefined;
  },
) {
  const { accounts, billers, metrics, log, clock } = options;
  const served = billers && new Set(billers.map((biller) => biller.biller_id));

  /**
   * Returns the account record (decision 4). Refuses with ACCOUNT_NOT_FOUND; and with SERVICE_UNAVAILABLE after an error, a late answer or an
   * invalid one, which say nothing about the account.
   */
  const account = async ({ biller_id, account_id }: AccountPath): Promise<AccountRecord> => {
    if (served && !served.has(biller_id)) throw new Refusal('ACCOUNT_NOT_FOUND');
    const began = clock.monotonic();
    let answer: AccountRecord | undefined;
    try {
      const asked = Promise.resolve().then(() => accounts.findAccount(biller_id, account_id));
      answer = await within(clock, DEADLINE_MS, 'find_account', asked);
      if (answer !== undefined) checkRecord(answer, biller_id, account_id);
    } catch (error) {
      if (error instanceof Refusal || error instanceof DatabaseUnavailable) throw error;
      log.error(
        { operation: 'find_account', error: describeAccountSystemError(error) },
        'the account system gave no valid answer',
      );
      throw new Refusal('SERVICE_UNAVAILABLE', { headers: { 'Retry-After': '5' } });
    } finally {
      metrics.observeCore('find_account', (clock.monotonic() - began) / 1000);
    }
    if (answer === undefined) throw new Refusal('ACCOUNT_NOT_FOUND');
    return answer;
  };

  return {
    account,
    /** Returns its balance; for an account without one an empty object, as no field is required (TR3). Refuses as `account` does. */
    balance: async (path: AccountPath): Promise<Balance> => (await account(path)).balance ?? {},
  };
}

/** Throws WrongAnswer. A case-insensitive lookup may have returned another customer's account. */
function checkRecord(record: AccountRecord, biller_id: string, account_id: string): void {
  const problems = isAccount
    .problems(record, 'account')
    .map(({ path, problem }) => `${path} ${problem}`);
  if (
    problems.length === 0 &&
    (record.biller_id !== biller_id || record.account_id !== account_id)
  ) {
    problems.push('account is not the one that was asked for');
  }
  if (problems.length > 0) {
    throw new WrongAnswer(`find_account returned an invalid answer: ${problems.join('; ')}`);
  }
}
