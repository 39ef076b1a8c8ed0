-- additive
-- An account id may be any printable text, and so may begin with a colon: the line says which side of a transfer an entry is.
-- Not validated: every row satisfies the stricter rule that this replaces.
ALTER TABLE duebridge_partner.entry DROP CONSTRAINT entry_line_known;
ALTER TABLE duebridge_partner.entry ADD CONSTRAINT entry_line_known CHECK
  (line = 1 OR (line = 2 AND account_id IN (':received', ':billed'))) NOT VALID;
