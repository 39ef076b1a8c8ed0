-- additive
-- When a sweep last claimed these funds: replicas then sweep different rows, and one that cannot be captured keeps no other waiting.
ALTER TABLE duebridge_platform.funds ADD COLUMN swept_at timestamptz;
-- `borne`: the biller was paid, the customer's funds cannot be collected, and an operator has closed the matter at the platform's expense.
ALTER TABLE duebridge_platform.funds DROP CONSTRAINT funds_state_check;
ALTER TABLE duebridge_platform.funds ADD CONSTRAINT funds_state_check CHECK (state IN
  ('new', 'acting', 'authorized', 'declined', 'captured', 'releasing', 'released', 'refunded', 'uncollected', 'borne')) NOT VALID;
