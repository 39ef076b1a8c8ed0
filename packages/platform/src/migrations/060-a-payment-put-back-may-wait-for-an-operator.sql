-- additive
-- The database had lost the payment, and its partner may have it: it does not fail because its funds are declined now.
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
END $function$;
