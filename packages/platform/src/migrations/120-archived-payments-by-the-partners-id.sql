-- additive
-- The partner's id of a payment whose month is in files finds it by an index of its partition. Months that are archived from now on are made with it.
DO $do$
DECLARE
  month text;
BEGIN
  FOR month IN SELECT replace(a.month, '-', '_') FROM duebridge_platform.archives a LOOP
    EXECUTE format('CREATE INDEX ON duebridge_platform.%I USING hash (payment_id)', 'payments_' || month);
  END LOOP;
END $do$;
