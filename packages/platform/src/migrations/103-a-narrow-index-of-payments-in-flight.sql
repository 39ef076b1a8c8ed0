-- additive
-- concurrently
-- Every payment enters this index and leaves it within seconds. The payments of a slot share an entry, where each had its id beside it; what is
-- read of a slot is read from the table anyway.
CREATE INDEX CONCURRENTLY payments_by_slot ON duebridge_platform.payments (slot) WHERE settled_at IS NULL;
