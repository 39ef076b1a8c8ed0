-- additive
-- concurrently
-- Lines of the audit are found by a payment, or by the partner's id of one, which are always given whole: an entry is a hash of four bytes instead
-- of an id of 36 characters.
CREATE INDEX CONCURRENTLY audit_payment ON duebridge_platform.audit USING hash (platform_payment_id) WHERE platform_payment_id IS NOT NULL;
CREATE INDEX CONCURRENTLY audit_partners_payment_id ON duebridge_platform.audit USING hash ((detail ->> 'payment_id')) WHERE event = 'payment_ended' AND (detail ->> 'payment_id') IS NOT NULL;
