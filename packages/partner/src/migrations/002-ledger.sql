-- The default books: accounts, transfers between them, and two signed entries per transfer.
-- A partner whose accounts live elsewhere leaves these tables empty.

CREATE TABLE account (
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  first_name text,
  last_name text,
  -- What the customer owes: the sum of this account's entries at any moment; negative is a credit.
  amount_due_in_cents bigint NOT NULL DEFAULT 0,
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

-- One movement. A payment's transfer bears the payment's id, so there can be one only (Q2); an import's bears a colon, which no
-- id of the wire has.
CREATE TABLE transfer (
  transfer_id text COLLATE "C" PRIMARY KEY,
  kind text COLLATE "C" NOT NULL,
  created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  CONSTRAINT transfer_kind_known CHECK (kind IN ('payment', 'import')),
  CONSTRAINT transfer_kind_matches_id CHECK ((kind = 'import') = (transfer_id LIKE '%:%'))
);

-- Line 1 is the customer's account, line 2 what stands against it: ':received' for payments, ':billed' for imports. The lines of
-- a transfer sum to zero.
CREATE TABLE entry (
  transfer_id text COLLATE "C" NOT NULL,
  line smallint NOT NULL,
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  amount_in_cents bigint NOT NULL,
  PRIMARY KEY (transfer_id, line),
  CONSTRAINT entry_moves_money CHECK (amount_in_cents <> 0),
  CONSTRAINT entry_line_known CHECK ((line = 1 AND account_id NOT LIKE ':%') OR (line = 2 AND account_id IN (':received', ':billed')))
);
CREATE INDEX entry_account ON entry (account_id, biller_id) WHERE line = 1;

CREATE TRIGGER transfer_append_only BEFORE UPDATE OR DELETE ON transfer FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER transfer_never_emptied BEFORE TRUNCATE ON transfer EXECUTE FUNCTION refuse_change();
CREATE TRIGGER entry_append_only BEFORE UPDATE OR DELETE ON entry FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER entry_never_emptied BEFORE TRUNCATE ON entry EXECUTE FUNCTION refuse_change();
CREATE TRIGGER account_never_removed BEFORE DELETE ON account FOR EACH ROW EXECUTE FUNCTION refuse_change();
