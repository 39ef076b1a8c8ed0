-- additive
-- Customers leave as a whole when their time is over: nothing of an erased one is read again.
DROP INDEX duebridge_platform.customers_to_erase;
CREATE INDEX customers_erase_after ON duebridge_platform.customers (erase_after);
-- The latest payments of an account without sorting all of its flows.
DROP INDEX duebridge_platform.flows_by_account;
CREATE INDEX flows_by_account ON duebridge_platform.flows (account_id, biller_id, partner_id, latest_payment_id)
  WHERE latest_payment_id IS NOT NULL;
