-- additive
-- What the partner said about a batch each time it was compared (decision 26): its statement, or that of its file, beside ours.
CREATE TABLE duebridge_platform.comparisons (
  platform_batch_id text NOT NULL,
  compared_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  comparison_id uuid NOT NULL DEFAULT gen_random_uuid(),
  actor text NOT NULL,
  method text NOT NULL CHECK (method IN ('statement', 'payments', 'csv')),
  compared integer NOT NULL,
  differences integer NOT NULL,
  -- Null where the partner has no statements.
  partner_statement jsonb,
  PRIMARY KEY (platform_batch_id, compared_at, comparison_id)
);
CREATE TRIGGER comparisons_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON duebridge_platform.comparisons
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- No statement used it: attempts are removed with their payments, which are found by id.
DROP INDEX duebridge_platform.attempts_by_age;
