-- Partners, workers, batches, payments, the sandbox's funds and the audit.
-- Wire names down to the column. What must hold whatever the code does is a constraint or a trigger here:
-- the intent never changes (P1), only the allowed edges are walked and a terminal row stays as it is (P4, RU2),
-- nothing is ever deleted (PF2), and the audit only grows (E8).

CREATE TABLE partners (
  partner_id text PRIMARY KEY CHECK (partner_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  name text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('biller', 'aggregator')),
  biller_id text,
  base_url text NOT NULL,
  origins text[] NOT NULL DEFAULT '{}',
  paths jsonb NOT NULL DEFAULT '{}',
  budget jsonb NOT NULL DEFAULT '{}',
  account_check text NOT NULL DEFAULT 'when_reachable' CHECK (account_check IN ('when_reachable', 'required', 'off')),
  batch_time_zone text NOT NULL DEFAULT 'UTC',
  batch_cutoff text NOT NULL DEFAULT '00:00' CHECK (batch_cutoff ~ '^([01][0-9]|2[0-3]):[0-5][0-9]$'),
  auth_method text NOT NULL CHECK (auth_method IN ('oauth', 'key')),
  -- What an operator may see of the credentials: token_url, client_id and scope, or the header's name.
  auth_public jsonb NOT NULL,
  -- The client secret or the key, sealed (seal.ts): key id, nonce and ciphertext.
  auth_sealed text NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  -- Why nothing is sent: an operator's pause, or what the engine met (credentials refused, certificate not valid).
  pause_reason text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT partners_biller CHECK ((kind = 'biller') = (biller_id IS NOT NULL))
);

-- One row per running engine. heartbeat_at is proof of life in the database's time; shares holds, per partner, how many
-- calls at once this worker has registered for, so that the sum over all workers never exceeds the partner's budget.
CREATE TABLE workers (
  worker_id text PRIMARY KEY,
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  shares jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

CREATE TABLE batches (
  platform_batch_id text PRIMARY KEY CHECK (platform_batch_id ~ '^[A-Za-z0-9._-]{1,64}$'),
  partner_id text NOT NULL REFERENCES partners,
  opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  cutoff_at timestamptz NOT NULL,
  closed_at timestamptz,
  -- The statement as it stood at the closing (decision 26); computed live until then.
  statement jsonb,
  CONSTRAINT batches_window UNIQUE (partner_id, cutoff_at),
  CONSTRAINT batches_closed CHECK ((closed_at IS NULL) = (statement IS NULL))
);
CREATE INDEX batches_open ON batches (cutoff_at) WHERE closed_at IS NULL;

CREATE TABLE payments (
  platform_payment_id text PRIMARY KEY CHECK (platform_payment_id ~ '^[A-Za-z0-9._-]{1,64}$'),
  partner_id text NOT NULL REFERENCES partners,
  biller_id text NOT NULL,
  account_id text NOT NULL,
  platform_batch_id text NOT NULL,
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents BETWEEN 1 AND 99999999999),
  session_id text,
  funding_method text NOT NULL,
  status text NOT NULL DEFAULT 'processing' CHECK (status IN ('processing', 'succeeded', 'failed', 'canceled')),
  stage text NOT NULL DEFAULT 'created'
    CHECK (stage IN ('created', 'authorized', 'dispatching', 'accepted', 'review', 'ended')),
  review_reason text,
  -- The worker that drives it; null in review, and for a moment between two owners.
  owner text,
  payment_id text,
  failure_reason text CHECK (length(failure_reason) <= 500),
  initiated_at timestamptz,
  posted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  accepted_at timestamptz,
  ended_at timestamptz,
  -- When the customer's funds were captured or released after the end: the last thing that happens to a row.
  settled_at timestamptz,
  CONSTRAINT payments_ended CHECK ((status = 'processing') = (stage <> 'ended') AND (stage = 'ended') = (ended_at IS NOT NULL)),
  CONSTRAINT payments_review CHECK ((stage = 'review') = (review_reason IS NOT NULL)),
  CONSTRAINT payments_posted CHECK (posted_at IS NULL OR status = 'succeeded'),
  CONSTRAINT payments_succeeded CHECK (status <> 'succeeded' OR (posted_at IS NOT NULL AND payment_id IS NOT NULL)),
  CONSTRAINT payments_failed CHECK ((status = 'failed') = (failure_reason IS NOT NULL)),
  CONSTRAINT payments_settled CHECK (settled_at IS NULL OR status <> 'processing')
) WITH (fillfactor = 70);
-- What is in flight, by who drives it. The columns that change at every step stand in no index, so those updates stay in the page.
CREATE INDEX payments_in_flight ON payments (owner) WHERE settled_at IS NULL;
CREATE INDEX payments_batch ON payments (platform_batch_id);
CREATE INDEX payments_session ON payments (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX payments_partner ON payments (partner_id, platform_payment_id);

CREATE FUNCTION payments_insert_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> 'processing' OR NEW.stage <> 'created' THEN
    RAISE EXCEPTION 'a payment starts as processing, created'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_start';
  END IF;
  -- The lock makes an insert wait for a closing under way, and a closing for inserts under way (decision 26).
  PERFORM 1 FROM batches
    WHERE platform_batch_id = NEW.platform_batch_id AND partner_id = NEW.partner_id AND closed_at IS NULL
    FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no open batch of this partner has the id %', NEW.platform_batch_id
      USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'payments_batch_open';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER payments_insert_guard BEFORE INSERT ON payments
  FOR EACH ROW EXECUTE FUNCTION payments_insert_guard();

CREATE FUNCTION payments_update_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.platform_payment_id, NEW.partner_id, NEW.biller_id, NEW.account_id, NEW.platform_batch_id,
      NEW.amount_in_cents, NEW.session_id, NEW.funding_method, NEW.created_at)
     IS DISTINCT FROM
     (OLD.platform_payment_id, OLD.partner_id, OLD.biller_id, OLD.account_id, OLD.platform_batch_id,
      OLD.amount_in_cents, OLD.session_id, OLD.funding_method, OLD.created_at) THEN
    RAISE EXCEPTION 'the intent of a payment never changes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_intent';
  END IF;
  IF OLD.status <> 'processing'
     AND ((NEW.status, NEW.stage, NEW.payment_id, NEW.failure_reason, NEW.initiated_at, NEW.posted_at,
           NEW.accepted_at, NEW.ended_at, NEW.review_reason)
          IS DISTINCT FROM
          (OLD.status, OLD.stage, OLD.payment_id, OLD.failure_reason, OLD.initiated_at, OLD.posted_at,
           OLD.accepted_at, OLD.ended_at, OLD.review_reason)
          OR (OLD.settled_at IS NOT NULL AND NEW.settled_at IS DISTINCT FROM OLD.settled_at)) THEN
    RAISE EXCEPTION 'a payment that has ended never changes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_terminal';
  END IF;
  IF NEW.stage <> OLD.stage AND NOT (
       (OLD.stage = 'created' AND NEW.stage IN ('authorized', 'dispatching', 'ended'))
    OR (OLD.stage = 'authorized' AND NEW.stage IN ('dispatching', 'ended'))
    OR (OLD.stage = 'dispatching' AND NEW.stage IN ('accepted', 'review', 'ended'))
    OR (OLD.stage = 'accepted' AND NEW.stage IN ('review', 'ended'))
    OR (OLD.stage = 'review' AND NEW.stage = 'dispatching')) THEN
    RAISE EXCEPTION 'a payment does not go from % to %', OLD.stage, NEW.stage
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_edge';
  END IF;
  IF (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id)
     OR (OLD.initiated_at IS NOT NULL AND NEW.initiated_at IS DISTINCT FROM OLD.initiated_at) THEN
    RAISE EXCEPTION 'what the partner said at acceptance never changes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_acceptance';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER payments_update_guard BEFORE UPDATE ON payments
  FOR EACH ROW EXECUTE FUNCTION payments_update_guard();

