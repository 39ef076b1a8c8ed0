-- additive
-- What the servers of the last version use no more.
DROP TABLE duebridge_platform.review_closes, duebridge_platform.hourly_sums, duebridge_platform.hourly_progress, duebridge_platform.shares;
ALTER TABLE duebridge_platform.bank_transfers DROP COLUMN asked_by, DROP COLUMN asked;
ALTER TABLE duebridge_platform.cases DROP COLUMN asked_by, DROP COLUMN asked;
ALTER TABLE duebridge_platform.sessions DROP COLUMN opened_after;
ALTER TABLE duebridge_platform.partners DROP COLUMN account_check;
ALTER TABLE duebridge_platform.flow_payments DROP COLUMN replaces;

-- Nothing reads these: a new payment is narrower without them. The session of a payment is in its own row. Rows of before are as they were.
ALTER TABLE duebridge_platform.flow_payments ALTER COLUMN session_id DROP NOT NULL;
ALTER TABLE duebridge_platform.funds ALTER COLUMN created_at DROP DEFAULT, ALTER COLUMN created_at DROP NOT NULL;
-- NULL is a bit, '{}' is sixteen bytes.
ALTER TABLE duebridge_platform.payments ALTER COLUMN former_payment_ids DROP DEFAULT, ALTER COLUMN former_payment_ids DROP NOT NULL;
