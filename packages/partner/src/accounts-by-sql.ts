/**
 * Accounts in the biller's own tables, in the kit's database, reached by three statements in a file (decision 70): an AccountSystem
 * for a biller that has PostgreSQL and no wish to write a program. Postings and payments end in one transaction.
 *
 *     -- name: find_account        $1 biller_id, $2 account_id
 *     -- name: find_posting        $1 platform_payment_id
 *     -- name: post_payment        $1 platform_payment_id, $2 biller_id, $3 account_id, $4 amount_in_cents, $5 payment_id
 *
 * find_account gives at most one row: status (active or inactive), and where they are known amount_due_in_cents, due_date,
 * last_updated_at, first_name and last_name, min_amount_in_cents, max_amount_in_cents. find_posting gives a row when the payment is
 * booked already, with posted_at where that is known. post_payment books it and gives a row, with posted_at where it likes; no row
 * means that the account is not there; a row with `reason` that the payment fails.
 */
import { createHash } from 'node:crypto';
import { FAILURE_REASONS, type AccountRecord } from '@duebridge/contract';
import {
  ConfigurationError,
  messageOf,
  sql,
  type Database,
  type Transaction,
} from '@duebridge/runtime';
import {
  reasonAgainst,
  WrongAnswer,
  type AccountsInTransaction,
  type Posting,
  type PostOutcome,
} from './account-system.ts';

const names = ['find_account', 'find_posting', 'post_payment'] as const;
type Statements = Readonly<Record<(typeof names)[number], string>>;

/** How many values each statement gets. PostgreSQL refuses to run one that uses fewer. */
const PARAMETERS: Readonly<Record<(typeof names)[number], number>> = {
  find_account: 2,
  find_posting: 1,
  post_payment: 5,
};

/** Reads a file of statements. Throws ConfigurationError that names what is missing. */
export function readAccountStatements(text: string): Statements {
  const found = new Map<string, string>();
  let name: string | undefined;
  for (const line of text.split('\n')) {
    const named = /^--\s*name:\s*(\S+)\s*$/.exec(line)?.[1];
    if (named === undefined) {
      if (name !== undefined) found.set(name, `${found.get(name) ?? ''}${line}\n`);
      continue;
    }
    if (!names.some((known) => known === named) || found.has(named)) {
      throw new ConfigurationError(
        `the file of account statements names ${named}: it must name ${names.join(', ')}, each once`,
      );
    }
    name = named;
    found.set(name, '');
  }
  const statement = (wanted: string): string => {
    const body = (found.get(wanted) ?? '').trim().replace(/;\s*$/, '');
    if (body === '') {
      throw new ConfigurationError(
        `the file of account statements lacks ${wanted}: write it below a line "-- name: ${wanted}"`,
      );
    }
    return body;
  };
  return {
    find_account: statement('find_account'),
    find_posting: statement('find_posting'),
    post_payment: statement('post_payment'),
  };
}

/**
 * Lets PostgreSQL parse the statements, and counts the values that each one uses. Runs none of them. Throws ConfigurationError that
 * names the wrong one.
 */
export async function checkAccountStatements(
  database: Database,
  statements: Statements,
): Promise<void> {
  for (const name of names) {
    let used: number | undefined;
    try {
      const text = `PREPARE duebridge_check AS ${statements[name]}`;
      // Sent under a name because PostgreSQL then accepts one command only: a second one would run at once.
      const own = createHash('sha256').update(text).digest('hex').slice(0, 16);
      // Prepared statements outlive a transaction, so this one deallocates its own.
      used = await database.transaction(async (tx) => {
        await tx.query(sql(`kit_check_${own}`, text));
        const [prepared] = await tx.query<{ used: number }>(
          `SELECT cardinality(parameter_types) AS used FROM pg_prepared_statements WHERE name = 'duebridge_check'`,
        );
        await tx.query('DEALLOCATE duebridge_check');
        return prepared?.used;
      });
    } catch (error) {
      throw new ConfigurationError(`the account statement ${name}: ${messageOf(error)}`, {
        cause: error,
      });
    }
    if (used !== PARAMETERS[name]) {
      throw new ConfigurationError(
        `the account statement ${name} must use each of $1 to $${PARAMETERS[name]}, and no other; one that it does not need may stand in a condition that always holds`,
      );
    }
  }
}

