-- The database as all migrations leave it. Read it; it is compared with them by a test.

CREATE TABLE duebridge_platform.answers (
  client_id text NOT NULL,
  partner_id text NOT NULL,
  hour timestamp with time zone NOT NULL,
  status smallint NOT NULL,
  code text NOT NULL,
  cause text NOT NULL,
  count integer NOT NULL,
  last_at timestamp with time zone NOT NULL,
  request_id text NOT NULL,
  CONSTRAINT answers_pkey PRIMARY KEY (client_id, hour, status, code, cause),
  CONSTRAINT answers_count_check CHECK ((count > 0))
);

CREATE INDEX answers_of_partner ON duebridge_platform.answers USING btree (partner_id, last_at);

CREATE TABLE duebridge_platform.archives (
  month text NOT NULL,
  until timestamp with time zone NOT NULL,
  until_id text NOT NULL,
  folder text NOT NULL,
  payments bigint NOT NULL,
  payments_sha256 text NOT NULL,
  lines bigint NOT NULL,
  audit_sha256 text NOT NULL,
  archived_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT archives_pkey PRIMARY KEY (month)
);

CREATE TRIGGER archives_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.archives FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.asks (
  subject text NOT NULL,
  act text NOT NULL,
  version text NOT NULL,
  asked_by text NOT NULL,
  reason text NOT NULL,
  asked_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT asks_pkey PRIMARY KEY (subject)
);

CREATE TABLE duebridge_platform.attempts (
  platform_payment_id text NOT NULL,
  at timestamp with time zone NOT NULL,
  part uuid NOT NULL DEFAULT gen_random_uuid(),
  entries jsonb NOT NULL,
  CONSTRAINT attempts_pkey PRIMARY KEY (platform_payment_id, at, part)
);

CREATE TABLE duebridge_platform.audit (
  audit_id uuid NOT NULL DEFAULT gen_random_uuid(),
  at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  actor text NOT NULL,
  event text NOT NULL,
  platform_payment_id text,
  partner_id text,
  detail jsonb NOT NULL DEFAULT '{}'::jsonb
) PARTITION BY RANGE (at);

CREATE INDEX audit_actor ON ONLY duebridge_platform.audit USING btree (actor, at) WHERE ((actor !~~ 'worker-%'::text) AND (actor !~~ 'session %'::text));

CREATE INDEX audit_at ON ONLY duebridge_platform.audit USING btree (at);

CREATE INDEX audit_ends_by_payment_id ON ONLY duebridge_platform.audit USING btree (hashtext((detail ->> 'payment_id'::text))) WHERE ((event = 'payment_ended'::text) AND ((detail ->> 'payment_id'::text) IS NOT NULL));

CREATE INDEX audit_event ON ONLY duebridge_platform.audit USING btree (event, at) WHERE (event <> ALL (ARRAY['payment_created'::text, 'payment_authorized'::text, 'payment_dispatching'::text, 'payment_accepted'::text, 'payment_ended'::text, 'funds_captured'::text, 'funds_released'::text]));

CREATE INDEX audit_partner ON ONLY duebridge_platform.audit USING btree (partner_id, at) WHERE (platform_payment_id IS NULL);

CREATE INDEX audit_time_of_payment ON ONLY duebridge_platform.audit USING btree ("left"(platform_payment_id, 10)) WHERE (platform_payment_id IS NOT NULL);

CREATE INDEX audit_unsuccessful ON ONLY duebridge_platform.audit USING btree (((detail ->> 'status'::text)), platform_payment_id) WHERE ((event = 'payment_ended'::text) AND ((detail ->> 'status'::text) = ANY (ARRAY['failed'::text, 'canceled'::text])));

