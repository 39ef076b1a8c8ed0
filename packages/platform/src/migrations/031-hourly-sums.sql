-- additive
-- How payments went, by partner and hour of their confirm; partner_id '' is the sum of all. `times` counts the succeeded ones by how long
-- they took (admin/figures.ts). The ends of payments up to `read_to` are in the sums.
CREATE TABLE duebridge_platform.hourly_sums (
  hour timestamptz NOT NULL,
  partner_id text NOT NULL,
  succeeded integer NOT NULL,
  failed integer NOT NULL,
  canceled integer NOT NULL,
  times integer[] NOT NULL,
  PRIMARY KEY (hour, partner_id)
);
CREATE TABLE duebridge_platform.hourly_progress (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  read_to timestamptz NOT NULL
);
