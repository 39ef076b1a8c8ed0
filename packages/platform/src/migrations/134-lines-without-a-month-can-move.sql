-- additive
-- The platform deletes lines here alone, when their month is made. Without a key, PostgreSQL refuses that where a publication sends deletes.
ALTER TABLE duebridge_platform.audit_other REPLICA IDENTITY FULL;