CREATE TRIGGER audit_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.audit FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.audit_seals (
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

CREATE INDEX audit_seals_end ON duebridge_platform.audit_seals USING btree (to_at);

CREATE TRIGGER audit_seals_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.audit_seals FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.bank_files (
  file_id text NOT NULL,
  way text NOT NULL,
  made_at timestamp with time zone NOT NULL DEFAULT now(),
  made_by text NOT NULL,
  transfers integer NOT NULL,
  amount_in_cents bigint NOT NULL,
  sha256 text NOT NULL,
  sealed text NOT NULL,
  CONSTRAINT bank_files_pkey PRIMARY KEY (file_id)
);

CREATE TABLE duebridge_platform.bank_transfers (
  remittance_id text NOT NULL,
  way text NOT NULL,
  amount_in_cents bigint NOT NULL,
  sealed text,
  file_id text,
  result text,
  reference text,
  CONSTRAINT bank_transfers_pkey PRIMARY KEY (remittance_id),
  CONSTRAINT bank_transfers_file_id_fkey FOREIGN KEY (file_id) REFERENCES duebridge_platform.bank_files(file_id),
  CONSTRAINT bank_transfers_remittance_id_fkey FOREIGN KEY (remittance_id) REFERENCES duebridge_platform.remittances(remittance_id),
  CONSTRAINT bank_transfers_amount_in_cents_check CHECK ((amount_in_cents > 0)),
  CONSTRAINT bank_transfers_moved CHECK (false) NOT VALID,
  CONSTRAINT bank_transfers_result_check CHECK ((result = ANY (ARRAY['paid'::text, 'returned'::text]))),
  CONSTRAINT bank_transfers_way_check CHECK ((way = ANY (ARRAY['pain001'::text, 'nacha'::text, 'by_hand'::text])))
);

CREATE INDEX bank_transfers_waiting ON duebridge_platform.bank_transfers USING btree (way, remittance_id) WHERE ((file_id IS NULL) AND (result IS NULL));

CREATE TABLE duebridge_platform.batches (
  platform_batch_id text NOT NULL,
  partner_id text NOT NULL,
  opened_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  cutoff_at timestamp with time zone NOT NULL,
  closed_at timestamp with time zone,
  statement jsonb,
  CONSTRAINT batches_window UNIQUE (partner_id, cutoff_at),
  CONSTRAINT batches_pkey PRIMARY KEY (platform_batch_id),
  CONSTRAINT batches_partner_id_fkey FOREIGN KEY (partner_id) REFERENCES duebridge_platform.partners(partner_id),
  CONSTRAINT batches_closed CHECK (((closed_at IS NULL) = (statement IS NULL))),
  CONSTRAINT batches_platform_batch_id_check CHECK ((platform_batch_id ~ '^[A-Za-z0-9._-]{1,64}$'::text))
);

CREATE INDEX batches_open ON duebridge_platform.batches USING btree (cutoff_at) WHERE (closed_at IS NULL);

CREATE TRIGGER batches_guard BEFORE UPDATE ON duebridge_platform.batches FOR EACH ROW EXECUTE FUNCTION duebridge_platform.batches_guard();

CREATE TRIGGER batches_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.batches FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.book_progress (
  one boolean NOT NULL DEFAULT true,
  began_at timestamp with time zone NOT NULL DEFAULT now(),
  read_to text NOT NULL DEFAULT ''::text,
  summed_to date NOT NULL DEFAULT '-infinity'::date,
  CONSTRAINT book_progress_pkey PRIMARY KEY (one),
  CONSTRAINT book_progress_one_check CHECK (one)
);

CREATE TABLE duebridge_platform.book_sums (
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  account text NOT NULL,
  cents bigint NOT NULL,
  CONSTRAINT book_sums_pkey PRIMARY KEY (partner_id, biller_id, account)
);

CREATE TABLE duebridge_platform.cases (
  case_id text NOT NULL,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  funding_method text NOT NULL,
  reason_code text NOT NULL,
  amount_in_cents bigint NOT NULL,
  state text NOT NULL,
  disposition text,
  deadline timestamp with time zone,
  note text NOT NULL,
  opened_by text NOT NULL,
  opened_at timestamp with time zone NOT NULL DEFAULT now(),
  ended_by text,
  ended_at timestamp with time zone,
  outcome text,
  CONSTRAINT cases_pkey PRIMARY KEY (platform_payment_id, case_id),
  CONSTRAINT cases_amount_in_cents_check CHECK ((amount_in_cents >= 0)),
  CONSTRAINT cases_disposition_check CHECK ((disposition = ANY (ARRAY['answered'::text, 'won'::text, 'recovered'::text, 'charged_to_biller'::text, 'written_off'::text]))),
  CONSTRAINT cases_ended CHECK ((((state = 'ended'::text) = (disposition IS NOT NULL)) AND ((state = 'ended'::text) = (ended_at IS NOT NULL)))),
  CONSTRAINT cases_reason_code_check CHECK ((reason_code = ANY (ARRAY['disputed'::text, 'debit_returned'::text, 'uncollected'::text, 'refunded_elsewhere'::text, 'wrong_account'::text, 'still_due'::text, 'charged_twice'::text, 'amount_differs'::text, 'not_authorized'::text, 'other'::text]))),
  CONSTRAINT cases_state_check CHECK ((state = ANY (ARRAY['open'::text, 'lost'::text, 'ended'::text])))
);

CREATE INDEX cases_by_id ON duebridge_platform.cases USING btree (case_id);

CREATE INDEX cases_newest ON duebridge_platform.cases USING btree (opened_at);

CREATE INDEX cases_open ON duebridge_platform.cases USING btree (opened_at) WHERE (state <> 'ended'::text);

CREATE TRIGGER cases_guard BEFORE UPDATE ON duebridge_platform.cases FOR EACH ROW EXECUTE FUNCTION duebridge_platform.cases_guard();

CREATE TRIGGER cases_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.cases FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.client_keys (
  key_id text NOT NULL,
  client_id text NOT NULL,
  slot smallint NOT NULL,
  prefix text NOT NULL DEFAULT ''::text,
  digest bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  last_used_at timestamp with time zone,
  revoked_at timestamp with time zone,
  expires_at timestamp with time zone,
  CONSTRAINT client_keys_digest_key UNIQUE (digest),
  CONSTRAINT client_keys_pkey PRIMARY KEY (key_id),
  CONSTRAINT client_keys_client_id_fkey FOREIGN KEY (client_id) REFERENCES duebridge_platform.clients(client_id),
  CONSTRAINT client_keys_digest_check CHECK ((octet_length(digest) = 32)),
  CONSTRAINT client_keys_slot_check CHECK ((slot = ANY (ARRAY[1, 2])))
);

CREATE INDEX client_keys_by_client ON duebridge_platform.client_keys USING btree (client_id, created_at);

CREATE UNIQUE INDEX client_keys_two_active ON duebridge_platform.client_keys USING btree (client_id, slot) WHERE (revoked_at IS NULL);

CREATE TABLE duebridge_platform.clients (
  client_id text NOT NULL,
  partner_id text NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT clients_pkey PRIMARY KEY (client_id),
  CONSTRAINT clients_partner_id_fkey FOREIGN KEY (partner_id) REFERENCES duebridge_platform.partners(partner_id)
);

CREATE INDEX clients_by_partner ON duebridge_platform.clients USING btree (partner_id);

CREATE TABLE duebridge_platform.comparisons (
  platform_batch_id text NOT NULL,
  compared_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  comparison_id uuid NOT NULL DEFAULT gen_random_uuid(),
  actor text NOT NULL,
  method text NOT NULL,
  compared integer NOT NULL,
  differences integer NOT NULL,
  partner_statement jsonb,
  CONSTRAINT comparisons_pkey PRIMARY KEY (platform_batch_id, compared_at, comparison_id),
  CONSTRAINT comparisons_method_check CHECK ((method = ANY (ARRAY['statement'::text, 'payments'::text, 'csv'::text])))
);

CREATE TRIGGER comparisons_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.comparisons FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.conformance_reports (
  partner_id text NOT NULL,
  report jsonb NOT NULL,
  uploaded_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT conformance_reports_pkey PRIMARY KEY (partner_id)
);

CREATE TABLE duebridge_platform.customers (
  customer_id uuid NOT NULL,
  partner_id text NOT NULL,
  sealed text,
  email_digest bytea,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  erase_after timestamp with time zone NOT NULL,
  erased_at timestamp with time zone,
  CONSTRAINT customers_pkey PRIMARY KEY (customer_id),
  CONSTRAINT customers_check CHECK (((sealed IS NULL) = (erased_at IS NOT NULL))),
  CONSTRAINT customers_email_digest_check CHECK ((octet_length(email_digest) = 32))
);

CREATE INDEX customers_by_email ON duebridge_platform.customers USING btree (email_digest) WHERE (email_digest IS NOT NULL);

CREATE INDEX customers_erase_after ON duebridge_platform.customers USING btree (erase_after);

CREATE TABLE duebridge_platform.deductions (
  deduction_id text NOT NULL,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  kind text NOT NULL,
  amount_in_cents bigint NOT NULL,
  reason text NOT NULL,
  made_at timestamp with time zone NOT NULL DEFAULT now(),
  remittance_id text,
  CONSTRAINT deductions_pkey PRIMARY KEY (deduction_id),
  CONSTRAINT deductions_amount_in_cents_check CHECK (((amount_in_cents > 0) OR ((kind = 'correction'::text) AND (amount_in_cents <> 0)))) NOT VALID,
  CONSTRAINT deductions_kind_check CHECK ((kind = ANY (ARRAY['refund'::text, 'return'::text, 'correction'::text])))
);

CREATE INDEX deductions_of ON duebridge_platform.deductions USING btree (remittance_id) WHERE (remittance_id IS NOT NULL);

CREATE INDEX deductions_open ON duebridge_platform.deductions USING btree (partner_id, biller_id) WHERE (remittance_id IS NULL);

CREATE TABLE duebridge_platform.deployment (
  one boolean NOT NULL DEFAULT true,
  deployment_id uuid NOT NULL,
  secrets jsonb NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT deployment_pkey PRIMARY KEY (one),
  CONSTRAINT deployment_one_check CHECK (one)
);

CREATE TABLE duebridge_platform.differences (
  difference_id uuid NOT NULL,
  platform_batch_id text NOT NULL,
  partner_id text NOT NULL,
  platform_payment_id text NOT NULL,
  kind text NOT NULL,
  here text,
  there text,
  amount_in_cents bigint,
  found_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  seen_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  resolved_at timestamp with time zone,
  resolved_by text,
  resolution text,
  CONSTRAINT differences_pkey PRIMARY KEY (difference_id),
  CONSTRAINT differences_kind_check CHECK ((kind = ANY (ARRAY['missing_here'::text, 'missing_there'::text, 'amount'::text, 'status'::text, 'time'::text]))),
  CONSTRAINT differences_resolved CHECK ((((resolved_at IS NULL) = (resolved_by IS NULL)) AND ((resolved_at IS NULL) = (resolution IS NULL))))
);

CREATE INDEX differences_by_partner ON duebridge_platform.differences USING btree (partner_id, difference_id);

CREATE UNIQUE INDEX differences_open ON duebridge_platform.differences USING btree (platform_batch_id, platform_payment_id, kind) WHERE (resolved_at IS NULL);

CREATE TABLE duebridge_platform.ended_counts (
  hour timestamp with time zone NOT NULL,
  partner_id text NOT NULL,
  status text NOT NULL,
  class smallint NOT NULL,
  count bigint NOT NULL,
  CONSTRAINT ended_counts_pkey PRIMARY KEY (hour, partner_id, status, class)
);

CREATE TABLE duebridge_platform.ended_counts_progress (
  one boolean NOT NULL DEFAULT true,
  read_to timestamp with time zone NOT NULL,
  CONSTRAINT ended_counts_progress_pkey PRIMARY KEY (one),
  CONSTRAINT ended_counts_progress_one_check CHECK (one)
);

CREATE TABLE duebridge_platform.flow_payments (
  platform_payment_id text NOT NULL,
  flow_id bytea NOT NULL,
  token_hash bytea NOT NULL,
  session_id uuid,
  customer_id uuid NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT flow_payments_pkey PRIMARY KEY (platform_payment_id, flow_id)
);

CREATE INDEX flow_payments_by_customer ON duebridge_platform.flow_payments USING btree (customer_id);

CREATE INDEX flow_payments_by_flow ON duebridge_platform.flow_payments USING btree (flow_id);

CREATE TABLE duebridge_platform.flows (
  flow_id bytea NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  account_id text NOT NULL,
  latest_payment_id text,
  made integer NOT NULL DEFAULT 0,
  minted_at timestamp with time zone,
  CONSTRAINT flows_pkey PRIMARY KEY (flow_id),
  CONSTRAINT flows_flow_id_check CHECK ((octet_length(flow_id) = 32))
);

CREATE INDEX flows_by_account ON duebridge_platform.flows USING btree (account_id, biller_id, partner_id, latest_payment_id) WHERE (latest_payment_id IS NOT NULL);

CREATE INDEX flows_only_seen ON duebridge_platform.flows USING btree (minted_at) WHERE (latest_payment_id IS NULL);

CREATE TABLE duebridge_platform.funding_events (
  adapter text NOT NULL,
  event_id text NOT NULL,
  kind text NOT NULL,
  platform_payment_id text NOT NULL,
  received_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT funding_events_pkey PRIMARY KEY (adapter, event_id),
  CONSTRAINT funding_events_event_id_check CHECK (((length(event_id) >= 1) AND (length(event_id) <= 255)))
);

CREATE INDEX funding_events_by_time ON duebridge_platform.funding_events USING brin (received_at);

CREATE TABLE duebridge_platform.funds (
  platform_payment_id text NOT NULL,
  adapter text NOT NULL,
  instrument text,
  reference text,
  state text NOT NULL DEFAULT 'new'::text,
  action text,
  act_by timestamp with time zone,
  asked_at timestamp with time zone,
  news_at timestamp with time zone,
  expires_at timestamp with time zone,
  reason text,
  created_at timestamp with time zone,
  swept_at timestamp with time zone,
  customer text,
  sweep_at timestamp with time zone,
  CONSTRAINT funds_pkey PRIMARY KEY (platform_payment_id),
  CONSTRAINT funds_action CHECK (((action IS NULL) OR (state = 'acting'::text))),
  CONSTRAINT funds_instrument_check CHECK (((length(instrument) >= 1) AND (length(instrument) <= 255))),
  CONSTRAINT funds_reason_check CHECK ((length(reason) <= 500)),
  CONSTRAINT funds_reference CHECK (((reference IS NOT NULL) OR (state = ANY (ARRAY['new'::text, 'declined'::text, 'releasing'::text, 'released'::text])))),
  CONSTRAINT funds_reference_check CHECK (((length(reference) >= 1) AND (length(reference) <= 255))),
  CONSTRAINT funds_state_check CHECK ((state = ANY (ARRAY['new'::text, 'acting'::text, 'authorized'::text, 'declined'::text, 'captured'::text, 'releasing'::text, 'released'::text, 'refunded'::text, 'uncollected'::text, 'borne'::text]))) NOT VALID
);

CREATE INDEX funds_by_processor_reference ON duebridge_platform.funds USING btree (reference) WHERE (reference <> platform_payment_id);

CREATE INDEX funds_due ON duebridge_platform.funds USING btree (sweep_at, platform_payment_id) WHERE (sweep_at IS NOT NULL);

CREATE TRIGGER funds_guard BEFORE UPDATE ON duebridge_platform.funds FOR EACH ROW EXECUTE FUNCTION duebridge_platform.funds_guard();

CREATE TRIGGER funds_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.funds FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.logos (
  logo text NOT NULL,
  image bytea NOT NULL,
  CONSTRAINT logos_pkey PRIMARY KEY (logo)
);

CREATE TABLE duebridge_platform.mail_progress (
  one boolean NOT NULL DEFAULT true,
  read_to timestamp with time zone NOT NULL,
  CONSTRAINT mail_progress_pkey PRIMARY KEY (one),
  CONSTRAINT mail_progress_one_check CHECK (one)
);

CREATE TABLE duebridge_platform.mails (
  platform_payment_id text NOT NULL,
  kind text NOT NULL,
  queued_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  due_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  tries smallint NOT NULL DEFAULT 0,
  sent_at timestamp with time zone,
  given_up_at timestamp with time zone,
  CONSTRAINT mails_pkey PRIMARY KEY (platform_payment_id),
  CONSTRAINT mails_kind_check CHECK ((kind = ANY (ARRAY['receipt'::text, 'failed'::text])))
);

CREATE INDEX mails_due ON duebridge_platform.mails USING btree (due_at) WHERE ((sent_at IS NULL) AND (given_up_at IS NULL));

CREATE TABLE duebridge_platform.operator_keys (
  key_id text NOT NULL,
  operator_id text NOT NULL,
  slot smallint NOT NULL,
  digest bytea NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  last_used_at timestamp with time zone,
  revoked_at timestamp with time zone,
  expires_at timestamp with time zone,
  CONSTRAINT operator_keys_digest_key UNIQUE (digest),
  CONSTRAINT operator_keys_pkey PRIMARY KEY (key_id),
  CONSTRAINT operator_keys_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES duebridge_platform.operators(operator_id),
  CONSTRAINT operator_keys_digest_check CHECK ((octet_length(digest) = 32)),
  CONSTRAINT operator_keys_slot_check CHECK ((slot = ANY (ARRAY[1, 2])))
);

CREATE INDEX operator_keys_by_operator ON duebridge_platform.operator_keys USING btree (operator_id, created_at);

CREATE UNIQUE INDEX operator_keys_two_active ON duebridge_platform.operator_keys USING btree (operator_id, slot) WHERE (revoked_at IS NULL);

CREATE TABLE duebridge_platform.operator_sessions (
  session_hash bytea NOT NULL,
  operator_id text,
  key_id text,
  csrf text NOT NULL,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT operator_sessions_pkey PRIMARY KEY (session_hash),
  CONSTRAINT operator_sessions_key_id_fkey FOREIGN KEY (key_id) REFERENCES duebridge_platform.operator_keys(key_id),
  CONSTRAINT operator_sessions_operator_id_fkey FOREIGN KEY (operator_id) REFERENCES duebridge_platform.operators(operator_id),
  CONSTRAINT operator_sessions_session_hash_check CHECK ((octet_length(session_hash) = 32))
);

CREATE INDEX operator_sessions_by_expiry ON duebridge_platform.operator_sessions USING btree (expires_at);

CREATE TABLE duebridge_platform.operators (
  operator_id text NOT NULL,
  name text NOT NULL,
  role text NOT NULL,
  oidc_subject text,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  disabled_at timestamp with time zone,
  partner_id text,
  CONSTRAINT operators_oidc_subject_key UNIQUE (oidc_subject),
  CONSTRAINT operators_pkey PRIMARY KEY (operator_id),
  CONSTRAINT operators_partner_id_fkey FOREIGN KEY (partner_id) REFERENCES duebridge_platform.partners(partner_id),
  CONSTRAINT operators_of_partner CHECK (((role = 'partner'::text) = (partner_id IS NOT NULL))),
  CONSTRAINT operators_operator_id_check CHECK ((operator_id ~ '^[a-z0-9][a-z0-9._-]{0,62}$'::text)),
  CONSTRAINT operators_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'operator'::text, 'admin'::text, 'partner'::text])))
);

