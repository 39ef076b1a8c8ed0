-- additive
-- An import of former payments leaves one line in the audit, with its file's digest. Lines of single payments ('imported') stay from before.
-- Not validated: every row satisfies the stricter rules that these replace.
ALTER TABLE duebridge_partner.payment_audit DROP CONSTRAINT payment_audit_event_known;
ALTER TABLE duebridge_partner.payment_audit ADD CONSTRAINT payment_audit_event_known CHECK
  (event IN ('mismatch', 'foreign_client', 'canceled', 'settled', 'contradicted', 'imported', 'payments_imported', 'accounts_imported',
             'credential_issued', 'credential_revoked', 'tokens_revoked')) NOT VALID;
ALTER TABLE duebridge_partner.payment_audit DROP CONSTRAINT payment_audit_of_payment;
ALTER TABLE duebridge_partner.payment_audit ADD CONSTRAINT payment_audit_of_payment CHECK
  ((platform_payment_id IS NULL) = (event IN ('payments_imported', 'accounts_imported', 'credential_issued', 'credential_revoked',
                                              'tokens_revoked'))) NOT VALID;
