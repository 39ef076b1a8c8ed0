-- additive
-- The latest conformance report of a partner (admin/conformance.ts).
CREATE TABLE duebridge_platform.conformance_reports (
  partner_id text PRIMARY KEY,
  report jsonb NOT NULL,
  uploaded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