CREATE TABLE duebridge_platform.partners (
  partner_id text NOT NULL,
  name text NOT NULL,
  kind text NOT NULL,
  biller_id text,
  biller_names jsonb NOT NULL DEFAULT '{}'::jsonb,
  support_contact text,
  base_url text NOT NULL,
  origins text[] NOT NULL DEFAULT '{}'::text[],
  paths jsonb NOT NULL DEFAULT '{}'::jsonb,
  budget jsonb NOT NULL DEFAULT '{}'::jsonb,
  refusals text[] NOT NULL DEFAULT '{}'::text[],
  batch_time_zone text NOT NULL DEFAULT 'UTC'::text,
  batch_cutoff text NOT NULL DEFAULT '00:00'::text,
  auth_method text NOT NULL,
  auth_public jsonb NOT NULL,
  auth_sealed text NOT NULL,
  paused boolean NOT NULL DEFAULT false,
  pause_reason text,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  mode text NOT NULL DEFAULT 'live'::text,
  connection_public jsonb,
  connection_sealed text,
  colour text,
  logo text,
  biller_logos jsonb NOT NULL DEFAULT '{}'::jsonb,
  CONSTRAINT partners_pkey PRIMARY KEY (partner_id),
  CONSTRAINT partners_auth_method_check CHECK ((auth_method = ANY (ARRAY['oauth'::text, 'key'::text]))),
  CONSTRAINT partners_batch_cutoff_check CHECK ((batch_cutoff ~ '^([01][0-9]|2[0-3]):[0-5][0-9]$'::text)),
  CONSTRAINT partners_biller CHECK (((kind = 'biller'::text) = (biller_id IS NOT NULL))),
  CONSTRAINT partners_kind_check CHECK ((kind = ANY (ARRAY['biller'::text, 'aggregator'::text]))),
  CONSTRAINT partners_mode_check CHECK ((mode = ANY (ARRAY['test'::text, 'live'::text]))),
  CONSTRAINT partners_partner_id_check CHECK ((partner_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text))
);

