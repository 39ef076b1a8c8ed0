-- additive
-- Every payment's funds are updated once, when they settle. The update changed `state`, which the two indexes of the sweep name, so that it wrote
-- a second entry into every index of the table. The sweep looks at few rows: those have a time of their own, which this trigger gives them,
-- also where a process of the version before writes the row. A release is due at once.
ALTER TABLE duebridge_platform.funds ADD COLUMN sweep_at timestamptz;
CREATE OR REPLACE FUNCTION duebridge_platform.funds_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.platform_payment_id, NEW.adapter) IS DISTINCT FROM (OLD.platform_payment_id, OLD.adapter)
     OR (OLD.reference IS NOT NULL AND NEW.reference IS DISTINCT FROM OLD.reference)
     OR (OLD.state IN ('refunded', 'uncollected') AND NEW.state = 'authorized') THEN
    RAISE EXCEPTION 'the adapter and the reference of funds never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'funds_once';
  END IF;
  NEW.sweep_at := CASE NEW.state WHEN 'authorized' THEN NEW.expires_at WHEN 'releasing' THEN '-infinity' END;
  RETURN NEW;
END $$;
