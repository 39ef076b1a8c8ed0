-- additive
-- concurrently
-- A partner's payments in the order of their ids. The first eight characters of an id are its time in steps of 65 seconds, and the payments of one
-- step share an entry, where each had the 36 characters of its id.
CREATE INDEX CONCURRENTLY payments_by_partner ON duebridge_platform.payments (partner_id, left(platform_payment_id, 8));
