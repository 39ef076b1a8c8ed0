-- The database as all migrations leave it. Read it; it is compared with them by a test.

CREATE TABLE duebridge_partner.access_token (
  token_sha256 bytea NOT NULL,
  client_id text COLLATE "C" NOT NULL,
  scope text NOT NULL,
  issued_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamp with time zone NOT NULL,
  revoked_at timestamp with time zone,
  secret_sha256 bytea,
  CONSTRAINT access_token_pkey PRIMARY KEY (token_sha256)
);

CREATE INDEX access_token_client ON duebridge_partner.access_token USING btree (client_id);

CREATE INDEX access_token_expiry ON duebridge_partner.access_token USING btree (expires_at);

CREATE TABLE duebridge_partner.account (
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  first_name text,
  last_name text,
  amount_due_in_cents bigint NOT NULL DEFAULT 0,
  amount_as_of timestamp with time zone,
  due_date date,
  min_amount_in_cents bigint,
  max_amount_in_cents bigint,
  updated_at timestamp with time zone NOT NULL DEFAULT date_trunc('milliseconds'::text, clock_timestamp()),
  CONSTRAINT account_pkey PRIMARY KEY (account_id, biller_id),
  CONSTRAINT account_maximum_positive CHECK ((max_amount_in_cents >= 1)),
  CONSTRAINT account_name_whole CHECK (((first_name IS NULL) = (last_name IS NULL))),
  CONSTRAINT account_rules_positive CHECK (((min_amount_in_cents >= 1) AND (max_amount_in_cents >= min_amount_in_cents))),
  CONSTRAINT account_status_known CHECK ((status = ANY (ARRAY['active'::text, 'inactive'::text])))
);

CREATE TRIGGER account_never_removed BEFORE DELETE ON duebridge_partner.account FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.audit_seals (
  seal_no bigint NOT NULL,
  from_at timestamp with time zone NOT NULL,
  to_at timestamp with time zone NOT NULL,
  sealed_at timestamp with time zone NOT NULL,
  lines integer NOT NULL,
  digests bytea NOT NULL,
  previous bytea NOT NULL,
  seal bytea NOT NULL,
  CONSTRAINT audit_seals_pkey PRIMARY KEY (seal_no),
  CONSTRAINT audit_seals_check CHECK ((octet_length(digests) = (32 * lines))),
  CONSTRAINT audit_seals_lines_check CHECK ((lines >= 0)),
  CONSTRAINT audit_seals_previous_check CHECK ((octet_length(previous) = 32)),
  CONSTRAINT audit_seals_seal_check CHECK ((octet_length(seal) = 32)),
  CONSTRAINT audit_seals_seal_no_check CHECK ((seal_no > 0)),
  CONSTRAINT audit_seals_stretch CHECK ((from_at <= to_at))
);

CREATE INDEX audit_seals_end ON duebridge_partner.audit_seals USING btree (to_at);

CREATE TRIGGER audit_seals_append_only BEFORE DELETE OR UPDATE ON duebridge_partner.audit_seals FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER audit_seals_never_emptied BEFORE TRUNCATE ON duebridge_partner.audit_seals FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.billed (
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  amount_in_cents bigint NOT NULL,
  billed_at timestamp with time zone NOT NULL DEFAULT date_trunc('milliseconds'::text, clock_timestamp()),
  CONSTRAINT billed_moves_money CHECK ((amount_in_cents <> 0))
);

CREATE INDEX billed_account ON duebridge_partner.billed USING btree (account_id, biller_id);

