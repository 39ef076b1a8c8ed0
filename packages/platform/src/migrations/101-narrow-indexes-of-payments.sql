-- additive
-- concurrently
-- These find the payments of an account, an amount or a partner: equal values share an entry, where each had the 36 characters of its id
-- beside it. The few found are sorted when they are read; many are read in the order of their ids, from the key.
CREATE INDEX CONCURRENTLY payments_account ON duebridge_platform.payments (account_id);
CREATE INDEX CONCURRENTLY payments_amount ON duebridge_platform.payments (amount_in_cents);
CREATE INDEX CONCURRENTLY payments_of_partner ON duebridge_platform.payments (partner_id);
