-- additive
-- Which payment a biller's own payment_id belongs to: those of newPaymentIds and of imported payments. Two payments never share one.
CREATE TABLE duebridge_partner.payment_name (
  payment_id text COLLATE "C" PRIMARY KEY,
  platform_payment_id text COLLATE "C" NOT NULL
);
-- Where two share one already, the first keeps it.
INSERT INTO duebridge_partner.payment_name (payment_id, platform_payment_id)
SELECT payment_id, platform_payment_id FROM duebridge_partner.payment
 WHERE payment_id !~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$'
 ORDER BY initiated_at
    ON CONFLICT DO NOTHING;
