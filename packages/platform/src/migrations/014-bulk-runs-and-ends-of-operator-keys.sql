-- additive
-- One act on several payments, driven by the platform and readable afterwards (decision 200).
CREATE TABLE duebridge_platform.bulk_runs (
  run_id text PRIMARY KEY,
  act text NOT NULL,
  -- Who planned it: every act is in this name.
  actor text NOT NULL,
  reason text,
  state text NOT NULL CHECK (state IN ('planned', 'running', 'stopped', 'done')),
  -- Why it stands as it does, when nobody asked for that.
  note text NOT NULL DEFAULT '',
  planned_at timestamptz NOT NULL,
  started_at timestamptz,
  ended_at timestamptz,
  payments integer NOT NULL CHECK (payments > 0),
  amount_in_cents bigint NOT NULL,
  done integer NOT NULL DEFAULT 0,
  refused integer NOT NULL DEFAULT 0,
  -- The process that drives it, and until when no other may.
  driver text,
  driven_until timestamptz
);
CREATE INDEX bulk_runs_newest ON duebridge_platform.bulk_runs (planned_at);
CREATE TABLE duebridge_platform.bulk_items (
  run_id text NOT NULL REFERENCES duebridge_platform.bulk_runs (run_id) ON DELETE CASCADE,
  place integer NOT NULL CHECK (place >= 0),
  platform_payment_id text NOT NULL,
  partner_id text,
  amount_in_cents bigint,
  state text NOT NULL CHECK (state IN ('waiting', 'acting', 'done', 'refused')),
  -- What the dry run said, and then what came of it.
  note text NOT NULL,
  marked_at timestamptz,
  PRIMARY KEY (run_id, place)
);
-- A key of an operator may expire (decision 201); null means never.
ALTER TABLE duebridge_platform.operator_keys ADD COLUMN expires_at timestamptz;
