-- additive
DROP INDEX duebridge_platform.audit_partners_payment_id;
-- The same in archived months, to whose payments nobody writes. Months that are archived from now on are made so.
DO $do$
DECLARE
  old record;
BEGIN
  FOR old IN SELECT i.indexrelid::regclass AS index, i.indrelid::regclass AS month
               FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
               JOIN duebridge_platform.archives a ON i.indrelid = format('duebridge_platform.payments_%s', replace(a.month, '-', '_'))::regclass
              WHERE m.amname = 'hash' LOOP
    EXECUTE format('CREATE INDEX ON %s (hashtext(payment_id))', old.month);
    EXECUTE format('DROP INDEX %s', old.index);
  END LOOP;
END $do$;
