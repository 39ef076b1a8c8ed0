-- additive
-- The platform's book of money (store/money-book.ts): one row is one transfer between two accounts, so that the book always balances.
-- `id` is what moved the money: a payment, a refund, a remittance; `act` is which of its steps.
CREATE TABLE duebridge_platform.transfers (
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  -- In UTC.
  day date NOT NULL,
  id text NOT NULL,
  act text NOT NULL,
  debit text NOT NULL,
  credit text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  -- How the customer paid; null where the money is that of many payments.
  funding_method text,
  PRIMARY KEY (id, act),
  CONSTRAINT transfers_accounts CHECK (debit <> credit
    AND debit IN ('taken', 'elsewhere', 'uncollected', 'borne', 'under_way', 'owed', 'remitting', 'paid', 'refunding', 'refunded', 'returned', 'disputed')
    AND credit IN ('taken', 'elsewhere', 'uncollected', 'borne', 'under_way', 'owed', 'remitting', 'paid', 'refunding', 'refunded', 'returned', 'disputed'))
);
-- Rows arrive in the order of their days, so that an index of a few pages finds those of one.
CREATE INDEX transfers_by_day ON duebridge_platform.transfers USING brin (day);
CREATE TRIGGER transfers_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON duebridge_platform.transfers
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- Funds that were taken early, for payments that have not ended, are under way from the start of the book.
INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id, funding_method)
SELECT p.platform_payment_id, 'taken_early', (now() AT TIME ZONE 'UTC')::date, 'taken', 'under_way', p.amount_in_cents, p.partner_id,
       p.biller_id, p.funding_method
  FROM duebridge_platform.payments p JOIN duebridge_platform.funds f USING (platform_payment_id)
 WHERE p.settled_at IS NULL AND p.status = 'processing' AND f.state = 'captured';

-- What was settled before the book began is booked page by page (money/former-payments.ts): up to `read_to`, of payments below `until`.
CREATE TABLE duebridge_platform.book_progress (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  began_at timestamptz NOT NULL DEFAULT now(),
  read_to text NOT NULL DEFAULT ''
);
INSERT INTO duebridge_platform.book_progress DEFAULT VALUES;
