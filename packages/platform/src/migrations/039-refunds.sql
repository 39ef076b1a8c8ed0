-- additive
-- Refunds of captured payments, full and partial (money/refunds.ts).
CREATE TABLE duebridge_platform.refunds (
  refund_id text PRIMARY KEY,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  funding_method text NOT NULL,
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents > 0),
  reason_code text NOT NULL,
  reason text NOT NULL,
  borne_by text NOT NULL CHECK (borne_by IN ('biller', 'platform')),
  state text NOT NULL CHECK (state IN ('asked', 'sending', 'done', 'refused')),
  asked_by text NOT NULL,
  approved_by text,
  -- The processor's words when it refused.
  note text,
  made_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz
);
CREATE INDEX refunds_of_payment ON duebridge_platform.refunds (platform_payment_id);
CREATE INDEX refunds_open ON duebridge_platform.refunds (refund_id) WHERE state IN ('asked', 'sending');
CREATE INDEX refunds_newest ON duebridge_platform.refunds (made_at);

-- Whether refunds are taken off the biller's remittances; where it has not agreed, the platform bears them.
ALTER TABLE duebridge_platform.payouts ADD COLUMN bears_refunds boolean NOT NULL DEFAULT true;
-- A refund that the processor refuses after it was taken off is given back as a correction.
ALTER TABLE duebridge_platform.deductions DROP CONSTRAINT deductions_amount_in_cents_check;
ALTER TABLE duebridge_platform.deductions ADD CONSTRAINT deductions_amount_in_cents_check
  CHECK (amount_in_cents > 0 OR (kind = 'correction' AND amount_in_cents <> 0)) NOT VALID;

-- What is refunded never changes, and a refund that has ended stays so.
CREATE FUNCTION duebridge_platform.refunds_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.refund_id, NEW.platform_payment_id, NEW.partner_id, NEW.biller_id, NEW.funding_method, NEW.amount_in_cents, NEW.borne_by)
     IS DISTINCT FROM
     (OLD.refund_id, OLD.platform_payment_id, OLD.partner_id, OLD.biller_id, OLD.funding_method, OLD.amount_in_cents, OLD.borne_by)
     OR (NEW.state <> OLD.state AND NOT ((OLD.state = 'asked' AND NEW.state IN ('sending', 'refused'))
                                         OR (OLD.state = 'sending' AND NEW.state IN ('done', 'refused')))) THEN
    RAISE EXCEPTION 'a refund never changes, and ends once'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'refunds_guard';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER refunds_guard BEFORE UPDATE ON duebridge_platform.refunds
  FOR EACH ROW EXECUTE FUNCTION duebridge_platform.refunds_guard();
CREATE TRIGGER refunds_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.refunds
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();
