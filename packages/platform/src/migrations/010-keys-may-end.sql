-- additive
-- An API key of the token endpoint may expire (decision 175); null means never.
ALTER TABLE duebridge_platform.client_keys ADD COLUMN expires_at timestamptz;
