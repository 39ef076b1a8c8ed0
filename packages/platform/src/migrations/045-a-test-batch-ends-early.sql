-- additive
-- The window of a batch may end before its time when the batch closes (reconciliation/batch.ts: in test mode, on an operator's word).
CREATE OR REPLACE FUNCTION duebridge_platform.batches_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.closed_at IS NOT NULL
     OR (NEW.platform_batch_id, NEW.partner_id, NEW.opened_at) IS DISTINCT FROM (OLD.platform_batch_id, OLD.partner_id, OLD.opened_at)
     OR (NEW.cutoff_at <> OLD.cutoff_at AND (NEW.closed_at IS NULL OR NEW.cutoff_at > OLD.cutoff_at)) THEN
    RAISE EXCEPTION 'a batch changes once: when it closes'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'batches_once';
  END IF;
  RETURN NEW;
END $$;
