-- additive
-- The digest of the client secret for which a token was issued: the token ends when that secret is no longer configured. Null for a token of
-- the version before.
ALTER TABLE duebridge_partner.access_token ADD COLUMN secret_sha256 bytea;
