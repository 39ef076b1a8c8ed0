-- additive
-- concurrently
-- Finds the events that leave (checkout/retention.ts): they come in the order of time, so a few kilobytes are enough.
CREATE INDEX CONCURRENTLY funding_events_by_time ON duebridge_platform.funding_events USING brin (received_at);