CREATE TABLE duebridge_platform.payments (
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  account_id text NOT NULL,
  platform_batch_id text NOT NULL,
  amount_in_cents bigint NOT NULL,
  session_id text,
  funding_method text NOT NULL,
  status text NOT NULL DEFAULT 'processing'::text,
  stage text NOT NULL DEFAULT 'created'::text,
  review_reason text,
  rejection_message text,
  slot smallint DEFAULT '-1'::integer,
  payment_id text,
  former_payment_ids text[],
  failure_reason text,
  ended_by text,
  initiated_at timestamp with time zone,
  posted_at timestamp with time zone,
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  accepted_at timestamp with time zone,
  ended_at timestamp with time zone,
  settled_at timestamp with time zone,
  maybe_sent boolean,
  CONSTRAINT payments_pkey PRIMARY KEY (platform_payment_id),
  CONSTRAINT payments_partner_id_fkey FOREIGN KEY (partner_id) REFERENCES duebridge_platform.partners(partner_id),
  CONSTRAINT payments_amount_in_cents_check CHECK (((amount_in_cents >= 1) AND (amount_in_cents <= '99999999999'::bigint))),
  CONSTRAINT payments_ended CHECK ((((status = 'processing'::text) = (stage <> 'ended'::text)) AND ((stage = 'ended'::text) = (ended_at IS NOT NULL)))),
  CONSTRAINT payments_ended_by_check CHECK ((ended_by = ANY (ARRAY['partner'::text, 'refusal'::text, 'funding'::text, 'operator'::text]))),
  CONSTRAINT payments_failed CHECK (((status = 'failed'::text) = (failure_reason IS NOT NULL))),
  CONSTRAINT payments_failure_reason_check CHECK ((length(failure_reason) <= 500)),
  CONSTRAINT payments_platform_payment_id_check CHECK (((octet_length(platform_payment_id) <= 64) AND (platform_payment_id ~ '^[A-Za-z0-9._-]+$'::text))),
  CONSTRAINT payments_posted CHECK (((posted_at IS NULL) OR (status = 'succeeded'::text))),
  CONSTRAINT payments_rejection_message_check CHECK ((length(rejection_message) <= 500)),
  CONSTRAINT payments_review CHECK (((stage = 'review'::text) = (review_reason IS NOT NULL))),
  CONSTRAINT payments_settled CHECK (((settled_at IS NULL) OR (status <> 'processing'::text))),
  CONSTRAINT payments_slot CHECK (((stage = 'review'::text) = (slot IS NULL))),
  CONSTRAINT payments_slot_check CHECK (((slot >= '-2'::integer) AND (slot <= 1023))),
  CONSTRAINT payments_stage_check CHECK ((stage = ANY (ARRAY['created'::text, 'authorized'::text, 'dispatching'::text, 'accepted'::text, 'review'::text, 'ended'::text]))),
  CONSTRAINT payments_status_check CHECK ((status = ANY (ARRAY['processing'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text]))),
  CONSTRAINT payments_succeeded CHECK (((status <> 'succeeded'::text) OR ((posted_at IS NOT NULL) AND (payment_id IS NOT NULL))))
) PARTITION BY RANGE (platform_payment_id);

