-- Payments of the partner kit. A row is made once (ST1), ended once (ST2-ST4) and never removed (PF2).

CREATE FUNCTION duebridge_partner.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% of % is not allowed', tg_op, tg_table_name USING ERRCODE = 'restrict_violation';
END;
$$;

-- Ids are compared byte by byte (decision 13): collation "C" everywhere, also because it is the cheapest.
CREATE TABLE duebridge_partner.payment (
  platform_payment_id text COLLATE "C" PRIMARY KEY,
  -- Ours (a UUID) or the biller's own name for it (PF1); given at the acceptance, because it may never change (RU5).
  payment_id text COLLATE "C" NOT NULL,
  platform_batch_id text COLLATE "C" NOT NULL,
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  -- Who put it: the OAuth client, or the one holder of the static key (decision 9).
  client_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL DEFAULT 'processing',
  amount_in_cents bigint NOT NULL,
  -- Milliseconds are what the wire shows (decision 12); finer parts would make equal texts unequal rows.
  initiated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  posted_at timestamptz,
  ended_at timestamptz,
  failure_reason text,
  CONSTRAINT payment_status_known CHECK (status IN ('processing', 'succeeded', 'failed', 'canceled')),
  CONSTRAINT payment_id_short CHECK (length(payment_id) BETWEEN 1 AND 128),
  CONSTRAINT payment_amount_range CHECK (amount_in_cents BETWEEN 1 AND 99999999999),
  CONSTRAINT payment_ended_when_terminal CHECK ((status = 'processing') = (ended_at IS NULL)),
  CONSTRAINT payment_posted_when_succeeded CHECK ((status = 'succeeded') = (posted_at IS NOT NULL)),
  CONSTRAINT payment_posted_after_initiated CHECK (posted_at >= initiated_at),
  CONSTRAINT payment_reason_when_failed CHECK
    ((status = 'failed') = (failure_reason IS NOT NULL) AND failure_reason ~ '\S' AND length(failure_reason) <= 500)
  -- Room for the one update of each row on its own page, so that it touches no index.
) WITH (fillfactor = 80);

