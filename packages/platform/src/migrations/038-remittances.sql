-- additive
-- How each biller is paid. The bank account is sealed as the credentials of partners are.
CREATE TABLE duebridge_platform.payouts (
  partner_id text NOT NULL REFERENCES duebridge_platform.partners,
  biller_id text NOT NULL,
  way text NOT NULL CHECK (way IN ('pain001', 'nacha', 'by_hand')),
  sealed text NOT NULL,
  minimum_in_cents bigint NOT NULL DEFAULT 1 CHECK (minimum_in_cents > 0),
  held boolean NOT NULL DEFAULT false,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (partner_id, biller_id)
);

-- What one biller is owed for one batch (money/remittance.ts): a batch closes once, and a payment is in one batch, so it is remitted once.
CREATE TABLE duebridge_platform.remittances (
  remittance_id text PRIMARY KEY,
  platform_batch_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  payments integer NOT NULL,
  gross_in_cents bigint NOT NULL,
  deducted_in_cents bigint NOT NULL,
  -- From earlier ones that were not transferred; below zero when the biller had received too much.
  carried_in_cents bigint NOT NULL,
  net_in_cents bigint NOT NULL,
  -- The digest of the batch's statement.
  sha256 text NOT NULL,
  due_on date NOT NULL,
  state text NOT NULL CHECK (state IN ('due', 'carried', 'sending', 'sent', 'paid', 'returned')),
  -- The later remittance that contains the money of one that was carried or came back.
  carried_to text,
  tries integer NOT NULL DEFAULT 0,
  -- The bank's, and why it came back.
  reference text,
  reason text,
  made_at timestamptz NOT NULL DEFAULT now(),
  sent_at timestamptz,
  ended_at timestamptz,
  CONSTRAINT remittances_once UNIQUE (platform_batch_id, biller_id),
  CONSTRAINT remittances_net CHECK (net_in_cents = gross_in_cents - deducted_in_cents + carried_in_cents),
  CONSTRAINT remittances_carried CHECK (carried_to IS NULL OR state IN ('carried', 'returned')),
  CONSTRAINT remittances_positive CHECK (state = 'carried' OR net_in_cents > 0)
);
CREATE INDEX remittances_open ON duebridge_platform.remittances (partner_id, biller_id)
  WHERE state IN ('due', 'sending', 'sent') OR (state IN ('carried', 'returned') AND carried_to IS NULL);
CREATE INDEX remittances_newest ON duebridge_platform.remittances (made_at);
CREATE TABLE duebridge_platform.remitted_batches (
  platform_batch_id text PRIMARY KEY,
  made_at timestamptz NOT NULL DEFAULT now()
);

-- What is taken off a biller's next remittance: refunds that it bears.
CREATE TABLE duebridge_platform.deductions (
  deduction_id text PRIMARY KEY,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('refund', 'return', 'correction')),
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  reason text NOT NULL,
  made_at timestamptz NOT NULL DEFAULT now(),
  remittance_id text
);
CREATE INDEX deductions_open ON duebridge_platform.deductions (partner_id, biller_id) WHERE remittance_id IS NULL;
CREATE INDEX deductions_of ON duebridge_platform.deductions (remittance_id) WHERE remittance_id IS NOT NULL;

-- Transfers that people carry to the bank, in a file or by hand (money/desk.ts).
CREATE TABLE duebridge_platform.bank_files (
  file_id text PRIMARY KEY,
  way text NOT NULL,
  made_at timestamptz NOT NULL DEFAULT now(),
  made_by text NOT NULL,
  transfers integer NOT NULL,
  amount_in_cents bigint NOT NULL,
  sha256 text NOT NULL,
  sealed text NOT NULL
);
CREATE TABLE duebridge_platform.bank_transfers (
  remittance_id text PRIMARY KEY REFERENCES duebridge_platform.remittances,
  way text NOT NULL,
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  sealed text NOT NULL,
  file_id text REFERENCES duebridge_platform.bank_files,
  -- What a first person said; a second one says the same.
  asked_by text,
  asked text,
  result text CHECK (result IN ('paid', 'returned')),
  reference text
);
CREATE INDEX bank_transfers_waiting ON duebridge_platform.bank_transfers (way, remittance_id) WHERE file_id IS NULL AND result IS NULL;

-- What a remittance is for never changes, and its state only goes forward.
CREATE FUNCTION duebridge_platform.remittances_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.remittance_id, NEW.platform_batch_id, NEW.partner_id, NEW.biller_id, NEW.payments, NEW.gross_in_cents, NEW.deducted_in_cents,
      NEW.carried_in_cents, NEW.sha256) IS DISTINCT FROM
     (OLD.remittance_id, OLD.platform_batch_id, OLD.partner_id, OLD.biller_id, OLD.payments, OLD.gross_in_cents, OLD.deducted_in_cents,
      OLD.carried_in_cents, OLD.sha256)
     OR (OLD.carried_to IS NOT NULL AND NEW.carried_to IS DISTINCT FROM OLD.carried_to)
     OR (NEW.state <> OLD.state AND NOT (
          (OLD.state = 'due' AND NEW.state = 'sending') OR (OLD.state = 'sending' AND NEW.state IN ('sent', 'returned'))
          OR (OLD.state = 'sent' AND NEW.state IN ('paid', 'returned')))) THEN
    RAISE EXCEPTION 'a remittance goes from due to sending, sent and paid, and its amounts never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'remittances_guard';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER remittances_guard BEFORE UPDATE ON duebridge_platform.remittances
  FOR EACH ROW EXECUTE FUNCTION duebridge_platform.remittances_guard();
CREATE TRIGGER remittances_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.remittances
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();
