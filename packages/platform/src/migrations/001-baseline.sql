-- Partners, workers, batches, payments, the sandbox's funds and the audit.
-- Wire names down to the column. What must hold whatever the code does is a constraint or a trigger here:
-- the intent never changes (PL1), only the allowed edges are walked and a terminal row stays as it is (PL4, RU2),
-- nothing is ever deleted (PF2), and the audit only grows (EE8).

CREATE TABLE duebridge_platform.partners (
  partner_id text PRIMARY KEY CHECK (partner_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  name text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('biller', 'aggregator')),
  biller_id text,
  -- What customers call the billers of an aggregator, by biller_id.
  biller_names jsonb NOT NULL DEFAULT '{}',
  support_contact text,
  base_url text NOT NULL,
  origins text[] NOT NULL DEFAULT '{}',
  paths jsonb NOT NULL DEFAULT '{}',
  budget jsonb NOT NULL DEFAULT '{}',
  -- Codes of its 400 and 422 answers that refuse a payment for good (decision 21).
  refusals text[] NOT NULL DEFAULT '{}',
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

-- One row per running worker. heartbeat_at is proof of life in the database's time, renewed by one statement; round_at is when the
-- worker last looked at the slots: only one that does so is counted when slots are shared out.
CREATE TABLE duebridge_platform.workers (
  worker_id text PRIMARY KEY,
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  round_at timestamptz
) WITH (fillfactor = 50);

-- Who drives which payments: a payment in flight is in a slot, and a worker owns slots. Taking over from a dead worker changes at
-- most 1,024 of these rows, however many payments are in flight (decision 61).
CREATE TABLE duebridge_platform.slots (
  slot smallint PRIMARY KEY CHECK (slot BETWEEN 0 AND 1023),
  -- The worker that may write to the payments of the slot; null, or one that is dead: anybody takes it.
  worker_id text
) WITH (fillfactor = 25);
INSERT INTO duebridge_platform.slots (slot) SELECT generate_series(0, 1023);

-- What of a partner's budget each worker has claimed, so that all claims together never exceed it (decision 62).
CREATE TABLE duebridge_platform.shares (
  partner_id text NOT NULL,
  worker_id text NOT NULL,
  calls integer NOT NULL,
  calls_need integer NOT NULL,
  rate integer NOT NULL,
  rate_need integer NOT NULL,
  PRIMARY KEY (partner_id, worker_id)
) WITH (fillfactor = 50);

CREATE TABLE duebridge_platform.batches (
  platform_batch_id text PRIMARY KEY CHECK (platform_batch_id ~ '^[A-Za-z0-9._-]{1,64}$'),
  partner_id text NOT NULL REFERENCES duebridge_platform.partners,
  opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  cutoff_at timestamptz NOT NULL,
  closed_at timestamptz,
  -- The statement as it stood at the closing (decision 26); computed live until then.
  statement jsonb,
  CONSTRAINT batches_window UNIQUE (partner_id, cutoff_at),
  CONSTRAINT batches_closed CHECK ((closed_at IS NULL) = (statement IS NULL))
);
CREATE INDEX batches_open ON duebridge_platform.batches (cutoff_at) WHERE closed_at IS NULL;

CREATE TABLE duebridge_platform.payments (
  platform_payment_id text PRIMARY KEY CHECK (platform_payment_id ~ '^[A-Za-z0-9._-]{1,64}$'),
  partner_id text NOT NULL REFERENCES duebridge_platform.partners,
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
  -- What the partner said when it refused the PUT; the reason of the failure once the payment is closed for it.
  rejection_message text CHECK (length(rejection_message) <= 500),
  -- Whose owner drives it, see slots; -1 until a worker has put it into a slot of its own, null in review.
  slot smallint DEFAULT -1 CHECK (slot BETWEEN -1 AND 1023),
  payment_id text,
  -- Earlier values of payment_id, from a partner that forgot the payment and took it again under another (decision 22).
  former_payment_ids text[] NOT NULL DEFAULT '{}',
  failure_reason text CHECK (length(failure_reason) <= 500),
  -- Whose word ended it: what the funds declined was never the partner's to refuse.
  ended_by text CHECK (ended_by IN ('partner', 'refusal', 'funding', 'operator')),
  initiated_at timestamptz,
  posted_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  accepted_at timestamptz,
  ended_at timestamptz,
  -- When the customer's funds were captured or released after the end: the last thing that happens to a row.
  settled_at timestamptz,
  CONSTRAINT payments_ended CHECK ((status = 'processing') = (stage <> 'ended') AND (stage = 'ended') = (ended_at IS NOT NULL)),
  CONSTRAINT payments_review CHECK ((stage = 'review') = (review_reason IS NOT NULL)),
  CONSTRAINT payments_slot CHECK ((stage = 'review') = (slot IS NULL)),
  CONSTRAINT payments_posted CHECK (posted_at IS NULL OR status = 'succeeded'),
  CONSTRAINT payments_succeeded CHECK (status <> 'succeeded' OR (posted_at IS NOT NULL AND payment_id IS NOT NULL)),
  CONSTRAINT payments_failed CHECK ((status = 'failed') = (failure_reason IS NOT NULL)),
  CONSTRAINT payments_settled CHECK (settled_at IS NULL OR status <> 'processing')
) WITH (fillfactor = 70);
-- What is in flight, by slot, read page by page. The columns that change at every step stand in no index, so that those updates stay
-- in the page; payments in review have no slot and are not met when a slot is read.
CREATE INDEX payments_in_flight ON duebridge_platform.payments (slot, platform_payment_id) WHERE settled_at IS NULL;
CREATE INDEX payments_batch ON duebridge_platform.payments (platform_batch_id);
-- Tells whether a batch can be closed by one look, however many of its payments have ended. The second condition, which always
-- holds, keeps the index for the one statement that repeats it: others took it for the smallest way to all that is in flight.
CREATE INDEX payments_batch_open ON duebridge_platform.payments (platform_batch_id)
  WHERE settled_at IS NULL AND platform_batch_id <> '';
CREATE INDEX payments_session ON duebridge_platform.payments (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX payments_partner ON duebridge_platform.payments (partner_id, platform_payment_id);

CREATE FUNCTION duebridge_platform.payments_insert_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> 'processing' OR NEW.stage <> 'created' THEN
    RAISE EXCEPTION 'a payment starts as processing, created'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_start';
  END IF;
  -- The lock makes an insert wait for a closing under way, and a closing for inserts under way (decision 26).
  PERFORM 1 FROM duebridge_platform.batches
    WHERE platform_batch_id = NEW.platform_batch_id AND partner_id = NEW.partner_id AND closed_at IS NULL
    FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no open batch of this partner has the id %', NEW.platform_batch_id
      USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'payments_batch_open';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER payments_insert_guard BEFORE INSERT ON duebridge_platform.payments
  FOR EACH ROW EXECUTE FUNCTION duebridge_platform.payments_insert_guard();

CREATE FUNCTION duebridge_platform.payments_update_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
           NEW.ended_by, NEW.accepted_at, NEW.ended_at, NEW.review_reason)
          IS DISTINCT FROM
          (OLD.status, OLD.stage, OLD.payment_id, OLD.failure_reason, OLD.initiated_at, OLD.posted_at,
           OLD.ended_by, OLD.accepted_at, OLD.ended_at, OLD.review_reason)
          OR (OLD.settled_at IS NOT NULL AND NEW.settled_at IS DISTINCT FROM OLD.settled_at)) THEN
    RAISE EXCEPTION 'a payment that has ended never changes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_terminal';
  END IF;
  IF NEW.stage <> OLD.stage AND NOT (
       (OLD.stage = 'created' AND NEW.stage IN ('authorized', 'dispatching', 'ended'))
    OR (OLD.stage = 'authorized' AND NEW.stage IN ('dispatching', 'ended'))
    OR (OLD.stage = 'dispatching' AND NEW.stage IN ('accepted', 'review', 'ended'))
    OR (OLD.stage = 'accepted' AND NEW.stage IN ('dispatching', 'review', 'ended'))
    OR (OLD.stage = 'review' AND NEW.stage IN ('dispatching', 'ended'))) THEN
    RAISE EXCEPTION 'a payment does not go from % to %', OLD.stage, NEW.stage
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_edge';
  END IF;
  -- A partner that forgot the payment may take it again under another payment_id, in answer to a PUT; the old one is kept.
  IF (OLD.payment_id IS NOT NULL AND NEW.payment_id IS DISTINCT FROM OLD.payment_id
      AND (OLD.stage <> 'dispatching' OR NEW.payment_id IS NULL
           OR NEW.former_payment_ids <> array_append(OLD.former_payment_ids, OLD.payment_id)))
     OR (NEW.payment_id IS NOT DISTINCT FROM OLD.payment_id AND NEW.former_payment_ids <> OLD.former_payment_ids)
     OR (OLD.initiated_at IS NOT NULL AND NEW.initiated_at IS DISTINCT FROM OLD.initiated_at
         AND NEW.payment_id IS NOT DISTINCT FROM OLD.payment_id) THEN
    RAISE EXCEPTION 'what the partner said at acceptance never changes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_acceptance';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER payments_update_guard BEFORE UPDATE ON duebridge_platform.payments
  FOR EACH ROW EXECUTE FUNCTION duebridge_platform.payments_update_guard();

