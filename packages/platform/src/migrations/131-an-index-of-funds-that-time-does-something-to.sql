-- additive
-- concurrently
CREATE INDEX CONCURRENTLY funds_due ON duebridge_platform.funds (sweep_at, platform_payment_id) WHERE sweep_at IS NOT NULL;
