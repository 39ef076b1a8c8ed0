-- additive
-- The database had lost the payment, or its page had no answer to an earlier confirm: its partner may have it whatever the stage says. Until now a
-- case said so of those that were put back.
ALTER TABLE duebridge_platform.payments ADD COLUMN maybe_sent boolean;
UPDATE duebridge_platform.payments p SET maybe_sent = true FROM duebridge_platform.cases c
 WHERE c.platform_payment_id = p.platform_payment_id AND c.case_id = 'put-back-' || p.platform_payment_id AND p.status = 'processing'
   -- By its index: while the table is locked, nobody reads it whole.
   AND p.settled_at IS NULL;