CREATE FUNCTION duebridge_platform.kept_for_ever() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are kept as they are, for ever', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'kept_for_ever';
END $$;
CREATE TRIGGER payments_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.payments
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- Closing writes the statement once; after that a batch stands.
CREATE FUNCTION duebridge_platform.batches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.closed_at IS NOT NULL OR (NEW.platform_batch_id, NEW.partner_id, NEW.opened_at, NEW.cutoff_at)
     IS DISTINCT FROM (OLD.platform_batch_id, OLD.partner_id, OLD.opened_at, OLD.cutoff_at) THEN
    RAISE EXCEPTION 'a batch changes once: when it closes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'batches_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER batches_guard BEFORE UPDATE ON duebridge_platform.batches FOR EACH ROW EXECUTE FUNCTION duebridge_platform.batches_guard();
CREATE TRIGGER batches_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.batches
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- Who did what and why. Random ids instead of a sequence: a sharded database has no cheap one. They stand behind the time in the
-- key, so that lines are written at the end of the index, not all over it.
CREATE TABLE duebridge_platform.audit (
  audit_id uuid NOT NULL DEFAULT gen_random_uuid(),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL,
  event text NOT NULL,
  platform_payment_id text,
  partner_id text,
  detail jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (at, audit_id)
);
CREATE INDEX audit_payment ON duebridge_platform.audit (platform_payment_id, at) WHERE platform_payment_id IS NOT NULL;
CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON duebridge_platform.audit
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- The sandbox's funds (decision 19). One line per act and payment; the two unique rules are what "captured at most once, and
-- never both captured and released" means (PL7).
CREATE TABLE duebridge_platform.sandbox_funds (
  platform_payment_id text NOT NULL,
  act text NOT NULL CHECK (act IN ('authorize', 'decline', 'capture', 'void')),
  phase text NOT NULL GENERATED ALWAYS AS (CASE WHEN act IN ('authorize', 'decline') THEN 'hold' ELSE 'settle' END) STORED,
  funding_method text NOT NULL,
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (platform_payment_id, phase)
);
CREATE TRIGGER sandbox_funds_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON duebridge_platform.sandbox_funds
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- Who may ask for tokens, the customers they ask for, and the flows that customers open.
-- Readers: keys.ts, token.ts, session.ts, payment.ts, retention.ts.

