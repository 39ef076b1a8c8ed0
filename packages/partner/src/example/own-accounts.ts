/** The kit on a biller's own accounts: customers by number, dollars as numeric, receipts (own-accounts.sql). */
import {
  reasonAgainst,
  type AccountsInTransaction,
  type Database,
  type PostOutcome,
} from '../index.ts';

interface Customer {
  readonly customer_no: number;
  readonly closed: boolean;
  readonly cents: number;
  readonly pay_by: string;
  readonly least: number | null;
  readonly most: number | null;
}

// Look up the number as it is stored: casting the column to text would scan all customers for each payment.
const findCustomers = `
  SELECT customer_no, closed, (open_amount * 100)::bigint AS cents, pay_by,
         (least * 100)::bigint AS least, (most * 100)::bigint AS most
    FROM waterworks.customers WHERE customer_no = ANY($1::int[])`;

const book = `
  WITH booked AS (INSERT INTO waterworks.receipts (external_ref, customer_no, amount)
                  SELECT ref, customer_no, cents / 100.0
                    FROM unnest($1::text[], $2::int[], $3::bigint[]) AS p(ref, customer_no, cents)
                  RETURNING customer_no, amount)
  UPDATE waterworks.customers AS c SET open_amount = open_amount - total
    FROM (SELECT customer_no, sum(amount) AS total FROM booked GROUP BY customer_no) AS b
   WHERE c.customer_no = b.customer_no`;

/** A customer number in this biller's notation: no leading zeros, no other digits. */
function numberOf(biller_id: string, account_id: string): number | undefined {
  if (biller_id !== 'waterworks' || !/^[1-9]\d{0,8}$/.test(account_id)) return undefined;
  return Number(account_id);
}

function toRecord({ customer_no, closed, cents, pay_by, least, most }: Customer) {
  return {
    biller_id: 'waterworks',
    account_id: String(customer_no),
    status: closed ? ('inactive' as const) : ('active' as const),
    balance: { amount_due_in_cents: cents, due_date: pay_by },
    payment_rules: {
      ...(least !== null && { min_amount_in_cents: least }),
      ...(most !== null && { max_amount_in_cents: most }),
    },
  };
}

/** Returns the AccountSystem of the waterworks; its tables are in the kit's database, so both move in one transaction. */
export function waterworks(database: Database): AccountsInTransaction {
  return {
    posts: 'in_transaction',

    async findAccount(biller_id, account_id) {
      const numbers = [numberOf(biller_id, account_id) ?? 0];
      const [customer] = await database.query<Customer>(findCustomers, [numbers]);
      return customer && toRecord(customer);
    },

    async post(payments, tx) {
      const refs = payments.map((payment) => payment.platform_payment_id);
      const numbers = payments.map((one) => numberOf(one.biller_id, one.account_id) ?? 0);
      // Locked in order of their number, so that two replicas cannot deadlock.
      const lock = `${findCustomers} ORDER BY customer_no FOR UPDATE`;
      const found = await tx.query<Customer>(lock, [numbers]);
      const customers = new Map(found.map((one) => [one.customer_no, toRecord(one)]));
      const receipts = await tx.query<{ external_ref: string; booked_on: string }>(
        'SELECT external_ref, booked_on FROM waterworks.receipts WHERE external_ref = ANY($1)',
        [refs],
      );
      const booked = new Map(receipts.map((one) => [one.external_ref, one.booked_on]));
      const outcomes = payments.map((payment, index): PostOutcome => {
        const posted_at = booked.get(payment.platform_payment_id);
        if (posted_at !== undefined) return { outcome: 'posted', posted_at };
        const reason = reasonAgainst(payment.amount_in_cents, customers.get(numbers[index] ?? 0));
        return reason === undefined ? { outcome: 'posted' } : { outcome: 'failed', reason };
      });
      const isNew = (_: unknown, index: number): boolean =>
        outcomes[index]?.outcome === 'posted' && !booked.has(refs[index] ?? '');
      const cents = payments.map((payment) => payment.amount_in_cents);
      await tx.query(
        book,
        [refs, numbers, cents].map((column) => column.filter(isNew)),
      );
      return outcomes;
    },
  };
}
