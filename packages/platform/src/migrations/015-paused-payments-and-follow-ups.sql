-- additive
-- Slot -2 belongs to no worker: an operator paused the payment (decision 216). Rows satisfied the narrower check, so nothing is read.
ALTER TABLE duebridge_platform.payments DROP CONSTRAINT payments_slot_check;
ALTER TABLE duebridge_platform.payments ADD CONSTRAINT payments_slot_check CHECK (slot BETWEEN -2 AND 1023) NOT VALID;
-- Payments that an operator marked for the partner to look at (decision 216); the audit keeps who marked and cleared what.
CREATE TABLE duebridge_platform.follow_ups (
  platform_payment_id text PRIMARY KEY,
  note text NOT NULL,
  marked_by text NOT NULL,
  marked_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX follow_ups_newest ON duebridge_platform.follow_ups (marked_at);
