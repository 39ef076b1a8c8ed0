/**
 * The accounts and amounts with which the sandbox partner demonstrates every way a payment can end. The partner, `--help` and the
 * sandbox page all use this table.
 */
import {
  TEST_AMOUNTS,
  type Balance,
  type PaymentRules,
  type TerminalStatus,
} from '@duebridge/contract';

/** How a payment ends: after how long (milliseconds of the sandbox's clock), and with which status. */
export interface Ending {
  readonly status: TerminalStatus;
  /** For people; set when, and only when, the status is failed (PF5). */
  readonly failure_reason?: string;
  /** Undefined: it stays processing until a person ends it by hand. */
  readonly after_ms: number | undefined;
}

/** One account of the sandbox. */
export interface SandboxAccount {
  readonly biller_id: string;
  readonly account_id: string;
  readonly status: 'active' | 'inactive';
  readonly holder?: { readonly first_name: string; readonly last_name: string };
  /** Undefined: the partner has no balance for it. Succeeded payments lower amount_due_in_cents. */
  readonly balance?: Balance;
  readonly payment_rules?: PaymentRules;
  /** What is special about it, for people. */
  readonly note?: string;
  /** A deviation from "succeeds after the usual time". */
  readonly ending?: Partial<Ending>;
}

/** The delay of "slow": longer than the platform's first polls, short enough to watch. */
export const SLOW_MS = 30_000;

/** The biller of the magic accounts. */
export const SANDBOX_BILLER = 'sandbox-utility';

/** The second biller, for trying out an aggregator (TR4). */
const SECOND_BILLER = 'sandbox-water';

const holder = { first_name: 'Ada', last_name: 'Example' };

/** The highest amount that the account `maximum` accepts. */
export const MAGIC_MAXIMUM_IN_CENTS = 50_000;

const account = (
  account_id: string,
  note: string,
  rest: Partial<SandboxAccount> = {},
): SandboxAccount => ({
  biller_id: SANDBOX_BILLER,
  account_id,
  status: 'active',
  holder,
  balance: { amount_due_in_cents: 12_500, due_date: '2030-01-31' },
  note,
  ...rest,
});

/** The magic accounts. Any other id is an unknown account. */
export const MAGIC_ACCOUNTS: readonly SandboxAccount[] = [
  account('active', 'Active, $125.00 due; payments succeed.'),
  account('active-2', 'A second active account of the same biller.', {
    balance: { amount_due_in_cents: 9_900, due_date: '2030-02-15' },
  }),
  account(
    'active',
    'Active, at a second biller: for a platform that treats you as an aggregator.',
    { biller_id: SECOND_BILLER },
  ),
  account('inactive', 'Inactive; payments fail.', { status: 'inactive' }),
  account('maximum', 'Accepts at most $500.00; a larger payment fails.', {
    payment_rules: { min_amount_in_cents: 100, max_amount_in_cents: MAGIC_MAXIMUM_IN_CENTS },
  }),
  account('failing', 'Every payment fails.', {
    ending: { status: 'failed', failure_reason: 'The biller could not apply the payment.' },
  }),
  account('canceled', 'Every payment is canceled.', { ending: { status: 'canceled' } }),
  account('slow', `Payments succeed after ${SLOW_MS / 1000} s.`, { ending: { after_ms: SLOW_MS } }),
  account('stuck', 'Payments stay processing.', { ending: { after_ms: undefined } }),
  account('unit 4/B', 'An id with a space and a slash, which a path must encode.'),
  account('paid', 'Nothing is due.', { balance: { amount_due_in_cents: 0 } }),
  account('credit', 'A credit of $20.00.', { balance: { amount_due_in_cents: -2_000 } }),
  {
    biller_id: SANDBOX_BILLER,
    account_id: 'bare',
    status: 'active',
    note: 'The partner knows neither holder nor balance.',
  },
];

/** An amount that determines how a payment ends, on any active account. */
export interface MagicAmount {
  readonly amount_in_cents: number;
  readonly note: string;
  readonly ending: Partial<Ending>;
}

/** The magic amounts: those of the test mode that a biller decides. */
export const MAGIC_AMOUNTS: readonly MagicAmount[] = TEST_AMOUNTS.flatMap(
  ({ amount_in_cents, note, ending, funding }) => {
    if (ending === undefined || funding !== undefined) return [];
    const { after_ms, ...rest } = ending;
    const when =
      after_ms === undefined ? {} : { after_ms: after_ms === null ? undefined : after_ms };
    return [{ amount_in_cents, note, ending: { ...rest, ...when } }];
  },
);
