-- additive
-- A difference names what the partner's file names, which may be another partner's payment: its amount is not this partner's to see. Two
-- steps, because a sharded database updates no table from a join with a distributed one.
DO $$
DECLARE
  foreign_to_it uuid[];
BEGIN
  SELECT array_agg(d.difference_id) INTO foreign_to_it
    FROM duebridge_platform.differences d JOIN duebridge_platform.payments p ON p.platform_payment_id = d.platform_payment_id
   WHERE d.amount_in_cents IS NOT NULL AND p.partner_id <> d.partner_id;
  UPDATE duebridge_platform.differences SET amount_in_cents = NULL WHERE difference_id = ANY (foreign_to_it);
END $$;
