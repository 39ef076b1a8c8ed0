-- additive
-- A client secret or static key that was issued here may expire (decision 202); null means never.
ALTER TABLE duebridge_partner.credential ADD COLUMN expires_at timestamptz;
