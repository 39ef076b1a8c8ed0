/**
 * The default AccountSystem: accounts, and entries that are only ever appended.
 *
 * What an account owes is at every moment the sum of its entries (the view `movement`): a payment of 500 is -500, an import that
 * raises the bill from 1,000 to 1,200 is +200 (a row of `billed`). A payment that was posted here is its own entry: its row says so, and
 * never changes again, so a second one cannot be (KT2). The balance column caches the sum, and changes in the same transaction (KT12).
 *
 * Postings run hundreds at a time inside the kit's transaction. Accounts are locked in sorted order, so that replicas that post to
 * the same accounts cannot deadlock.
 */
import { instantText, invalidField, Refusal, type AccountRecord } from '@duebridge/contract';
import { sql, type Database, type Transaction } from '@duebridge/runtime';
import {
  reasonAgainst,
  type AccountsInTransaction,
  type Locked,
  type PostOutcome,
  type Posting,
} from './account-system.ts';
import { accountKey, arraysOf, type AccountPath } from './store.ts';

interface AccountRow extends AccountPath {
  readonly status: 'active' | 'inactive';
  readonly first_name: string | null;
  readonly last_name: string | null;
  readonly amount_due_in_cents: number;
  readonly amount_as_of: string | null;
  readonly due_date: string | null;
  readonly min_amount_in_cents: number | null;
  readonly max_amount_in_cents: number | null;
  readonly updated_at: string;
}

const accountColumns = `biller_id, account_id, status, first_name, last_name, amount_due_in_cents, amount_as_of, due_date,
  min_amount_in_cents, max_amount_in_cents, updated_at`;

const findAccountStatement = sql(`
   SELECT ${accountColumns} FROM duebridge_partner.account WHERE account_id = $2 AND biller_id = $1`);

/** The default ledger, in the kit's database. */
export function ledger(database: Database): AccountsInTransaction {
  return {
    posts: 'in_transaction',
    async findAccount(biller_id, account_id) {
      const [row] = await database.query<AccountRow>(findAccountStatement, [biller_id, account_id]);
      return row && toAccountRecord(row);
    },
    post: postAll,
  };
}

function toAccountRecord(row: AccountRow): AccountRecord {
  const { first_name, last_name, min_amount_in_cents, max_amount_in_cents } = row;
  const rules = {
    ...(min_amount_in_cents === null ? undefined : { min_amount_in_cents }),
    ...(max_amount_in_cents === null ? undefined : { max_amount_in_cents }),
  };
  return {
    biller_id: row.biller_id,
    account_id: row.account_id,
    status: row.status,
    ...(first_name === null || last_name === null
      ? undefined
      : { holder: { first_name, last_name } }),
    balance: {
      amount_due_in_cents: row.amount_due_in_cents,
      ...(row.due_date === null ? undefined : { due_date: row.due_date }),
      last_updated_at: row.updated_at,
    },
    ...(Object.keys(rules).length === 0 ? undefined : { payment_rules: rules }),
  };
}

const lockAccountsStatement = sql(
  'kit_lock_accounts',
  `SELECT ${accountColumns} FROM duebridge_partner.account
    WHERE (account_id, biller_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
    ORDER BY account_id, biller_id FOR NO KEY UPDATE`,
);

const lockFreeAccountsStatement = sql(`${lockAccountsStatement.text} SKIP LOCKED`);

const existingAccountsStatement = sql(`
   SELECT biller_id, account_id FROM duebridge_partner.account
    WHERE (account_id, biller_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`);

function idsOf(accounts: readonly AccountPath[]): (string | null)[][] {
  return arraysOf(accounts, 'account_id', 'biller_id');
}

/** Locks accounts, all of them or (`onlyFree`) those that no other transaction has. */
async function lockAccounts(
  tx: Transaction,
  accounts: readonly AccountPath[],
  onlyFree = false,
): Promise<Map<string, AccountRow>> {
  const statement = onlyFree ? lockFreeAccountsStatement : lockAccountsStatement;
  const rows = await tx.query<AccountRow>(statement, idsOf(accounts));
  return new Map(rows.map((row) => [accountKey(row), row]));
}

/** Which of these accounts exist. */
async function existing(tx: Transaction, accounts: readonly AccountPath[]): Promise<Set<string>> {
  if (accounts.length === 0) return new Set();
  const rows = await tx.query<AccountPath>(existingAccountsStatement, idsOf(accounts));
  return new Set(rows.map(accountKey));
}

