// @ts-check
import { FAILURE_REASONS } from '@duebridge/partner';
import { BILLER_ID } from './settings.js';

/**
 * 2 of 4: how an account is found, and how payments are posted to it.
 *
 * `post` gets many payments at once and runs in the transaction that ends them: either both your tables and the kit's change, or
 * neither. Accounts are locked in one order, so that two servers never wait for each other. A payment that was posted before
 * changes nothing and counts as posted.
 */
const POST = `
  WITH payment AS (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p (id, account_no, cents)),
  open AS (SELECT account_no FROM billing.account
            WHERE NOT closed AND account_no = ANY ($2) ORDER BY account_no FOR UPDATE),
  receipt AS (INSERT INTO billing.receipt (platform_payment_id, account_no, cents)
              SELECT id, account_no, cents FROM payment JOIN open USING (account_no)
              ON CONFLICT DO NOTHING RETURNING account_no, cents),
  paid AS (UPDATE billing.account AS a SET open_cents = open_cents - total
             FROM (SELECT account_no, sum(cents) AS total FROM receipt GROUP BY account_no) AS r
            WHERE a.account_no = r.account_no)
  SELECT id FROM payment JOIN open USING (account_no)`;

/** @type {(database: import('@duebridge/partner').Database) => import('@duebridge/partner').AccountsInTransaction} */
export const accounts = (database) => ({
  posts: 'in_transaction',

  async findAccount(biller_id, account_id) {
    if (biller_id !== BILLER_ID) return undefined;
    /** @type {{ closed: boolean, open_cents: number, pay_by: string | null }[]} */
    const [found] = await database.query(
      `SELECT closed, open_cents, to_char(pay_by, 'YYYY-MM-DD') AS pay_by FROM billing.account WHERE account_no = $1`,
      [account_id],
    );
    if (found === undefined) return undefined;
    return {
      biller_id,
      account_id,
      status: found.closed ? 'inactive' : 'active',
      balance: {
        amount_due_in_cents: found.open_cents,
        ...(found.pay_by === null ? {} : { due_date: found.pay_by }),
      },
    };
  },

  async post(payments, transaction) {
    const ours = payments.filter(({ biller_id }) => biller_id === BILLER_ID);
    /** @type {{ id: string }[]} */
    const rows = await transaction.query(POST, [
      ours.map(({ platform_payment_id }) => platform_payment_id),
      ours.map(({ account_id }) => account_id),
      ours.map(({ amount_in_cents }) => amount_in_cents),
    ]);
    const posted = new Set(rows.map(({ id }) => id));
    return payments.map(({ platform_payment_id }) =>
      posted.has(platform_payment_id)
        ? { outcome: 'posted' }
        : { outcome: 'failed', reason: FAILURE_REASONS.account },
    );
  },
});
