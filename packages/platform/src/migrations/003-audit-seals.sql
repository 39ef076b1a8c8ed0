-- additive
-- Seals over the audit, each over a stretch of time and over the seal before it: what was altered, removed or slipped in is found by
-- comparing (decision 135). The digests are SHA-256, 32 bytes for each line, in the order of (at, audit_id).
CREATE TABLE duebridge_platform.audit_seals (
  seal_no bigint PRIMARY KEY CHECK (seal_no > 0),
  -- The stretch (from_at, to_at]. Both the same, and before the end of the seal before: the database's clock had gone back.
  from_at timestamptz NOT NULL,
  to_at timestamptz NOT NULL,
  sealed_at timestamptz NOT NULL,
  lines integer NOT NULL CHECK (lines >= 0),
  digests bytea NOT NULL CHECK (octet_length(digests) = 32 * lines),
  previous bytea NOT NULL CHECK (octet_length(previous) = 32),
  seal bytea NOT NULL CHECK (octet_length(seal) = 32),
  CONSTRAINT audit_seals_stretch CHECK (from_at <= to_at)
);
-- Digests look random: compressing them would cost and gain nothing.
ALTER TABLE duebridge_platform.audit_seals ALTER COLUMN digests SET STORAGE EXTERNAL;
CREATE INDEX audit_seals_end ON duebridge_platform.audit_seals (to_at);
CREATE TRIGGER audit_seals_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON duebridge_platform.audit_seals
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();
