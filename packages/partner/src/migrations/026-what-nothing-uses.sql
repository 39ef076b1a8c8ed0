-- additive
-- What the servers of the last version use no more; the index goes with its columns.
DROP TABLE duebridge_partner.payment_name;
ALTER TABLE duebridge_partner.payment_processing DROP COLUMN cancel_actor, DROP COLUMN cancel_reason;
