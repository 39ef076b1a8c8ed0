-- additive
-- What a first person asked for that needs a second one (store/asks.ts). `subject` is what it is about, such as payment/ID; `version` is how
-- that stood: the same act of another person counts while it still stands so. One ask for a subject; a later one takes its place.
-- From here on review_closes and the columns asked and asked_by of cases and bank_transfers serve servers of the last version alone.
CREATE TABLE duebridge_platform.asks (
  subject text PRIMARY KEY,
  act text NOT NULL,
  version text NOT NULL,
  asked_by text NOT NULL,
  reason text NOT NULL,
  asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A refund is made when two have asked for it, and none waits.
UPDATE duebridge_platform.refunds SET state = 'refused', note = 'a second person never approved it', ended_at = now() WHERE state = 'asked';
