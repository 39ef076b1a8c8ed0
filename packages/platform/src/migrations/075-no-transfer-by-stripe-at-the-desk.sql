-- additive
-- A server of the last version takes every way for one of the desk, where nobody would ever end a transfer by Stripe: it is refused there, and a
-- server of this version sends it.
ALTER TABLE duebridge_platform.bank_transfers
  ADD CONSTRAINT bank_transfers_way_check CHECK (way IN ('pain001', 'nacha', 'by_hand'));
