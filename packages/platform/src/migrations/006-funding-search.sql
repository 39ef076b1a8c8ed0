-- additive
-- A processor names its own reference when it asks about a payment; it is written once, so the index costs one entry a payment.
CREATE INDEX funds_by_reference ON duebridge_platform.funds (reference) WHERE reference IS NOT NULL;
