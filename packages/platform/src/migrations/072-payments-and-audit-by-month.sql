-- additive
-- payments by the month of their ids, audit by the month of its lines, so that vacuum, indexes and removal are those of a month (decision 063).
-- What was there becomes the first partition, up to the month of 070: nothing is copied, read or built, and writers wait for milliseconds.
-- A row whose month has no partition is in payments_other or audit_other.
DO $do$
DECLARE
  parent text;
  key text;
  was regclass;
  first text;
  until text;
  statement text;
  statements text[];
BEGIN
  FOR parent, key IN VALUES ('payments', 'platform_payment_id'), ('audit', 'at') LOOP
    was := 'duebridge_platform.' || parent;
    SELECT parent || substr(c.conname, 6), (regexp_match(pg_get_constraintdef(c.oid), '''([^'']+)'''))[1] INTO STRICT first, until
      FROM pg_constraint c WHERE c.conrelid = was AND c.conname ~ '^month_\d{4}_\d\d$';
    -- Keys, indexes and triggers of the new table are those of the old one, under the same names.
    SELECT array_agg(text ORDER BY step, text) INTO statements FROM (
      SELECT 1, format('ALTER TABLE duebridge_platform.%I ADD CONSTRAINT %I %s', parent, c.conname, pg_get_constraintdef(c.oid))
        FROM pg_constraint c WHERE c.conrelid = was AND c.contype IN ('p', 'f')
      UNION ALL SELECT 2, pg_get_indexdef(x.indexrelid) FROM pg_index x WHERE x.indrelid = was AND NOT x.indisprimary
      UNION ALL SELECT 3, pg_get_triggerdef(g.oid) FROM pg_trigger g WHERE g.tgrelid = was AND NOT g.tgisinternal
    ) AS of_old (step, text);
    FOR statement IN
      SELECT format('ALTER INDEX duebridge_platform.%I RENAME TO %I', c.relname, first || substr(c.relname, length(parent) + 1))
        FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = was
      UNION ALL SELECT format('DROP TRIGGER %I ON duebridge_platform.%I', g.tgname, parent)
        FROM pg_trigger g WHERE g.tgrelid = was AND NOT g.tgisinternal
    LOOP
      EXECUTE statement;
    END LOOP;
    EXECUTE format('ALTER TABLE duebridge_platform.%I RENAME TO %I', parent, first);
    EXECUTE format('CREATE TABLE duebridge_platform.%I (LIKE duebridge_platform.%I INCLUDING ALL EXCLUDING INDEXES) PARTITION BY RANGE (%I)',
                   parent, first, key);
    EXECUTE format('ALTER TABLE duebridge_platform.%I DROP CONSTRAINT %I', parent, 'month' || substr(first, length(parent) + 1));
    FOREACH statement IN ARRAY statements LOOP
      EXECUTE statement;
    END LOOP;
    EXECUTE format('ALTER TABLE duebridge_platform.%I ATTACH PARTITION duebridge_platform.%I FOR VALUES FROM (MINVALUE) TO (%L)', parent, first, until);
    EXECUTE format('ALTER TABLE duebridge_platform.%I DROP CONSTRAINT %I', first, 'month' || substr(first, length(parent) + 1));
    EXECUTE format('CREATE TABLE duebridge_platform.%I PARTITION OF duebridge_platform.%I DEFAULT', parent || '_other', parent);
  END LOOP;
END $do$;

-- Statement triggers of a table do not hold for a partition that a statement names by itself: it gets the same ones.
CREATE FUNCTION duebridge_platform.guard_month(parent text, month text) RETURNS void LANGUAGE plpgsql SET search_path = '' AS $function$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    SELECT replace(pg_get_triggerdef(g.oid), ' ON duebridge_platform.' || parent || ' ', ' ON duebridge_platform.' || month || ' ')
      FROM pg_trigger g WHERE g.tgrelid = ('duebridge_platform.' || parent)::regclass AND NOT g.tgisinternal AND g.tgtype & 1 = 0
  LOOP
    EXECUTE statement;
  END LOOP;
END $function$;
SELECT duebridge_platform.guard_month(parent.relname::text, month.relname::text)
  FROM pg_inherits i JOIN pg_class parent ON parent.oid = i.inhparent JOIN pg_class month ON month.oid = i.inhrelid
 WHERE parent.relnamespace = 'duebridge_platform'::regnamespace AND parent.relkind = 'p';

-- Makes the partitions of this month and the next three that are missing; returns their names. The serving role runs it each hour and may not
-- make tables, so it runs as their owner. It waits for no writer for longer than a second: the next hour tries again.
CREATE FUNCTION duebridge_platform.make_months() RETURNS text[] LANGUAGE plpgsql SECURITY DEFINER
SET search_path = '' SET lock_timeout = '1s' AS $function$
DECLARE
  parent text;
  key text;
  month timestamp;
  name text;
  bounds text[];
  is_there boolean;
  made text[] := '{}';
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('duebridge_platform months', 0));
  FOR parent, key IN VALUES ('payments', 'platform_payment_id'), ('audit', 'at') LOOP
    FOR ahead IN 0..3 LOOP
      month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => ahead);
      name := parent || to_char(month, '_YYYY_MM');
      -- Months are made one after the other, so a later one means that this one is there, or that its rows are in the table of the others.
      SELECT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                      WHERE i.inhparent = ('duebridge_platform.' || parent)::regclass AND c.relname ~ '_\d{4}_\d\d$' AND c.relname::text >= name)
        INTO is_there;
      CONTINUE WHEN is_there;
      bounds := ARRAY[month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC']::timestamptz[]::text[];
      IF key <> 'at' THEN
        bounds := ARRAY[duebridge_platform.first_id(bounds[1]::timestamptz), duebridge_platform.first_id(bounds[2]::timestamptz)];
      END IF;
      EXECUTE format('SELECT EXISTS (SELECT 1 FROM duebridge_platform.%I WHERE %I >= %L AND %I < %L)', parent || '_other', key, bounds[1], key, bounds[2])
        INTO is_there;
      CONTINUE WHEN is_there;
      EXECUTE format('CREATE TABLE duebridge_platform.%I (LIKE duebridge_platform.%I INCLUDING ALL)', name, parent);
      IF parent = 'payments' THEN
        EXECUTE format('ALTER TABLE duebridge_platform.%I SET (fillfactor = 90)', name);
      END IF;
      PERFORM duebridge_platform.guard_month(parent, name);
      EXECUTE format('ALTER TABLE duebridge_platform.%I ATTACH PARTITION duebridge_platform.%I FOR VALUES FROM (%L) TO (%L)',
                     parent, name, bounds[1], bounds[2]);
      made := made || name;
    END LOOP;
  END LOOP;
  RETURN made;
END $function$;
SELECT duebridge_platform.make_months();
