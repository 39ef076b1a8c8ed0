-- additive
-- payments and audit become tables of months (072). What they hold so far becomes the partition of everything up to the end of a month, which
-- has to be proved of each row before. The proof reads all of them and runs beside writes (071); this is the promise for new ones. The month is at
-- least ten days ahead, so that the update may take that long.
CREATE FUNCTION duebridge_platform.first_id(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE STRICT SET search_path = '' AS $function$
  SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7000-8000-000000000000'
    FROM lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS h
$function$;
DO $do$
DECLARE
  month timestamp := date_trunc('month', now() AT TIME ZONE 'UTC' + interval '10 days');
  until timestamptz := (month + interval '1 month') AT TIME ZONE 'UTC';
  name text := to_char(month, '"month_"YYYY_MM');
BEGIN
  EXECUTE format('ALTER TABLE duebridge_platform.payments ADD CONSTRAINT %I CHECK (platform_payment_id < %L) NOT VALID',
                 name, duebridge_platform.first_id(until));
  EXECUTE format('ALTER TABLE duebridge_platform.audit ADD CONSTRAINT %I CHECK (at < %L) NOT VALID', name, until);
END $do$;
