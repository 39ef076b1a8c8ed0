-- What the kit's operator does by the admin API: credentials that are issued and revoked while the servers run, and an audit of acts
-- that belong to no payment.

-- Client secrets and static keys as SHA-256 only: whoever reads this table can call nothing. One of the environment has a row once
-- it is revoked.
CREATE TABLE duebridge_partner.credential (
  credential_id text COLLATE "C" PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL,
  secret_sha256 bytea NOT NULL,
  source text COLLATE "C" NOT NULL,
  issued_at timestamptz,
  revoked_at timestamptz,
  CONSTRAINT credential_source_known CHECK (source IN ('environment', 'issued')),
  CONSTRAINT credential_issued_here CHECK ((source = 'issued') = (issued_at IS NOT NULL)),
  CONSTRAINT credential_is_digest CHECK (length(secret_sha256) = 32)
);

ALTER TABLE duebridge_partner.payment_audit ALTER COLUMN platform_payment_id DROP NOT NULL;
ALTER TABLE duebridge_partner.payment_audit DROP CONSTRAINT payment_audit_event_known;
ALTER TABLE duebridge_partner.payment_audit ADD CONSTRAINT payment_audit_event_known CHECK
  (event IN ('mismatch', 'foreign_client', 'canceled', 'settled', 'contradicted', 'imported', 'accounts_imported',
             'credential_issued', 'credential_revoked', 'tokens_revoked'));
ALTER TABLE duebridge_partner.payment_audit ADD CONSTRAINT payment_audit_of_payment CHECK
  ((platform_payment_id IS NULL) = (event IN ('accounts_imported', 'credential_issued', 'credential_revoked', 'tokens_revoked')));
