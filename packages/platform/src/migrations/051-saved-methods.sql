-- additive
-- The customer object at a payment processor that holds the methods that one person has saved for one account (a flow). `forgotten_at`:
-- to be deleted at the processor, and then here. `customer` of funds: that object, where the payment was confirmed with one.
CREATE TABLE duebridge_platform.saved_customers (
  flow_id bytea NOT NULL,
  adapter text NOT NULL,
  reference text NOT NULL,
  email_digest bytea,
  used_at timestamptz NOT NULL DEFAULT now(),
  forgotten_at timestamptz,
  PRIMARY KEY (flow_id, adapter)
);
CREATE INDEX saved_customers_email ON duebridge_platform.saved_customers (email_digest);
CREATE INDEX saved_customers_forgotten ON duebridge_platform.saved_customers (forgotten_at) WHERE forgotten_at IS NOT NULL;
ALTER TABLE duebridge_platform.funds ADD COLUMN customer text;
