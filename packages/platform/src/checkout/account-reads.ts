/**
 * Reads of accounts for people who wait: at the token, at the page and at the confirm.
 *
 * enters: an account, and how long its reader waits.  leaves: what its partner says now.
 * holds:  readers of one account at the same time share one call; the reads of one partner stay within its calls a second, in each
 *         process and beside those of the engine. What exceeds them is answered as unreachable, at once and without a call.
 */
import { Refusal } from '@duebridge/contract';
import { rateLimiter, type Clock, type RateLimiter } from '@duebridge/runtime';
import type {
  AccountOutcome,
  AccountView,
  BalanceOutcome,
  PartnerClient,
} from '../partners/client.ts';
import type { Partner } from '../partners/registry.ts';

/** An account as its partner knows it. */
interface Account {
  readonly biller_id: string;
  readonly account_id: string;
}

/** A reader joins a call that ends this much earlier than it would have waited. */
const SHARED_SLACK_MS = 2_000;

export type AccountReads = Pick<PartnerClient, 'getAccount' | 'getBalance'>;

export function openAccountReads(options: {
  readonly client: Pick<PartnerClient, 'getAccount' | 'getBalance'>;
  readonly clock: Clock;
}): AccountReads {
  const { client, clock } = options;
  const budgets = new Map<string, { readonly perSecond: number; readonly limiter: RateLimiter }>();
  const mayCall = ({ partner_id, budget }: Partner): boolean => {
    const perSecond = budget.max_calls_per_second;
    let kept = budgets.get(partner_id);
    if (kept?.perSecond !== perSecond) {
      const limiter = rateLimiter({ perSecond, burst: perSecond, maxKeys: 1, clock });
      kept = { perSecond, limiter };
      budgets.set(partner_id, kept);
    }
    return kept.limiter.take('').ok;
  };

  /** Shares calls under way by account. A call that began with less time than its next reader has is not shared. */
  const sharing = <Outcome>(
    read: (partner: Partner, account: Account, deadlineMs: number) => Promise<Outcome>,
    refused: Outcome,
  ) => {
    const underWay = new Map<
      string,
      { readonly until: number; readonly outcome: Promise<Outcome> }
    >();
    return (
      partner: Partner,
      account: Account,
      { deadlineMs = partner.budget.call_timeout_ms }: { readonly deadlineMs?: number } = {},
    ): Promise<Outcome> => {
      const { biller_id, account_id } = account;
      const key = JSON.stringify([partner.partner_id, biller_id, account_id]);
      const until = clock.monotonic() + deadlineMs;
      const shared = underWay.get(key);
      if (shared !== undefined && shared.until >= until - SHARED_SLACK_MS) return shared.outcome;
      if (!mayCall(partner)) return Promise.resolve(refused);
      const outcome = read(partner, { biller_id, account_id }, deadlineMs).finally(() => {
        if (underWay.get(key)?.outcome === outcome) underWay.delete(key);
      });
      underWay.set(key, { until, outcome });
      return outcome;
    };
  };

  const overBudget = { kind: 'unreachable', reason: 'over_budget' } as const;
  return {
    getAccount: sharing<AccountOutcome>(
      (partner, account, deadlineMs) => client.getAccount(partner, account, { deadlineMs }),
      overBudget,
    ),
    getBalance: sharing<BalanceOutcome>(
      (partner, account, deadlineMs) => client.getBalance(partner, account, { deadlineMs }),
      overBudget,
    ),
  };
}

/** When the partner cannot be read, the page tries again after this. */
const RETRY_AFTER_SECONDS = '5';

/**
 * The account that a customer pays, as its partner has it now. Throws Refusal ACCOUNT_NOT_FOUND for one that is unknown or inactive, and
 * PARTNER_UNREACHABLE.
 */
export async function payableAccount(
  client: Pick<AccountReads, 'getAccount'>,
  partner: Partner,
  account: Account,
  deadlineMs: number,
): Promise<AccountView> {
  const outcome = await client.getAccount(partner, account, { deadlineMs });
  if (outcome.kind === 'unreachable') {
    throw new Refusal('PARTNER_UNREACHABLE', { headers: { 'Retry-After': RETRY_AFTER_SECONDS } });
  }
  if (outcome.kind === 'not_found' || outcome.account.status === 'inactive') {
    throw new Refusal('ACCOUNT_NOT_FOUND');
  }
  return outcome.account;
}
