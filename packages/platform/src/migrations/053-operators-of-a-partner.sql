-- additive
-- An operator may be of one partner: it sees what is that partner's, and acts on nothing (admin/partner-scope.ts).
ALTER TABLE duebridge_platform.operators ADD COLUMN partner_id text REFERENCES duebridge_platform.partners (partner_id);
ALTER TABLE duebridge_platform.operators DROP CONSTRAINT operators_role_check;
ALTER TABLE duebridge_platform.operators ADD CONSTRAINT operators_role_check
  CHECK (role IN ('viewer', 'operator', 'admin', 'partner'));
ALTER TABLE duebridge_platform.operators ADD CONSTRAINT operators_of_partner CHECK ((role = 'partner') = (partner_id IS NOT NULL));
