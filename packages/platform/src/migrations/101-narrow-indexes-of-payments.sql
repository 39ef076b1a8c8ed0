-- additive
-- concurrently
-- These find the payments of an account or an amount: equal values share an entry, where each had the 36 characters of its id beside it. The few
-- found are sorted when they are read; many are read in the order of their ids, from the key. The index by partner keeps the ids: a partner
-- that left has many payments, and none among the newest, where the key would look for them.
CREATE INDEX CONCURRENTLY payments_account ON duebridge_platform.payments (account_id);
CREATE INDEX CONCURRENTLY payments_amount ON duebridge_platform.payments (amount_in_cents);
