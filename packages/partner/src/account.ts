/**
 * Account and balance reads (B1, B2, AC1): what the AccountSystem knows, at the moment it is asked. Nothing is kept here, so
 * nothing can be stale.
 */
import { Refusal, type AccountRecord, type Balance } from '@duebridge/contract';
import type { AccountSystem } from './accounts.ts';

/** Which account, as the path names it. */
export interface AccountPath {
  readonly biller_id: string;
  readonly account_id: string;
}

/** Gives the account record (decision 4). Refuses with ACCOUNT_NOT_FOUND. */
export async function readAccount(
  accounts: AccountSystem,
  { biller_id, account_id }: AccountPath,
): Promise<AccountRecord> {
  const account = await accounts.findAccount(biller_id, account_id);
  if (!account) throw new Refusal('ACCOUNT_NOT_FOUND');
  return account;
}

/** Gives the balance; an account without one answers an empty object, as no field is required (TR3). Refuses as `readAccount`. */
export async function readBalance(accounts: AccountSystem, path: AccountPath): Promise<Balance> {
  if (!accounts.findBalance) return (await readAccount(accounts, path)).balance ?? {};
  const balance = await accounts.findBalance(path.biller_id, path.account_id);
  if (!balance) throw new Refusal('ACCOUNT_NOT_FOUND');
  return balance;
}
