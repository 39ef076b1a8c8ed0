-- additive
-- A transfer to a bank stands in its remittance: the file that it is in is a column, and what became of it is its state, at once.
-- Servers of the last version have a table of transfers beside it. What they do at the desk is refused from now on, so that no transfer is in
-- two files; what they have noted there moves into the remittances. Servers of this version do the rest.
ALTER TABLE duebridge_platform.bank_transfers ADD CONSTRAINT bank_transfers_moved CHECK (false) NOT VALID;

ALTER TABLE duebridge_platform.remittances ADD COLUMN file_id text REFERENCES duebridge_platform.bank_files;
CREATE INDEX remittances_in_files ON duebridge_platform.remittances (file_id) WHERE file_id IS NOT NULL;
CREATE INDEX remittances_waiting ON duebridge_platform.remittances (way, remittance_id) WHERE state = 'sent' AND file_id IS NULL;

CREATE OR REPLACE FUNCTION duebridge_platform.remittances_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;

UPDATE duebridge_platform.remittances AS r
   SET way = coalesce(r.way, t.way), file_id = t.file_id, state = CASE r.state WHEN 'sending' THEN 'sent' ELSE r.state END
  FROM duebridge_platform.bank_transfers t WHERE t.remittance_id = r.remittance_id;

-- What was said of a transfer, and no round has noted yet.
WITH ended AS (
  UPDATE duebridge_platform.remittances AS r
     SET state = t.result, ended_at = now(), reference = CASE t.result WHEN 'paid' THEN t.reference ELSE r.reference END,
         reason = CASE t.result WHEN 'returned' THEN t.reference ELSE r.reason END
    FROM duebridge_platform.bank_transfers t
   WHERE t.remittance_id = r.remittance_id AND r.state = 'sent' AND t.result IS NOT NULL RETURNING r.*
), booked AS (
  INSERT INTO duebridge_platform.transfers (id, act, day, debit, credit, amount_in_cents, partner_id, biller_id)
  SELECT e.remittance_id, CASE e.state WHEN 'paid' THEN 'paid' ELSE 'came_back' END, (now() AT TIME ZONE 'UTC')::date, 'remitting',
         CASE e.state WHEN 'paid' THEN 'paid' ELSE 'owed' END, e.net_in_cents, e.partner_id, e.biller_id
    FROM ended e ON CONFLICT (id, act) DO NOTHING
)
INSERT INTO duebridge_platform.audit (actor, event, partner_id, detail)
SELECT 'remittance', 'remittance_' || e.state, e.partner_id,
       jsonb_strip_nulls(jsonb_build_object('remittance_id', e.remittance_id, 'biller_id', e.biller_id, 'net_in_cents', e.net_in_cents,
                                            'reference', e.reference, 'reason', e.reason))
  FROM ended e;
