-- additive
-- Ends of payments by hour and partner, with one status and in one class of times (admin/figures.ts); partner_id '' is all partners together,
-- class -1 is one without a time. A row is only ever added to. hourly_sums and hourly_progress serve servers of the last version alone.
CREATE TABLE duebridge_platform.ended_counts (
  hour timestamptz NOT NULL,
  partner_id text NOT NULL,
  status text NOT NULL,
  class smallint NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (hour, partner_id, status, class)
);
-- Up to when ends are in the counts.
CREATE TABLE duebridge_platform.ended_counts_progress (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  read_to timestamptz NOT NULL
);

INSERT INTO duebridge_platform.ended_counts_progress (read_to) SELECT p.read_to FROM duebridge_platform.hourly_progress p;
INSERT INTO duebridge_platform.ended_counts (hour, partner_id, status, class, count)
SELECT s.hour, s.partner_id, 'succeeded', t.place - 1, t.count
  FROM duebridge_platform.hourly_sums s, unnest(s.times) WITH ORDINALITY AS t (count, place) WHERE t.count > 0
UNION ALL
SELECT s.hour, s.partner_id, e.status, -1, e.count
  FROM duebridge_platform.hourly_sums s, LATERAL (VALUES ('failed', s.failed), ('canceled', s.canceled)) AS e (status, count) WHERE e.count > 0;
