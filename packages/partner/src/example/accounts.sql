-- Statements for `duebridge partner serve --accounts-sql`, on the tables of own-accounts.sql.

-- name: find_account
SELECT CASE WHEN closed THEN 'inactive' ELSE 'active' END AS status,
       (open_amount * 100)::bigint AS amount_due_in_cents, pay_by AS due_date,
       (least * 100)::bigint AS min_amount_in_cents, (most * 100)::bigint AS max_amount_in_cents
  FROM waterworks.customers
 WHERE $1::text = 'waterworks'
   AND customer_no = CASE WHEN $2::text ~ '^[1-9][0-9]{0,8}$' THEN $2::text::int END

-- name: find_posting
SELECT booked_on AS posted_at FROM waterworks.receipts WHERE external_ref = $1::text

-- name: post_payment
WITH paid AS (
  UPDATE waterworks.customers SET open_amount = open_amount - $4::bigint / 100.0
   WHERE $2::text = 'waterworks' AND customer_no = $3::text::int RETURNING customer_no
)
INSERT INTO waterworks.receipts (external_ref, customer_no, amount)
SELECT $1::text, customer_no, $4::bigint / 100.0 FROM paid WHERE $5::text IS NOT NULL
RETURNING booked_on AS posted_at
