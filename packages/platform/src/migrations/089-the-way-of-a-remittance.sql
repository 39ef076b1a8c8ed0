-- additive
-- By which way a remittance is sent, written with its first try: a biller that is paid another way meanwhile is not paid by both.
ALTER TABLE duebridge_platform.remittances ADD COLUMN way text;