-- A partner's credential holder at the token endpoint (AU1, decision 6).
CREATE TABLE duebridge_platform.clients (
  client_id text PRIMARY KEY,
  partner_id text NOT NULL REFERENCES duebridge_platform.partners (partner_id),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX clients_by_partner ON duebridge_platform.clients (partner_id);

-- API keys: never the key, only HMAC-SHA-256 of it under the pepper, which is not in the database.
CREATE TABLE duebridge_platform.client_keys (
  key_id text PRIMARY KEY,
  client_id text NOT NULL REFERENCES duebridge_platform.clients (client_id),
  -- Two keys at once, so that a key is rotated without a gap: the unique index below lets no third one in.
  slot smallint NOT NULL CHECK (slot IN (1, 2)),
  -- The first characters, by which an operator tells which key a partner holds.
  prefix text NOT NULL,
  digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz,
  revoked_at timestamptz
);
CREATE UNIQUE INDEX client_keys_two_active ON duebridge_platform.client_keys (client_id, slot) WHERE revoked_at IS NULL;
CREATE INDEX client_keys_by_client ON duebridge_platform.client_keys (client_id, created_at);

-- The person who pays. Everything personal is in `sealed` (AES-256-GCM, bound to this row) and nowhere
-- else, so that erasing one column erases the person and keeps the facts of the payment.
CREATE TABLE duebridge_platform.customers (
  customer_id uuid PRIMARY KEY,
  partner_id text NOT NULL,
  sealed text,
  -- HMAC of the e-mail address under the pepper, by which the person is found; gone when they are erased.
  email_digest bytea CHECK (octet_length(email_digest) = 32),
  created_at timestamptz NOT NULL DEFAULT now(),
  erase_after timestamptz NOT NULL,
  erased_at timestamptz,
  CHECK ((sealed IS NULL) = (erased_at IS NOT NULL))
);
CREATE INDEX customers_to_erase ON duebridge_platform.customers (erase_after) WHERE erased_at IS NULL;

-- Start values of the flow (TK1, decision 8). No foreign keys here or below: each would lock a row of
-- partners for every token, and its partner is the registered one of the client that asked.
CREATE TABLE duebridge_platform.tokens (
  token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  client_id text NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  -- Null when the partner named no account: such a token opens a page that can only say so (TR4).
  biller_id text,
  account_id text,
  -- Names what one customer pays at one account of one partner; see flow_id in session.ts.
  flow_id bytea CHECK (octet_length(flow_id) = 32),
  balance jsonb,
  -- How many sessions it has opened: a token that leaked must not open them without end.
  sessions smallint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  CHECK ((biller_id IS NULL) = (account_id IS NULL)),
  CHECK ((flow_id IS NULL) = (account_id IS NULL))
);
CREATE INDEX tokens_by_expiry ON duebridge_platform.tokens (expires_at);

-- What a token is exchanged for in the browser (decision 31). It holds what it needs of its token, so
-- that one primary-key read opens a request, and tokens can be removed at their end.
CREATE TABLE duebridge_platform.sessions (
  session_hash bytea PRIMARY KEY CHECK (octet_length(session_hash) = 32),
  session_id uuid NOT NULL UNIQUE,
  token_hash bytea NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  biller_id text,
  account_id text,
  flow_id bytea,
  balance jsonb,
  -- The flow's latest payment when this session was opened: a later one was made unseen by this page.
  opened_after text,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  CHECK ((flow_id IS NULL) = (account_id IS NULL))
);
CREATE INDEX sessions_by_expiry ON duebridge_platform.sessions (expires_at);

-- One row for each customer and account that has paid: the row that a confirm locks, so that any
-- number of tabs, reloads and tokens make one payment (PL3).
CREATE TABLE duebridge_platform.flows (
  flow_id bytea PRIMARY KEY CHECK (octet_length(flow_id) = 32),
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  account_id text NOT NULL,
  latest_payment_id text
);
-- Who else pays at an account.
CREATE INDEX flows_by_account ON duebridge_platform.flows (account_id, biller_id, partner_id);

-- Which flow, token and customer a payment came from. Kept with the payment, for ever.
CREATE TABLE duebridge_platform.flow_payments (
  platform_payment_id text PRIMARY KEY,
  flow_id bytea NOT NULL,
  token_hash bytea NOT NULL,
  session_id uuid NOT NULL,
  customer_id uuid NOT NULL,
  -- The payment that failed or was canceled and that this one stands in for; at most one may.
  replaces text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX flow_payments_by_token ON duebridge_platform.flow_payments (token_hash, created_at);

-- For the people who run it: who they are, what was tried, what differs, what waits for a second person.
-- Readers: admin/, store/attempts.ts, reconciliation/.

-- An operator, and the role that says what they may do (decision 38).
CREATE TABLE duebridge_platform.operators (
  operator_id text PRIMARY KEY CHECK (operator_id ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
  name text NOT NULL,
  role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
  -- The `sub` of their OpenID Connect identity at the one provider that is configured.
  oidc_subject text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  disabled_at timestamptz
);

-- Keys of operators: only HMAC-SHA-256 under the pepper, as for client_keys; two at once for rotation.
CREATE TABLE duebridge_platform.operator_keys (
  key_id text PRIMARY KEY,
  operator_id text NOT NULL REFERENCES duebridge_platform.operators (operator_id),
  slot smallint NOT NULL CHECK (slot IN (1, 2)),
  digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_used_at timestamptz,
  revoked_at timestamptz
);
CREATE UNIQUE INDEX operator_keys_two_active ON duebridge_platform.operator_keys (operator_id, slot)
  WHERE revoked_at IS NULL;
CREATE INDEX operator_keys_by_operator ON duebridge_platform.operator_keys (operator_id, created_at);

-- A console session: the cookie's hash. `key_id` is the key that opened it, null for OpenID Connect; `operator_id` is null for
-- the deployment's own admin key.
CREATE TABLE duebridge_platform.operator_sessions (
  session_hash bytea PRIMARY KEY CHECK (octet_length(session_hash) = 32),
  operator_id text REFERENCES duebridge_platform.operators (operator_id),
  key_id text REFERENCES duebridge_platform.operator_keys (key_id),
  csrf text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX operator_sessions_by_expiry ON duebridge_platform.operator_sessions (expires_at);

-- What was tried for a payment and what came back: a few entries in one row, because most payments end within seconds and a row
-- for each call would double their writes. Bodies are sealed. Not part of the books: retention.ts removes it.
CREATE TABLE duebridge_platform.attempts (
  platform_payment_id text NOT NULL,
  at timestamptz NOT NULL,
  part uuid NOT NULL DEFAULT gen_random_uuid(),
  entries jsonb NOT NULL,
  PRIMARY KEY (platform_payment_id, at, part)
);
CREATE INDEX attempts_by_age ON duebridge_platform.attempts USING brin (at);

-- A review above the limit of one person: asked for by the first, closed by the second (decision 38).
CREATE TABLE duebridge_platform.review_closes (
  platform_payment_id text PRIMARY KEY,
  requested_by text NOT NULL,
  requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  reason text NOT NULL
);

-- What reconciliations found, until somebody resolved it or it was found no more (decision 26).
CREATE TABLE duebridge_platform.differences (
  difference_id uuid PRIMARY KEY,
  platform_batch_id text NOT NULL,
  partner_id text NOT NULL,
  platform_payment_id text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('missing_here', 'missing_there', 'amount', 'status', 'time')),
  here text,
  there text,
  amount_in_cents bigint,
  found_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  resolved_at timestamptz,
  resolved_by text,
  resolution text,
  CONSTRAINT differences_resolved CHECK (
    (resolved_at IS NULL) = (resolved_by IS NULL) AND (resolved_at IS NULL) = (resolution IS NULL))
);
-- One open difference of a kind for a payment of a batch: a second run finds the same one.
CREATE UNIQUE INDEX differences_open
  ON duebridge_platform.differences (platform_batch_id, platform_payment_id, kind) WHERE resolved_at IS NULL;
CREATE INDEX differences_by_partner ON duebridge_platform.differences (partner_id, difference_id);

-- Searches of people. Only columns that never change: an index over status, stage or payment_id would make every step of a payment
-- rewrite all its index entries. What ended without success, and ids that partners gave, are found by the audit, which only grows.
CREATE INDEX payments_by_account ON duebridge_platform.payments (account_id, platform_payment_id);
CREATE INDEX payments_by_amount ON duebridge_platform.payments (amount_in_cents, platform_payment_id);
CREATE INDEX audit_unsuccessful ON duebridge_platform.audit ((detail ->> 'status'), platform_payment_id)
  WHERE event = 'payment_ended' AND detail ->> 'status' IN ('failed', 'canceled');
CREATE INDEX audit_payment_id ON duebridge_platform.audit ((detail ->> 'payment_id'))
  WHERE event = 'payment_ended' AND detail ->> 'payment_id' IS NOT NULL;
CREATE INDEX audit_event ON duebridge_platform.audit (event, at)
  WHERE event NOT IN ('payment_created', 'payment_authorized', 'payment_dispatching', 'payment_accepted', 'payment_ended',
                      'funds_captured', 'funds_released');
CREATE INDEX audit_actor ON duebridge_platform.audit (actor, at) WHERE actor NOT LIKE 'worker-%' AND actor NOT LIKE 'session %';
CREATE INDEX audit_partner ON duebridge_platform.audit (partner_id, at) WHERE platform_payment_id IS NULL;
CREATE INDEX flow_payments_by_customer ON duebridge_platform.flow_payments (customer_id);
CREATE INDEX customers_by_email ON duebridge_platform.customers (email_digest) WHERE email_digest IS NOT NULL;

-- Which deployment this database belongs to (decision 34): one row. For each secret that the data depends on, a value keyed with it,
-- so that a start with another secret is told instead of failing everything it meets.
CREATE TABLE duebridge_platform.deployment (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  deployment_id uuid NOT NULL,
  secrets jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- Mails to customers, off unless SMTP is set up: one for each end of a payment, written before it is sent.
CREATE TABLE duebridge_platform.mails (
  platform_payment_id text PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('receipt', 'failed')),
  queued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When it is due; while one is being sent, when another worker may take it over.
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  tries smallint NOT NULL DEFAULT 0,
  sent_at timestamptz,
  given_up_at timestamptz
);
CREATE INDEX mails_due ON duebridge_platform.mails (due_at) WHERE sent_at IS NULL AND given_up_at IS NULL;

-- Up to where the audit was read for ends of payments that get a mail: one row, made when mail is first switched on.
CREATE TABLE duebridge_platform.mail_progress (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  read_to timestamptz NOT NULL
);
