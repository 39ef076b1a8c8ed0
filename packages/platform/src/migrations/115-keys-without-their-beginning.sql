-- additive
-- Nobody reads the beginning of a key, which only servers of earlier versions write.
ALTER TABLE duebridge_platform.client_keys ALTER COLUMN prefix SET DEFAULT '';