CREATE INDEX payments_account ON ONLY duebridge_platform.payments USING btree (account_id);

CREATE INDEX payments_amount ON ONLY duebridge_platform.payments USING btree (amount_in_cents);

CREATE INDEX payments_batch ON ONLY duebridge_platform.payments USING btree (platform_batch_id);

CREATE INDEX payments_batch_open ON ONLY duebridge_platform.payments USING btree (platform_batch_id) WHERE ((settled_at IS NULL) AND (platform_batch_id <> ''::text));

CREATE INDEX payments_by_partner ON ONLY duebridge_platform.payments USING btree (partner_id, "left"(platform_payment_id, 8));

CREATE INDEX payments_by_slot ON ONLY duebridge_platform.payments USING btree (slot) WHERE (settled_at IS NULL);

CREATE TRIGGER payments_insert_guard BEFORE INSERT ON duebridge_platform.payments FOR EACH ROW EXECUTE FUNCTION duebridge_platform.payments_insert_guard();

CREATE TRIGGER payments_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.payments FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TRIGGER payments_update_guard BEFORE UPDATE ON duebridge_platform.payments FOR EACH ROW EXECUTE FUNCTION duebridge_platform.payments_update_guard();

CREATE TABLE duebridge_platform.payouts (
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  way text NOT NULL,
  sealed text NOT NULL,
  minimum_in_cents bigint NOT NULL DEFAULT 1,
  held boolean NOT NULL DEFAULT false,
  updated_at timestamp with time zone NOT NULL DEFAULT now(),
  bears_refunds boolean NOT NULL DEFAULT true,
  CONSTRAINT payouts_pkey PRIMARY KEY (partner_id, biller_id),
  CONSTRAINT payouts_partner_id_fkey FOREIGN KEY (partner_id) REFERENCES duebridge_platform.partners(partner_id),
  CONSTRAINT payouts_minimum_in_cents_check CHECK ((minimum_in_cents > 0)),
  CONSTRAINT payouts_way_check CHECK ((way = ANY (ARRAY['pain001'::text, 'nacha'::text, 'by_hand'::text, 'stripe'::text])))
);

