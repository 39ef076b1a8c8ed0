-- additive
-- concurrently
-- The operator's list of what failed. By the reason and not by the status: a success does not change it, and so touches no index.
CREATE INDEX CONCURRENTLY payment_failed ON duebridge_partner.payment (initiated_at) WHERE failure_reason IS NOT NULL;
