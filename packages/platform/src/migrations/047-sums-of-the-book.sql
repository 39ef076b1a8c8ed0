-- additive
-- The balances of the days that are over, added up once (money/balances.ts): what came after `summed_to` is read from the book itself.
CREATE TABLE duebridge_platform.book_sums (
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  account text NOT NULL,
  -- Debits less credits.
  cents bigint NOT NULL,
  PRIMARY KEY (partner_id, biller_id, account)
);
ALTER TABLE duebridge_platform.book_progress ADD COLUMN summed_to date NOT NULL DEFAULT '-infinity';

-- A bank may send a transfer back after it was paid.
CREATE OR REPLACE FUNCTION duebridge_platform.remittances_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.remittance_id, NEW.platform_batch_id, NEW.partner_id, NEW.biller_id, NEW.payments, NEW.gross_in_cents, NEW.deducted_in_cents,
      NEW.carried_in_cents, NEW.sha256) IS DISTINCT FROM
     (OLD.remittance_id, OLD.platform_batch_id, OLD.partner_id, OLD.biller_id, OLD.payments, OLD.gross_in_cents, OLD.deducted_in_cents,
      OLD.carried_in_cents, OLD.sha256)
     OR (OLD.carried_to IS NOT NULL AND NEW.carried_to IS DISTINCT FROM OLD.carried_to)
     OR (NEW.state <> OLD.state AND NOT (
          (OLD.state = 'due' AND NEW.state = 'sending') OR (OLD.state = 'sending' AND NEW.state IN ('sent', 'returned'))
          OR (OLD.state = 'sent' AND NEW.state IN ('paid', 'returned')) OR (OLD.state = 'paid' AND NEW.state = 'returned'))) THEN
    RAISE EXCEPTION 'a remittance goes from due to sending, sent, paid and returned, and its amounts never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'remittances_guard';
  END IF;
  RETURN NEW;
END $$;