-- The ids of the payments that are processing: what is left to apply after a restart. A row comes with its payment and goes in the
-- statement that ends it. A partial index on the status would say the same, but makes every ending rewrite all indexes of the
-- payment: measured, half as many payments accepted and ended in a second.
CREATE TABLE duebridge_partner.payment_processing (
  platform_payment_id text COLLATE "C" PRIMARY KEY,
  initiated_at timestamptz NOT NULL,
  -- The replica that hands it to a biller's own system, from before the first call on. Another one takes it over when the lease of
  -- that replica has run out. A cancel is up to the replica that has claimed it.
  claimed_by uuid,
  claimed_at timestamptz,
  -- Not to be posted before: the books answered "later" and named a time.
  not_before timestamptz,
  -- A cancel that another replica asks the claiming one for; taken back unless it is answered within seconds.
  cancel_actor text,
  cancel_reason text
  -- As many rows die here as payments are made: cleaned by number, not by share, so that a look through it stays short.
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

CREATE INDEX payment_processing_cancels ON duebridge_partner.payment_processing (claimed_by) WHERE cancel_actor IS NOT NULL;

-- The replicas that hand payments to a biller's own system. One whose lease has run out is dead: others take over what it claimed.
CREATE TABLE duebridge_partner.replica (
  replica_id uuid PRIMARY KEY,
  lease_until timestamptz NOT NULL
);

-- Statements of batches (decision 26).
CREATE INDEX payment_batch ON duebridge_partner.payment (platform_batch_id);
-- The operator's list, newest first.
CREATE INDEX payment_initiated ON duebridge_partner.payment (initiated_at);
-- Duplicate detection (FR1), and the operator's question about one account.
CREATE INDEX payment_account ON duebridge_partner.payment (account_id, biller_id);

-- RU2, and PL1's counterpart here: terminal rows never change, and what the first request said never does.
CREATE TRIGGER payment_terminal_never_changes BEFORE UPDATE ON duebridge_partner.payment FOR EACH ROW
  WHEN (OLD.status <> 'processing'
    OR OLD.platform_payment_id <> NEW.platform_payment_id OR OLD.payment_id <> NEW.payment_id
    OR OLD.platform_batch_id <> NEW.platform_batch_id OR OLD.biller_id <> NEW.biller_id
    OR OLD.account_id <> NEW.account_id OR OLD.client_id <> NEW.client_id
    OR OLD.amount_in_cents <> NEW.amount_in_cents OR OLD.initiated_at <> NEW.initiated_at)
  EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER payment_kept_for_ever BEFORE DELETE ON duebridge_partner.payment FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER payment_never_emptied BEFORE TRUNCATE ON duebridge_partner.payment EXECUTE FUNCTION duebridge_partner.refuse_change();

-- What happened to a payment beside its ordinary life: mismatched repeats (decision 9), cancels (decision 18).
CREATE TABLE duebridge_partner.payment_audit (
  audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  platform_payment_id text COLLATE "C" NOT NULL,
  actor text NOT NULL,
  event text NOT NULL,
  detail jsonb NOT NULL,
  CONSTRAINT payment_audit_event_known CHECK
    (event IN ('mismatch', 'foreign_client', 'canceled', 'settled', 'contradicted', 'imported'))
);
CREATE INDEX payment_audit_payment ON duebridge_partner.payment_audit (platform_payment_id);
CREATE TRIGGER payment_audit_append_only BEFORE UPDATE OR DELETE ON duebridge_partner.payment_audit
  FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER payment_audit_never_emptied BEFORE TRUNCATE ON duebridge_partner.payment_audit EXECUTE FUNCTION duebridge_partner.refuse_change();

-- Access tokens (OA3), stored as SHA-256 only: whoever reads this table can call nothing.
CREATE TABLE duebridge_partner.access_token (
  token_sha256 bytea PRIMARY KEY,
  client_id text COLLATE "C" NOT NULL,
  scope text NOT NULL,
  issued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz
);
CREATE INDEX access_token_expiry ON duebridge_partner.access_token (expires_at);
CREATE INDEX access_token_client ON duebridge_partner.access_token (client_id);

-- The default books: accounts, transfers between them, and two signed entries per transfer.
-- A partner whose accounts live elsewhere leaves these tables empty.

CREATE TABLE duebridge_partner.account (
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  first_name text,
  last_name text,
  -- What the customer owes: the sum of this account's entries at any moment; negative is a credit.
  amount_due_in_cents bigint NOT NULL DEFAULT 0,
  -- The moment of which the last imported amount was true: payments posted since count on top of it. Null: none was ever named.
  amount_as_of timestamptz,
  due_date date,
  min_amount_in_cents bigint,
  max_amount_in_cents bigint,
  updated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  PRIMARY KEY (account_id, biller_id),
  CONSTRAINT account_status_known CHECK (status IN ('active', 'inactive')),
  CONSTRAINT account_rules_positive CHECK (min_amount_in_cents >= 1 AND max_amount_in_cents >= min_amount_in_cents),
  CONSTRAINT account_maximum_positive CHECK (max_amount_in_cents >= 1),
  CONSTRAINT account_name_whole CHECK ((first_name IS NULL) = (last_name IS NULL))
);

-- One movement. A payment's transfer bears the payment's id, so there can be one only (KT2); an import's bears a colon, which no
-- id of the wire has.
CREATE TABLE duebridge_partner.transfer (
  transfer_id text COLLATE "C" PRIMARY KEY,
  kind text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  CONSTRAINT transfer_kind_known CHECK (kind IN ('payment', 'import')),
  CONSTRAINT transfer_kind_matches_id CHECK ((kind = 'import') = (transfer_id LIKE '%:%'))
);

-- Line 1 is the customer's account, line 2 what stands against it: ':received' for payments, ':billed' for imports. The lines of
-- a transfer sum to zero.
CREATE TABLE duebridge_partner.entry (
  transfer_id text COLLATE "C" NOT NULL,
  line smallint NOT NULL,
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  amount_in_cents bigint NOT NULL,
  PRIMARY KEY (transfer_id, line),
  CONSTRAINT entry_moves_money CHECK (amount_in_cents <> 0),
  CONSTRAINT entry_line_known CHECK ((line = 1 AND account_id NOT LIKE ':%') OR (line = 2 AND account_id IN (':received', ':billed')))
);
CREATE INDEX entry_account ON duebridge_partner.entry (account_id, biller_id) WHERE line = 1;

CREATE TRIGGER transfer_append_only BEFORE UPDATE OR DELETE ON duebridge_partner.transfer FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER transfer_never_emptied BEFORE TRUNCATE ON duebridge_partner.transfer EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER entry_append_only BEFORE UPDATE OR DELETE ON duebridge_partner.entry FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER entry_never_emptied BEFORE TRUNCATE ON duebridge_partner.entry EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER account_never_removed BEFORE DELETE ON duebridge_partner.account FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

-- Which deployment this database belongs to (decision 34): one row. For each secret that the data depends on, a value keyed with it,
-- so that a start with another secret is told instead of failing everything it meets.
CREATE TABLE duebridge_partner.deployment (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  deployment_id uuid NOT NULL,
  secrets jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