interface AccountRow {
  readonly status: string;
  readonly amount_due_in_cents?: number | null;
  readonly due_date?: string | null;
  readonly last_updated_at?: string | null;
  readonly first_name?: string | null;
  readonly last_name?: string | null;
  readonly min_amount_in_cents?: number | null;
  readonly max_amount_in_cents?: number | null;
}

/** Returns the AccountSystem over checked statements. */
export function accountsBySql(database: Database, statements: Statements): AccountsInTransaction {
  const find = async (
    on: Database | Transaction,
    biller_id: string,
    account_id: string,
  ): Promise<AccountRecord | undefined> => {
    const [row] = await on.query<AccountRow>(statements.find_account, [biller_id, account_id]);
    return row && toRecord(biller_id, account_id, row);
  };

  const postOne = async (payment: Posting, tx: Transaction): Promise<PostOutcome> => {
    const { platform_payment_id: id, biller_id, account_id, amount_in_cents, payment_id } = payment;
    const [booked] = await tx.query<{ posted_at?: string | null }>(statements.find_posting, [id]);
    if (booked) return posted(booked.posted_at);
    const account = await find(tx, biller_id, account_id);
    if (account !== undefined) assertDecides(account);
    const refused = reasonAgainst(amount_in_cents, account);
    if (refused !== undefined) return { outcome: 'failed', reason: refused };
    const [row] = await tx.query<{ posted_at?: string | null; reason?: string | null }>(
      statements.post_payment,
      [id, biller_id, account_id, amount_in_cents, payment_id],
    );
    if (!row) return { outcome: 'failed', reason: FAILURE_REASONS.account };
    const { reason = null } = row;
    return reason === null ? posted(row.posted_at) : { outcome: 'failed', reason };
  };

  return {
    posts: 'in_transaction',
    findAccount: (biller_id, account_id) => find(database, biller_id, account_id),
    async post(payments, tx) {
      // In sorted order, so that two replicas cannot deadlock.
      const order = payments
        .map((payment, index) => ({ payment, index }))
        .toSorted((one, other) => (keyOf(one.payment) < keyOf(other.payment) ? -1 : 1));
      const outcomes: PostOutcome[] = [];
      for (const { payment, index } of order) outcomes[index] = await postOne(payment, tx);
      return outcomes;
    },
  };
}

/** A payment must not fail, or pass its limit, for good because a statement is wrong. Throws WrongAnswer. */
function assertDecides({ status, payment_rules }: AccountRecord): void {
  if (!['active', 'inactive'].includes(status)) {
    throw new WrongAnswer('find_account must give the status active or inactive');
  }
  if (Object.values(payment_rules ?? {}).some((limit) => typeof limit !== 'number')) {
    throw new WrongAnswer('find_account must give limits as whole numbers of cents (bigint)');
  }
}

function posted(time: string | null | undefined): PostOutcome {
  const posted_at = time ?? undefined;
  return posted_at === undefined ? { outcome: 'posted' } : { outcome: 'posted', posted_at };
}

function keyOf({ biller_id, account_id }: Posting): string {
  return `${account_id}:${biller_id}`;
}

function toRecord(biller_id: string, account_id: string, row: AccountRow): AccountRecord {
  const { first_name = null, last_name = null } = row;
  const given = <K extends keyof AccountRow>(...fields: K[]) =>
    Object.fromEntries(
      fields.flatMap((name) => ((row[name] ?? null) === null ? [] : [[name, row[name]] as const])),
    );
  return {
    biller_id,
    account_id,
    // Checked against the schema like every account record: an invalid status is answered 503.
    status: row.status as AccountRecord['status'],
    ...(first_name === null || last_name === null
      ? undefined
      : { holder: { first_name, last_name } }),
    balance: given('amount_due_in_cents', 'due_date', 'last_updated_at'),
    payment_rules: given('min_amount_in_cents', 'max_amount_in_cents'),
  };
}
