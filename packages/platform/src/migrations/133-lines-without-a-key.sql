-- additive
-- No line is found by its id, which is random, is never given by a writer, and is part of what is sealed. Nothing references a line.
ALTER TABLE duebridge_platform.audit DROP CONSTRAINT audit_pkey;
