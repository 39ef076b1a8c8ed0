-- additive
-- Months whose lines and full payments are in files (store/archive.ts). `until_id` is the first id after the month.
CREATE TABLE duebridge_platform.archives (
  month text PRIMARY KEY,
  until timestamptz NOT NULL,
  until_id text NOT NULL,
  folder text NOT NULL,
  payments bigint NOT NULL,
  payments_sha256 text NOT NULL,
  lines bigint NOT NULL,
  audit_sha256 text NOT NULL,
  archived_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER archives_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.archives
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();
-- A month that is being copied to a file may not change any more.
CREATE FUNCTION duebridge_platform.being_archived() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  RAISE EXCEPTION 'the month of this row is being archived'
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'being_archived';
END $function$;
