-- additive
-- A processor may say of a refund that was done that it has failed: then its money is back.
CREATE OR REPLACE FUNCTION duebridge_platform.refunds_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;