CREATE TRIGGER billed_append_only BEFORE DELETE OR UPDATE ON duebridge_partner.billed FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER billed_never_emptied BEFORE TRUNCATE ON duebridge_partner.billed FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.credential (
  credential_id text COLLATE "C" NOT NULL,
  client_id text COLLATE "C" NOT NULL,
  secret_sha256 bytea NOT NULL,
  source text COLLATE "C" NOT NULL,
  issued_at timestamp with time zone,
  revoked_at timestamp with time zone,
  expires_at timestamp with time zone,
  CONSTRAINT credential_pkey PRIMARY KEY (credential_id),
  CONSTRAINT credential_is_digest CHECK ((length(secret_sha256) = 32)),
  CONSTRAINT credential_issued_here CHECK (((source = 'issued'::text) = (issued_at IS NOT NULL))),
  CONSTRAINT credential_source_known CHECK ((source = ANY (ARRAY['environment'::text, 'issued'::text])))
);

CREATE TABLE duebridge_partner.deployment (
  one boolean NOT NULL DEFAULT true,
  deployment_id uuid NOT NULL,
  secrets jsonb NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT deployment_pkey PRIMARY KEY (one),
  CONSTRAINT deployment_one_check CHECK (one)
);

CREATE TABLE duebridge_partner.entry (
  transfer_id text COLLATE "C" NOT NULL,
  line smallint NOT NULL,
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  amount_in_cents bigint NOT NULL,
  CONSTRAINT entry_pkey PRIMARY KEY (transfer_id, line),
  CONSTRAINT entry_line_known CHECK (((line = 1) OR ((line = 2) AND (account_id = ANY (ARRAY[':received'::text, ':billed'::text]))))) NOT VALID,
  CONSTRAINT entry_moves_money CHECK ((amount_in_cents <> 0))
);

CREATE INDEX entry_account ON duebridge_partner.entry USING btree (account_id, biller_id) WHERE (line = 1);

CREATE TRIGGER entry_append_only BEFORE DELETE OR UPDATE ON duebridge_partner.entry FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER entry_never_emptied BEFORE TRUNCATE ON duebridge_partner.entry FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.payment (
  platform_payment_id text COLLATE "C" NOT NULL,
  payment_id text COLLATE "C" NOT NULL,
  platform_batch_id text COLLATE "C" NOT NULL,
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  client_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL DEFAULT 'processing'::text,
  amount_in_cents bigint NOT NULL,
  initiated_at timestamp with time zone NOT NULL DEFAULT date_trunc('milliseconds'::text, clock_timestamp()),
  posted_at timestamp with time zone,
  ended_at timestamp with time zone,
  failure_reason text,
  in_ledger boolean NOT NULL DEFAULT false,
  CONSTRAINT payment_pkey PRIMARY KEY (platform_payment_id),
  CONSTRAINT payment_amount_range CHECK (((amount_in_cents >= 1) AND (amount_in_cents <= '99999999999'::bigint))),
  CONSTRAINT payment_ended_when_terminal CHECK (((status = 'processing'::text) = (ended_at IS NULL))),
  CONSTRAINT payment_id_short CHECK (((length(payment_id) >= 1) AND (length(payment_id) <= 128))),
  CONSTRAINT payment_in_ledger_when_succeeded CHECK (((NOT in_ledger) OR (status = 'succeeded'::text))) NOT VALID,
  CONSTRAINT payment_posted_after_initiated CHECK ((posted_at >= initiated_at)),
  CONSTRAINT payment_posted_when_succeeded CHECK (((status = 'succeeded'::text) = (posted_at IS NOT NULL))),
  CONSTRAINT payment_reason_when_failed CHECK ((((status = 'failed'::text) = (failure_reason IS NOT NULL)) AND (failure_reason ~ '\S'::text) AND (length(failure_reason) <= 500))),
  CONSTRAINT payment_status_known CHECK ((status = ANY (ARRAY['processing'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text])))
) WITH (fillfactor=80);

CREATE INDEX payment_account ON duebridge_partner.payment USING btree (account_id, biller_id);

CREATE INDEX payment_batch ON duebridge_partner.payment USING btree (platform_batch_id);

CREATE INDEX payment_failed ON duebridge_partner.payment USING btree (initiated_at) WHERE (failure_reason IS NOT NULL);

CREATE INDEX payment_initiated ON duebridge_partner.payment USING btree (initiated_at);

