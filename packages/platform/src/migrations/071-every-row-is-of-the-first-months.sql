-- additive
-- Reads both tables while they are written; the constraints that no partition may have unproved are proved as well.
DO $do$
DECLARE
  one record;
BEGIN
  FOR one IN SELECT c.conrelid::regclass AS of_table, c.conname FROM pg_constraint c
              WHERE c.conrelid IN ('duebridge_platform.payments'::regclass, 'duebridge_platform.audit'::regclass) AND NOT c.convalidated
  LOOP
    EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', one.of_table, one.conname);
  END LOOP;
END $do$;
