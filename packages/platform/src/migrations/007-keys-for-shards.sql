-- additive
-- Keys that hold the column by which their table would be distributed over several nodes (docs/scale.md). A payment stands in for
-- another of the same flow, so that "at most one does" is a rule within a flow; a session's id is random beside its secret.
ALTER TABLE duebridge_platform.flow_payments
  DROP CONSTRAINT flow_payments_pkey,
  DROP CONSTRAINT flow_payments_replaces_key,
  ADD CONSTRAINT flow_payments_pkey PRIMARY KEY (platform_payment_id, flow_id),
  ADD CONSTRAINT flow_payments_replaces_key UNIQUE (flow_id, replaces);
ALTER TABLE duebridge_platform.sessions DROP CONSTRAINT sessions_session_id_key;
CREATE INDEX sessions_by_id ON duebridge_platform.sessions (session_id);