CREATE TRIGGER payment_kept_for_ever BEFORE DELETE ON duebridge_partner.payment FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER payment_never_emptied BEFORE TRUNCATE ON duebridge_partner.payment FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER payment_terminal_never_changes BEFORE UPDATE ON duebridge_partner.payment FOR EACH ROW WHEN (((old.status <> 'processing'::text) OR (old.platform_payment_id <> new.platform_payment_id) OR (old.payment_id <> new.payment_id) OR (old.platform_batch_id <> new.platform_batch_id) OR (old.biller_id <> new.biller_id) OR (old.account_id <> new.account_id) OR (old.client_id <> new.client_id) OR (old.amount_in_cents <> new.amount_in_cents) OR (old.initiated_at <> new.initiated_at))) EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.payment_audit (
  audit_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  platform_payment_id text COLLATE "C",
  actor text NOT NULL,
  event text NOT NULL,
  detail jsonb NOT NULL,
  CONSTRAINT payment_audit_pkey PRIMARY KEY (audit_id),
  CONSTRAINT payment_audit_event_known CHECK ((event = ANY (ARRAY['mismatch'::text, 'foreign_client'::text, 'canceled'::text, 'settled'::text, 'contradicted'::text, 'imported'::text, 'payments_imported'::text, 'accounts_imported'::text, 'credential_issued'::text, 'credential_revoked'::text, 'tokens_revoked'::text]))) NOT VALID,
  CONSTRAINT payment_audit_of_payment CHECK (((platform_payment_id IS NULL) = (event = ANY (ARRAY['payments_imported'::text, 'accounts_imported'::text, 'credential_issued'::text, 'credential_revoked'::text, 'tokens_revoked'::text])))) NOT VALID
);

CREATE INDEX payment_audit_at ON duebridge_partner.payment_audit USING btree (at, audit_id);

CREATE INDEX payment_audit_payment ON duebridge_partner.payment_audit USING btree (platform_payment_id);

CREATE TRIGGER payment_audit_append_only BEFORE DELETE OR UPDATE ON duebridge_partner.payment_audit FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER payment_audit_never_emptied BEFORE TRUNCATE ON duebridge_partner.payment_audit FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TABLE duebridge_partner.payment_processing (
  platform_payment_id text COLLATE "C" NOT NULL,
  initiated_at timestamp with time zone NOT NULL,
  claimed_by uuid,
  claimed_at timestamp with time zone,
  not_before timestamp with time zone,
  CONSTRAINT payment_processing_pkey PRIMARY KEY (platform_payment_id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);

CREATE TABLE duebridge_partner.replica (
  replica_id uuid NOT NULL,
  lease_until timestamp with time zone NOT NULL,
  CONSTRAINT replica_pkey PRIMARY KEY (replica_id)
);

CREATE TABLE duebridge_partner.transfer (
  transfer_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT date_trunc('milliseconds'::text, clock_timestamp()),
  CONSTRAINT transfer_pkey PRIMARY KEY (transfer_id),
  CONSTRAINT transfer_kind_known CHECK ((kind = ANY (ARRAY['payment'::text, 'import'::text]))),
  CONSTRAINT transfer_kind_matches_id CHECK (((kind = 'import'::text) = (transfer_id ~~ '%:%'::text))),
  CONSTRAINT transfer_of_payment CHECK ((kind = 'payment'::text)) NOT VALID
);

CREATE TRIGGER transfer_append_only BEFORE DELETE OR UPDATE ON duebridge_partner.transfer FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE TRIGGER transfer_never_emptied BEFORE TRUNCATE ON duebridge_partner.transfer FOR EACH STATEMENT EXECUTE FUNCTION duebridge_partner.refuse_change();

CREATE OR REPLACE FUNCTION duebridge_partner.refuse_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION '% of % is not allowed', tg_op, tg_table_name USING ERRCODE = 'restrict_violation';
END;
$function$
;
