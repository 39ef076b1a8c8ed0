-- additive
-- Makes the partitions of this month and the next three, those that only one of the two tables has, and those whose rows came before them: these
-- move out of the table of the others, so that every month can be archived. Returns the names of those made. It runs as the owner of the tables,
-- because the serving role may not make any, and waits for no writer for longer than a second: the next hour tries again.
CREATE OR REPLACE FUNCTION duebridge_platform.make_months() RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER
SET search_path = '' SET lock_timeout = '1s' AS $function$
DECLARE
  parent text;
  key text;
  months timestamp[];
  month timestamp;
  name text;
  first text;
  bounds text[];
  rows text;
  has_rows boolean;
  made text[] := '{}';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('duebridge_platform months', 0));
  months := ARRAY(
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead) FROM generate_series(0, 3) AS ahead
    UNION SELECT to_date(right(c.relname, 7), 'YYYY_MM') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
           WHERE i.inhparent IN ('duebridge_platform.payments'::regclass, 'duebridge_platform.audit'::regclass) AND c.relname ~ '_\d{4}_\d\d$'
    UNION SELECT date_trunc('month', a.at AT TIME ZONE 'UTC') FROM duebridge_platform.audit_other a
    UNION SELECT date_trunc('month', to_timestamp(('x' || left(replace(p.platform_payment_id, '-', ''), 12))::bit(48)::bigint / 1000) AT TIME ZONE 'UTC')
            FROM duebridge_platform.payments_other p WHERE p.platform_payment_id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7'
    ORDER BY 1);
  FOR parent, key, month IN
    SELECT t.parent, t.key, m.month FROM unnest(months) AS m (month), (VALUES ('payments', 'platform_payment_id'), ('audit', 'at')) AS t (parent, key)
     ORDER BY t.parent DESC, m.month
  LOOP
    name := parent || to_char(month, '_YYYY_MM');
    -- The first partition has all months up to its own. Those of the audit that went to files are before the first that is left.
    SELECT min(c.relname::text) INTO first FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = ('duebridge_platform.' || parent)::regclass AND c.relname ~ '_\d{4}_\d\d$';
    CONTINUE WHEN name <= first OR to_regclass('duebridge_platform.' || name) IS NOT NULL;
    bounds := ARRAY[month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC']::timestamptz[]::text[];
    IF key <> 'at' THEN
      bounds := ARRAY[duebridge_platform.first_id(bounds[1]::timestamptz), duebridge_platform.first_id(bounds[2]::timestamptz)];
    END IF;
    EXECUTE format('CREATE TABLE duebridge_platform.%I (LIKE duebridge_platform.%I INCLUDING ALL)', name, parent);
    IF parent = 'payments' THEN
      EXECUTE format('ALTER TABLE duebridge_platform.%I SET (fillfactor = 90)', name);
    END IF;
    rows := format('FROM duebridge_platform.%I WHERE %I >= %L AND %I < %L', parent || '_other', key, bounds[1], key, bounds[2]);
    EXECUTE 'SELECT EXISTS (SELECT 1 ' || rows || ')' INTO has_rows;
    IF has_rows THEN
      -- This also keeps writers out until the rows have moved.
      EXECUTE format('ALTER TABLE duebridge_platform.%I DISABLE TRIGGER USER', parent || '_other');
      EXECUTE format('INSERT INTO duebridge_platform.%I SELECT * ', name) || rows;
      EXECUTE 'DELETE ' || rows;
      EXECUTE format('ALTER TABLE duebridge_platform.%I ENABLE TRIGGER USER', parent || '_other');
    END IF;
    PERFORM duebridge_platform.guard_month(parent, name);
    EXECUTE format('ALTER TABLE duebridge_platform.%I ATTACH PARTITION duebridge_platform.%I FOR VALUES FROM (%L) TO (%L)',
                   parent, name, bounds[1], bounds[2]);
    made := made || name;
  END LOOP;
  RETURN made;
END $function$;
