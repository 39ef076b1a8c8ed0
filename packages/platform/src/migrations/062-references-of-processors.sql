-- additive
-- concurrently
-- The id of the payment itself, which some adapters use as their reference, is found by the primary key.
CREATE INDEX CONCURRENTLY funds_by_processor_reference ON duebridge_platform.funds (reference) WHERE reference <> platform_payment_id;