CREATE FUNCTION kept_for_ever() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are kept as they are, for ever', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'kept_for_ever';
END $$;
CREATE TRIGGER payments_kept BEFORE DELETE OR TRUNCATE ON payments
  FOR EACH STATEMENT EXECUTE FUNCTION kept_for_ever();

-- Closing writes the statement once; after that a batch stands.
CREATE FUNCTION batches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.closed_at IS NOT NULL OR (NEW.platform_batch_id, NEW.partner_id, NEW.opened_at, NEW.cutoff_at)
     IS DISTINCT FROM (OLD.platform_batch_id, OLD.partner_id, OLD.opened_at, OLD.cutoff_at) THEN
    RAISE EXCEPTION 'a batch changes once: when it closes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'batches_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER batches_guard BEFORE UPDATE ON batches FOR EACH ROW EXECUTE FUNCTION batches_guard();
CREATE TRIGGER batches_kept BEFORE DELETE OR TRUNCATE ON batches
  FOR EACH STATEMENT EXECUTE FUNCTION kept_for_ever();

-- Who did what and why. Random ids instead of a sequence: a sharded database has no cheap one. They stand behind the time in the
-- key, so that lines are written at the end of the index, not all over it.
CREATE TABLE audit (
  audit_id uuid NOT NULL DEFAULT gen_random_uuid(),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL,
  event text NOT NULL,
  platform_payment_id text,
  partner_id text,
  detail jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (at, audit_id)
);
CREATE INDEX audit_payment ON audit (platform_payment_id, at) WHERE platform_payment_id IS NOT NULL;
CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
  FOR EACH STATEMENT EXECUTE FUNCTION kept_for_ever();

-- The sandbox's funds (decision 19). One line per act and payment; the two unique rules are what "captured at most once, and
-- never both captured and released" means (P7).
CREATE TABLE sandbox_funds (
  platform_payment_id text NOT NULL,
  act text NOT NULL CHECK (act IN ('authorize', 'decline', 'capture', 'void')),
  phase text NOT NULL GENERATED ALWAYS AS (CASE WHEN act IN ('authorize', 'decline') THEN 'hold' ELSE 'settle' END) STORED,
  funding_method text NOT NULL,
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (platform_payment_id, phase)
);
CREATE TRIGGER sandbox_funds_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON sandbox_funds
  FOR EACH STATEMENT EXECUTE FUNCTION kept_for_ever();
