-- additive
-- A payment whose PUT can leave at once, and whose funds are kept in this database, begins as dispatching, with its funds reserved in
-- the same statement (decision 168). The version before inserts payments as created, which stays allowed.
CREATE OR REPLACE FUNCTION duebridge_platform.payments_insert_guard() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;