CREATE TABLE duebridge_platform.refunds (
  refund_id text NOT NULL,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  funding_method text NOT NULL,
  amount_in_cents bigint NOT NULL,
  reason_code text NOT NULL,
  reason text NOT NULL,
  borne_by text NOT NULL,
  state text NOT NULL,
  asked_by text NOT NULL,
  approved_by text,
  note text,
  made_at timestamp with time zone NOT NULL DEFAULT now(),
  ended_at timestamp with time zone,
  CONSTRAINT refunds_pkey PRIMARY KEY (refund_id),
  CONSTRAINT refunds_amount_in_cents_check CHECK ((amount_in_cents > 0)),
  CONSTRAINT refunds_borne_by_check CHECK ((borne_by = ANY (ARRAY['biller'::text, 'platform'::text]))),
  CONSTRAINT refunds_state_check CHECK ((state = ANY (ARRAY['asked'::text, 'sending'::text, 'done'::text, 'refused'::text])))
);

CREATE INDEX refunds_newest ON duebridge_platform.refunds USING btree (made_at);

CREATE INDEX refunds_of_payment ON duebridge_platform.refunds USING btree (platform_payment_id);

CREATE INDEX refunds_open ON duebridge_platform.refunds USING btree (refund_id) WHERE (state = ANY (ARRAY['asked'::text, 'sending'::text]));

CREATE TRIGGER refunds_guard BEFORE UPDATE ON duebridge_platform.refunds FOR EACH ROW EXECUTE FUNCTION duebridge_platform.refunds_guard();

CREATE TRIGGER refunds_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.refunds FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.remittances (
  remittance_id text NOT NULL,
  platform_batch_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  payments integer NOT NULL,
  gross_in_cents bigint NOT NULL,
  deducted_in_cents bigint NOT NULL,
  carried_in_cents bigint NOT NULL,
  net_in_cents bigint NOT NULL,
  sha256 text NOT NULL,
  due_on date NOT NULL,
  state text NOT NULL,
  carried_to text,
  tries integer NOT NULL DEFAULT 0,
  reference text,
  reason text,
  made_at timestamp with time zone NOT NULL DEFAULT now(),
  sent_at timestamp with time zone,
  ended_at timestamp with time zone,
  way text,
  file_id text,
  CONSTRAINT remittances_once UNIQUE (platform_batch_id, biller_id),
  CONSTRAINT remittances_pkey PRIMARY KEY (remittance_id),
  CONSTRAINT remittances_file_id_fkey FOREIGN KEY (file_id) REFERENCES duebridge_platform.bank_files(file_id),
  CONSTRAINT remittances_carried CHECK (((carried_to IS NULL) OR (state = ANY (ARRAY['carried'::text, 'returned'::text])))),
  CONSTRAINT remittances_net CHECK ((net_in_cents = ((gross_in_cents - deducted_in_cents) + carried_in_cents))),
  CONSTRAINT remittances_positive CHECK (((state = 'carried'::text) OR (net_in_cents > 0))),
  CONSTRAINT remittances_state_check CHECK ((state = ANY (ARRAY['due'::text, 'carried'::text, 'sending'::text, 'sent'::text, 'paid'::text, 'returned'::text])))
);

CREATE INDEX remittances_in_files ON duebridge_platform.remittances USING btree (file_id) WHERE (file_id IS NOT NULL);

CREATE INDEX remittances_newest ON duebridge_platform.remittances USING btree (made_at);

CREATE INDEX remittances_open ON duebridge_platform.remittances USING btree (partner_id, biller_id) WHERE ((state = ANY (ARRAY['due'::text, 'sending'::text, 'sent'::text])) OR ((state = ANY (ARRAY['carried'::text, 'returned'::text])) AND (carried_to IS NULL)));

CREATE INDEX remittances_waiting ON duebridge_platform.remittances USING btree (way, remittance_id) WHERE ((state = 'sent'::text) AND (file_id IS NULL));

CREATE TRIGGER remittances_guard BEFORE UPDATE ON duebridge_platform.remittances FOR EACH ROW EXECUTE FUNCTION duebridge_platform.remittances_guard();

CREATE TRIGGER remittances_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.remittances FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.remitted_batches (
  platform_batch_id text NOT NULL,
  made_at timestamp with time zone NOT NULL DEFAULT now(),
  CONSTRAINT remitted_batches_pkey PRIMARY KEY (platform_batch_id)
);

CREATE TABLE duebridge_platform.sandbox_funds (
  platform_payment_id text NOT NULL,
  act text NOT NULL,
  funding_method text NOT NULL,
  amount_in_cents bigint NOT NULL,
  at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  phase text NOT NULL GENERATED ALWAYS AS (
CASE
    WHEN (act = ANY (ARRAY['authorize'::text, 'decline'::text])) THEN 'hold'::text
    WHEN (act = 'refund'::text) THEN 'undo'::text
    ELSE 'settle'::text
END) STORED,
  CONSTRAINT sandbox_funds_pkey PRIMARY KEY (platform_payment_id, phase),
  CONSTRAINT sandbox_funds_act_check CHECK ((act = ANY (ARRAY['authorize'::text, 'decline'::text, 'capture'::text, 'void'::text, 'refund'::text]))),
  CONSTRAINT sandbox_funds_amount_in_cents_check CHECK ((amount_in_cents > 0))
);

CREATE TRIGGER sandbox_funds_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.sandbox_funds FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.saved_customers (
  flow_id bytea NOT NULL,
  adapter text NOT NULL,
  reference text NOT NULL,
  email_digest bytea,
  used_at timestamp with time zone NOT NULL DEFAULT now(),
  forgotten_at timestamp with time zone,
  CONSTRAINT saved_customers_pkey PRIMARY KEY (flow_id, adapter)
);

CREATE INDEX saved_customers_email ON duebridge_platform.saved_customers USING btree (email_digest);

CREATE INDEX saved_customers_forgotten ON duebridge_platform.saved_customers USING btree (forgotten_at) WHERE (forgotten_at IS NOT NULL);

