/**
 * Account and balance reads (B1, B2, AC1): what the AccountSystem knows, at the moment it is asked. Nothing is kept here, so
 * nothing can be stale.
 */
import { Refusal, type AccountRecord, type Balance } from '@duebridge/contract';
import type { AccountSystem, BillerRules } from './account-system.ts';

/** Which account, as the path names it. */
export interface AccountPath {
  readonly biller_id: string;
  readonly account_id: string;
}

/** Where accounts are looked up. */
type Lookup = Pick<AccountSystem, 'findAccount' | 'findBalance'>;

/** The accounts of the billers that are served; undefined: all. An account of another biller does not exist here. */
export function onlyServed(
  accounts: AccountSystem,
  billers: readonly BillerRules[] | undefined,
): Lookup {
  if (!billers) return accounts;
  const served = new Set(billers.map((biller) => biller.biller_id));
  const nothing = Promise.resolve(undefined);
  return {
    findAccount: (biller_id, account_id) =>
      served.has(biller_id) ? accounts.findAccount(biller_id, account_id) : nothing,
    ...(accounts.findBalance && {
      findBalance: (biller_id, account_id) =>
        served.has(biller_id)
          ? (accounts.findBalance?.(biller_id, account_id) ?? nothing)
          : nothing,
    }),
  };
}

/** Gives the account record (decision 4). Refuses with ACCOUNT_NOT_FOUND. */
export async function readAccount(
  accounts: Lookup,
  { biller_id, account_id }: AccountPath,
): Promise<AccountRecord> {
  const account = await accounts.findAccount(biller_id, account_id);
  if (!account) throw new Refusal('ACCOUNT_NOT_FOUND');
  return account;
}

/** Gives the balance; an account without one answers an empty object, as no field is required (TR3). Refuses as `readAccount`. */
export async function readBalance(accounts: Lookup, path: AccountPath): Promise<Balance> {
  if (!accounts.findBalance) return (await readAccount(accounts, path)).balance ?? {};
  const balance = await accounts.findBalance(path.biller_id, path.account_id);
  if (!balance) throw new Refusal('ACCOUNT_NOT_FOUND');
  return balance;
}
