/** The kit on the books of a biller that has its own: customers by number, dollars as numeric, receipts (own-accounts.sql). */
import { FAILURE_REASONS, type AccountsInTransaction, type Database } from '../index.ts';

// Customers are locked in order of their number; the key on external_ref keeps a payment from being booked twice.
const book = `
  WITH open AS (SELECT customer_no FROM waterworks.customers
                 WHERE NOT closed AND customer_no::text = ANY($2) ORDER BY customer_no FOR UPDATE),
  booked AS (INSERT INTO waterworks.receipts (external_ref, customer_no, amount)
             SELECT ref, customer_no, cents / 100.0 FROM unnest($1::text[], $2::text[], $3::bigint[]) AS p(ref, no, cents)
               JOIN open ON customer_no::text = no RETURNING external_ref, customer_no, amount),
  paid AS (UPDATE waterworks.customers AS c SET open_amount = open_amount - total
             FROM (SELECT customer_no, sum(amount) AS total FROM booked GROUP BY customer_no) AS b
            WHERE c.customer_no = b.customer_no)
  SELECT external_ref FROM booked`;

/** Gives the AccountSystem of the waterworks; its tables are in the kit's database, so both move in one transaction. */
export function waterworks(database: Database): AccountsInTransaction {
  return {
    posts: 'in_transaction',

    async findAccount(biller_id, account_id) {
      if (biller_id !== 'waterworks' || !/^[1-9]\d{0,8}$/.test(account_id)) return undefined;
      const [customer] = await database.query<{ closed: boolean; cents: number; pay_by: string }>(
        `SELECT closed, (open_amount * 100)::bigint AS cents, pay_by FROM waterworks.customers WHERE customer_no = $1`,
        [account_id],
      );
      return (
        customer && {
          biller_id,
          account_id,
          status: customer.closed ? 'inactive' : 'active',
          balance: { amount_due_in_cents: customer.cents, due_date: customer.pay_by },
        }
      );
    },

    async post(payments, tx) {
      const ours = payments.filter((payment) => payment.biller_id === 'waterworks');
      const booked = await tx.query<{ external_ref: string }>(book, [
        ours.map((payment) => payment.platform_payment_id),
        ours.map((payment) => payment.account_id),
        ours.map((payment) => payment.amount_in_cents),
      ]);
      const refs = new Set(booked.map((receipt) => receipt.external_ref));
      return payments.map(({ platform_payment_id }) =>
        refs.has(platform_payment_id)
          ? { outcome: 'posted' }
          : { outcome: 'failed', reason: FAILURE_REASONS.account },
      );
    },
  };
}
