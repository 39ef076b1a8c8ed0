-- additive
-- A biller may be paid by a transfer to its connected account at Stripe. The former condition allowed less, so no row breaks this one.
ALTER TABLE duebridge_platform.payouts DROP CONSTRAINT payouts_way_check;
ALTER TABLE duebridge_platform.payouts
  ADD CONSTRAINT payouts_way_check CHECK (way IN ('pain001', 'nacha', 'by_hand', 'stripe'));
