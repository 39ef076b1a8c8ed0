-- additive
-- concurrently
-- Lines of the audit are found by the time in the id of their payment, in steps of four seconds, which the first ten characters of a UUIDv7 are:
-- those of the same time share an entry and lie beside each other in the table, where each had an entry of its own.
CREATE INDEX CONCURRENTLY audit_time_of_payment ON duebridge_platform.audit (left(platform_payment_id, 10)) WHERE platform_payment_id IS NOT NULL;
-- In place of the key: few lines have the same time, and those are sorted by their ids when they are read.
CREATE INDEX CONCURRENTLY audit_at ON duebridge_platform.audit (at);
