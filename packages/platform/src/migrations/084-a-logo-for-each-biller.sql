-- additive
-- Names of the logos of an aggregator's billers, by biller_id.
ALTER TABLE duebridge_platform.partners ADD COLUMN biller_logos jsonb NOT NULL DEFAULT '{}';