async function postAll(
  payments: readonly Posting[],
  tx: Transaction,
): Promise<(PostOutcome | Locked)[]> {
  // A payment alone waits for its account; several do not wait for one of them.
  const accounts = await lockAccounts(tx, payments, payments.length > 1);
  const locked = await existing(
    tx,
    payments.filter((payment) => !accounts.has(accountKey(payment))),
  );
  const outcomes = payments.map((payment) =>
    locked.has(accountKey(payment))
      ? ({ outcome: 'locked' } as const)
      : judge(payment, accounts.get(accountKey(payment))),
  );
  const paid = payments.filter((_, index) => outcomes[index]?.outcome === 'posted');
  if (paid.length > 0) {
    await tx.query(payStatement, arraysOf(paid, 'biller_id', 'account_id', 'amount_in_cents'));
    const before = postedIn.get(tx) ?? [];
    postedIn.set(tx, new Set([...before, ...paid.map((payment) => payment.platform_payment_id)]));
  }
  return outcomes;
}

const postedIn = new WeakMap<Transaction, ReadonlySet<string>>();

/**
 * The payments that the ledger has posted in a transaction: they are to end as entries of their accounts. Asked of the ledger, and not of
 * the account system that was configured, because that may post through it, or instead of it.
 */
export function postedByLedger(tx: Transaction): ReadonlySet<string> {
  return postedIn.get(tx) ?? new Set();
}

function judge(payment: Posting, account: AccountRow | undefined): PostOutcome {
  const reason = reasonAgainst(payment.amount_in_cents, account && toAccountRecord(account));
  return reason === undefined ? { outcome: 'posted' } : { outcome: 'failed', reason };
}

const payStatement = sql(
  'kit_pay_accounts',
  `UPDATE duebridge_partner.account
      SET amount_due_in_cents = account.amount_due_in_cents - paid.amount_in_cents,
          updated_at = date_trunc('milliseconds', clock_timestamp())
     FROM (SELECT biller_id, account_id, sum(amount_in_cents)::bigint AS amount_in_cents
             FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p(biller_id, account_id, amount_in_cents)
            GROUP BY biller_id, account_id) AS paid
    WHERE account.account_id = paid.account_id AND account.biller_id = paid.biller_id`,
);

// Import -------------------------------------------------------------------------------------------------------------------

/** Key of the advisory lock for imports; any constant works, as such locks are per database. */
const IMPORT_LOCK = 7_033_124_800_419;

/** One account of an import; a field that is undefined keeps what is stored (for a new account: its default). */
export type ImportedAccount = AccountPath & {
  readonly [Name in 'amount_due_in_cents' | (typeof fields)[number]]?: AccountRow[Name] | undefined;
};

/** The result of an import, in accounts. */
export interface ImportResult {
  readonly created: number;
  readonly updated: number;
  readonly unchanged: number;
}

// The sum of payments through the kit since a moment; null: since ever. Account by account, so that each is found by index.
const paidStatement = sql(`
   SELECT account_id, biller_id, amount_in_cents
     FROM unnest($1::text[], $2::text[]) AS asked(account_id, biller_id)
    CROSS JOIN LATERAL (
      SELECT sum(entry.amount_in_cents)::bigint AS amount_in_cents FROM duebridge_partner.movement AS entry
       WHERE entry.account_id = asked.account_id AND entry.biller_id = asked.biller_id AND entry.platform_payment_id IS NOT NULL
         AND entry.moved_at > coalesce($3::timestamptz, '-infinity')) AS paid
    WHERE amount_in_cents IS NOT NULL`);

// One statement, so that no failure can leave a balance that disagrees with its entries.
const putAccountsStatement = sql(`
   WITH given AS MATERIALIZED (
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::date[], $7::bigint[], $8::bigint[],
                          $9::timestamptz[], $10::bigint[])
                AS g(biller_id, account_id, status, first_name, last_name, due_date, minimum, maximum, as_of, change)
   ), bill AS (
     INSERT INTO duebridge_partner.billed (biller_id, account_id, amount_in_cents)
     SELECT biller_id, account_id, change FROM given WHERE change <> 0
   )
   INSERT INTO duebridge_partner.account (biller_id, account_id, status, first_name, last_name, due_date, min_amount_in_cents,
                                          max_amount_in_cents, amount_as_of, amount_due_in_cents)
   SELECT * FROM given
   ON CONFLICT (account_id, biller_id) DO UPDATE
      SET status = excluded.status, first_name = excluded.first_name, last_name = excluded.last_name,
          due_date = excluded.due_date, min_amount_in_cents = excluded.min_amount_in_cents,
          max_amount_in_cents = excluded.max_amount_in_cents, amount_as_of = excluded.amount_as_of,
          amount_due_in_cents = account.amount_due_in_cents + excluded.amount_due_in_cents, updated_at = excluded.updated_at`);

/**
 * Creates and updates accounts in one transaction: all or nothing. The accounts must be distinct. A changed amount due is written
 * as an entry of its own; payments posted meanwhile wait, and are then applied on top of it.
 *
 * `as_of` (ISO 8601 with offset, not in the future) is the time at which the amounts were correct: payments posted since then are
 * subtracted from them, and an amount older than the stored one is ignored. Without it the amounts are final, which is refused for an account that
 * has been paid here: the import would undo payments that its figures cannot include (Refusal INVALID_REQUEST, naming the
 * accounts).
 */