CREATE TABLE duebridge_platform.sessions (
  session_hash bytea NOT NULL,
  session_id uuid NOT NULL,
  token_hash bytea NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  biller_id text,
  account_id text,
  flow_id bytea,
  balance jsonb,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT sessions_pkey PRIMARY KEY (session_hash),
  CONSTRAINT sessions_check CHECK (((flow_id IS NULL) = (account_id IS NULL))),
  CONSTRAINT sessions_session_hash_check CHECK ((octet_length(session_hash) = 32))
);

CREATE INDEX sessions_by_expiry ON duebridge_platform.sessions USING btree (expires_at);

CREATE INDEX sessions_by_id ON duebridge_platform.sessions USING btree (session_id);

CREATE TABLE duebridge_platform.slots (
  slot smallint NOT NULL,
  worker_id text,
  CONSTRAINT slots_pkey PRIMARY KEY (slot),
  CONSTRAINT slots_slot_check CHECK (((slot >= 0) AND (slot <= 1023)))
) WITH (fillfactor=25);

CREATE TABLE duebridge_platform.tokens (
  token_hash bytea NOT NULL,
  client_id text NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  biller_id text,
  account_id text,
  flow_id bytea,
  balance jsonb,
  sessions smallint NOT NULL DEFAULT 0,
  created_at timestamp with time zone NOT NULL DEFAULT now(),
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT tokens_pkey PRIMARY KEY (token_hash),
  CONSTRAINT tokens_check CHECK (((biller_id IS NULL) = (account_id IS NULL))),
  CONSTRAINT tokens_check1 CHECK (((flow_id IS NULL) = (account_id IS NULL))),
  CONSTRAINT tokens_flow_id_check CHECK ((octet_length(flow_id) = 32)),
  CONSTRAINT tokens_token_hash_check CHECK ((octet_length(token_hash) = 32))
);

CREATE INDEX tokens_by_expiry ON duebridge_platform.tokens USING btree (expires_at);

CREATE TABLE duebridge_platform.transfers (
  amount_in_cents bigint NOT NULL,
  day date NOT NULL,
  id text NOT NULL,
  act text NOT NULL,
  debit text NOT NULL,
  credit text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  funding_method text,
  CONSTRAINT transfers_pkey PRIMARY KEY (id, act),
  CONSTRAINT transfers_accounts CHECK (((debit <> credit) AND (debit = ANY (ARRAY['taken'::text, 'elsewhere'::text, 'uncollected'::text, 'borne'::text, 'under_way'::text, 'owed'::text, 'remitting'::text, 'paid'::text, 'refunding'::text, 'refunded'::text, 'returned'::text, 'disputed'::text])) AND (credit = ANY (ARRAY['taken'::text, 'elsewhere'::text, 'uncollected'::text, 'borne'::text, 'under_way'::text, 'owed'::text, 'remitting'::text, 'paid'::text, 'refunding'::text, 'refunded'::text, 'returned'::text, 'disputed'::text])))),
  CONSTRAINT transfers_amount_in_cents_check CHECK ((amount_in_cents > 0))
);

CREATE INDEX transfers_by_day ON duebridge_platform.transfers USING brin (day);

CREATE TRIGGER transfers_kept BEFORE DELETE OR UPDATE OR TRUNCATE ON duebridge_platform.transfers FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

CREATE TABLE duebridge_platform.workers (
  worker_id text NOT NULL,
  heartbeat_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  started_at timestamp with time zone NOT NULL DEFAULT clock_timestamp(),
  round_at timestamp with time zone,
  CONSTRAINT workers_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor=50);