export async function importAccounts(
  database: Database,
  accounts: readonly ImportedAccount[],
  given_as_of: string | null = null,
): Promise<ImportResult> {
  const as_of = given_as_of === null ? null : (instantText(given_as_of) ?? refuseAsOf());
  return database.transaction(async (tx) => {
    const [clock] = await tx.query<{ now: string }>('SELECT clock_timestamp() AS now');
    if (as_of !== null && Date.parse(as_of) > Date.parse(clock?.now ?? '') + CLOCK_SKEW_MS) {
      // It would win over every later import until then.
      refuseAsOf('lies in the future');
    }
    // One import at a time: two that create the same account would each post its whole bill. Postings are not blocked.
    await tx.query('SELECT pg_advisory_xact_lock($1)', [IMPORT_LOCK]);
    const stored = await lockAccounts(tx, accounts);
    const paid = await paidSince(tx, accounts, as_of);
    const plans = accounts.map((account) =>
      planOf(account, stored.get(accountKey(account)), paid.get(accountKey(account)) ?? 0, as_of),
    );
    if (as_of === null) {
      refuse(
        plans.filter(({ row, change }) => change !== 0 && paid.has(accountKey(row))),
        'has been paid here: say of which moment its amount is true (--as-of, as_of)',
      );
    }
    const written = plans.filter((plan) => plan.isChanged || plan.isConfirmed);
    // Each amount was valid in the file, but contradicts the other amount as stored.
    refuse(
      written.filter(
        ({ row }) => (row.min_amount_in_cents ?? 0) > (row.max_amount_in_cents ?? Infinity),
      ),
      'min_amount would be above max_amount',
    );
    const rows = written.map(({ row, change }) => ({ ...row, change }));
    await tx.query(
      putAccountsStatement,
      arraysOf(rows, 'biller_id', 'account_id', ...fields, 'amount_as_of', 'change'),
    );
    const changed = plans.filter((plan) => plan.isChanged);
    const created = changed.filter(({ row }) => !stored.has(accountKey(row))).length;
    return {
      created,
      updated: changed.length - created,
      unchanged: accounts.length - changed.length,
    };
  });
}

/** What is stored of an account beside its amount, in the order of `putAccountsStatement`. */
const fields = [
  'status',
  'first_name',
  'last_name',
  'due_date',
  'min_amount_in_cents',
  'max_amount_in_cents',
] as const;

/** What an import makes of one account. `paid` (negative): what payments through the kit have added to the amount owed since `as_of`. */
function planOf(
  account: ImportedAccount,
  before: AccountRow | undefined,
  paid: number,
  as_of: string | null,
) {
  const { biller_id, account_id, amount_due_in_cents: given } = account;
  const known = before?.amount_as_of ?? null;
  const order =
    as_of === null || known === null ? undefined : Date.parse(as_of) - Date.parse(known);
  const isGiven = given !== undefined && (order ?? 0) >= 0;
  const owed = before?.amount_due_in_cents ?? 0;
  const change = isGiven ? given + (as_of === null ? 0 : paid) - owed : 0;
  const kept = <K extends Exclude<(typeof fields)[number], 'status'>>(name: K) =>
    account[name] === undefined ? (before?.[name] ?? null) : account[name];
  const row = {
    biller_id,
    account_id,
    status: account.status ?? before?.status ?? 'active',
    first_name: kept('first_name'),
    last_name: kept('last_name'),
    due_date: kept('due_date'),
    min_amount_in_cents: kept('min_amount_in_cents'),
    max_amount_in_cents: kept('max_amount_in_cents'),
    amount_as_of: isGiven && as_of !== null ? as_of : known,
  };
  return {
    row,
    /** By how much its amount due changes. */
    change,
    isChanged: !before || change !== 0 || fields.some((field) => row[field] !== before[field]),
    /** The same amount at a newer moment: an older file that comes later must not win. */
    isConfirmed: isGiven && as_of !== null && order !== 0,
  };
}

/** How far the clock of whoever exports the amounts may be ahead. */
const CLOCK_SKEW_MS = 300_000;

function refuseAsOf(problem = 'must be a time with its zone, such as 2026-03-01T02:00:00Z'): never {
  throw invalidField('as_of', problem);
}

function refuse(plans: readonly ReturnType<typeof planOf>[], problem: string): void {
  if (plans.length === 0) return;
  throw new Refusal('INVALID_REQUEST', {
    details: plans.map(({ row }) => ({ path: `account ${row.account_id}`, problem })),
  });
}

/** By account, the sum (negative) that payments through the kit have added to the amount owed since `as_of`, or ever. */
async function paidSince(
  tx: Transaction,
  accounts: readonly ImportedAccount[],
  as_of: string | null,
): Promise<Map<string, number>> {
  const rows = await tx.query<{ account_id: string; biller_id: string; amount_in_cents: number }>(
    paidStatement,
    [...idsOf(accounts), as_of],
  );
  return new Map(rows.map((row) => [accountKey(row), row.amount_in_cents]));
}