CREATE OR REPLACE FUNCTION duebridge_platform.batches_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF OLD.closed_at IS NOT NULL
     OR (NEW.platform_batch_id, NEW.partner_id, NEW.opened_at) IS DISTINCT FROM (OLD.platform_batch_id, OLD.partner_id, OLD.opened_at)
     OR (NEW.cutoff_at <> OLD.cutoff_at AND (NEW.closed_at IS NULL OR NEW.cutoff_at > OLD.cutoff_at)) THEN
    RAISE EXCEPTION 'a batch changes once: when it closes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'batches_once';
  END IF;
  RETURN NEW;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.being_archived()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION 'the month of this row is being archived'
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'being_archived';
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.cases_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF (NEW.case_id, NEW.platform_payment_id, NEW.partner_id, NEW.biller_id, NEW.funding_method, NEW.reason_code, NEW.amount_in_cents)
     IS DISTINCT FROM
     (OLD.case_id, OLD.platform_payment_id, OLD.partner_id, OLD.biller_id, OLD.funding_method, OLD.reason_code, OLD.amount_in_cents)
     OR OLD.state = 'ended' OR (OLD.state = 'lost' AND NEW.state = 'open') THEN
    RAISE EXCEPTION 'a case never changes what it is about, and ends once'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'cases_guard';
  END IF;
  RETURN NEW;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.first_id(at timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE STRICT
 SET search_path TO ''
AS $function$
  SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-000000000000'
    FROM lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS h
$function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.funds_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF (NEW.platform_payment_id, NEW.adapter) IS DISTINCT FROM (OLD.platform_payment_id, OLD.adapter)
     OR (OLD.reference IS NOT NULL AND NEW.reference IS DISTINCT FROM OLD.reference)
     OR (OLD.state IN ('refunded', 'uncollected') AND NEW.state = 'authorized') THEN
    RAISE EXCEPTION 'the adapter and the reference of funds never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'funds_once';
  END IF;
  NEW.sweep_at := CASE NEW.state WHEN 'authorized' THEN NEW.expires_at WHEN 'releasing' THEN '-infinity' END;
  RETURN NEW;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.guard_month(parent text, month text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO ''
AS $function$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT replace(pg_get_triggerdef(g.oid), ' ON duebridge_platform.' || parent || ' ', ' ON duebridge_platform.' || month || ' ')
      FROM pg_trigger g WHERE g.tgrelid = ('duebridge_platform.' || parent)::regclass AND NOT g.tgisinternal AND g.tgtype & 1 = 0
  LOOP
    EXECUTE statement;
  END LOOP;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.kept_for_ever()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION 'rows of % are kept as they are, for ever', TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation', CONSTRAINT = 'kept_for_ever';
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.make_months()
 RETURNS text[]
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO ''
 SET lock_timeout TO '1s'
AS $function$
DECLARE
  parent text;
  key text;
  months timestamp[];
  month timestamp;
  name text;
  first text;
  bounds text[];
  rows text;
  has_rows boolean;
  made text[] := '{}';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('duebridge_platform months', 0));
  months := ARRAY(
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead) FROM generate_series(0, 3) AS ahead
    UNION SELECT to_date(right(c.relname, 7), 'YYYY_MM') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
           WHERE i.inhparent IN ('duebridge_platform.payments'::regclass, 'duebridge_platform.audit'::regclass) AND c.relname ~ '_\d{4}_\d\d$'
    UNION SELECT date_trunc('month', a.at AT TIME ZONE 'UTC') FROM duebridge_platform.audit_other a
    UNION SELECT date_trunc('month', to_timestamp(('x' || left(replace(p.platform_payment_id, '-', ''), 12))::bit(48)::bigint / 1000) AT TIME ZONE 'UTC')
            FROM duebridge_platform.payments_other p WHERE p.platform_payment_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7'
    ORDER BY 1);
  FOR parent, key, month IN
    SELECT t.parent, t.key, m.month FROM unnest(months) AS m (month), (VALUES ('payments', 'platform_payment_id'), ('audit', 'at')) AS t (parent, key)
     ORDER BY t.parent DESC, m.month
  LOOP
    name := parent || to_char(month, '_YYYY_MM');
    -- The first partition has all months up to its own. Those of the audit that went to files are before the first that is left.
    SELECT min(c.relname::text) INTO first FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = ('duebridge_platform.' || parent)::regclass AND c.relname ~ '_\d{4}_\d\d$';
    CONTINUE WHEN name <= first OR to_regclass('duebridge_platform.' || name) IS NOT NULL;
    bounds := ARRAY[month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC']::timestamptz[]::text[];
    IF key <> 'at' THEN
      bounds := ARRAY[duebridge_platform.first_id(bounds[1]::timestamptz), duebridge_platform.first_id(bounds[2]::timestamptz)];
    END IF;
    EXECUTE format('CREATE TABLE duebridge_platform.%I (LIKE duebridge_platform.%I INCLUDING ALL)', name, parent);
    IF parent = 'payments' THEN
      EXECUTE format('ALTER TABLE duebridge_platform.%I SET (fillfactor = 90)', name);
    END IF;
    rows := format('FROM duebridge_platform.%I WHERE %I >= %L AND %I < %L', parent || '_other', key, bounds[1], key, bounds[2]);
    EXECUTE 'SELECT EXISTS (SELECT 1 ' || rows || ')' INTO has_rows;
    IF has_rows THEN
      -- This also keeps writers out until the rows have moved.
      EXECUTE format('ALTER TABLE duebridge_platform.%I DISABLE TRIGGER USER', parent || '_other');
      EXECUTE format('INSERT INTO duebridge_platform.%I SELECT * ', name) || rows;
      EXECUTE 'DELETE ' || rows;
      EXECUTE format('ALTER TABLE duebridge_platform.%I ENABLE TRIGGER USER', parent || '_other');
    END IF;
    PERFORM duebridge_platform.guard_month(parent, name);
    EXECUTE format('ALTER TABLE duebridge_platform.%I ATTACH PARTITION duebridge_platform.%I FOR VALUES FROM (%L) TO (%L)',
                   parent, name, bounds[1], bounds[2]);
    made := made || name;
  END LOOP;
  RETURN made;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.payments_insert_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF NEW.status <> 'processing' OR NEW.stage NOT IN ('created', 'dispatching') THEN
    RAISE EXCEPTION 'a payment starts as processing, created or dispatching'
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
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.payments_update_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
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
       (OLD.stage = 'created' AND NEW.stage IN ('authorized', 'dispatching', 'review', 'ended'))
    OR (OLD.stage = 'authorized' AND NEW.stage IN ('dispatching', 'review', 'ended'))
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
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.refunds_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF (NEW.refund_id, NEW.platform_payment_id, NEW.partner_id, NEW.biller_id, NEW.funding_method, NEW.amount_in_cents, NEW.borne_by)
     IS DISTINCT FROM
     (OLD.refund_id, OLD.platform_payment_id, OLD.partner_id, OLD.biller_id, OLD.funding_method, OLD.amount_in_cents, OLD.borne_by)
     OR (NEW.state <> OLD.state AND NOT ((OLD.state = 'asked' AND NEW.state IN ('sending', 'refused'))
                                         OR (OLD.state = 'sending' AND NEW.state IN ('done', 'refused'))
                                         OR (OLD.state = 'done' AND NEW.state = 'refused'))) THEN
    RAISE EXCEPTION 'a refund never changes, and ends once'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'refunds_guard';
  END IF;
  RETURN NEW;
END $function$
;

CREATE OR REPLACE FUNCTION duebridge_platform.remittances_guard()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF (NEW.remittance_id, NEW.platform_batch_id, NEW.partner_id, NEW.biller_id, NEW.payments, NEW.gross_in_cents, NEW.deducted_in_cents,
      NEW.carried_in_cents, NEW.sha256) IS DISTINCT FROM
     (OLD.remittance_id, OLD.platform_batch_id, OLD.partner_id, OLD.biller_id, OLD.payments, OLD.gross_in_cents, OLD.deducted_in_cents,
      OLD.carried_in_cents, OLD.sha256)
     OR (OLD.carried_to IS NOT NULL AND NEW.carried_to IS DISTINCT FROM OLD.carried_to)
     OR (OLD.file_id IS NOT NULL AND NEW.file_id IS DISTINCT FROM OLD.file_id)
     OR (NEW.state <> OLD.state AND NOT (
          (OLD.state = 'due' AND NEW.state = 'sending') OR (OLD.state = 'sending' AND NEW.state IN ('sent', 'returned'))
          OR (OLD.state = 'sent' AND NEW.state IN ('paid', 'returned')) OR (OLD.state = 'paid' AND NEW.state = 'returned'))) THEN
    RAISE EXCEPTION 'a remittance goes from due to sending, sent, paid and returned, is in one file, and its amounts never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'remittances_guard';
  END IF;
  RETURN NEW;
END $function$
;
