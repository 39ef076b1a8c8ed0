-- The accounts of a biller, older than the kit: its own names, its own units, its own way to remember payments.
CREATE SCHEMA waterworks;
CREATE TABLE waterworks.customers (
  customer_no integer PRIMARY KEY,
  full_name text NOT NULL,
  closed boolean NOT NULL DEFAULT false,
  open_amount numeric(12, 2) NOT NULL,
  pay_by date NOT NULL,
  -- What one payment may be; null: anything.
  least numeric(12, 2),
  most numeric(12, 2)
);
CREATE TABLE waterworks.receipts (
  external_ref text PRIMARY KEY,
  customer_no integer NOT NULL REFERENCES waterworks.customers,
  amount numeric(12, 2) NOT NULL,
  booked_on timestamptz NOT NULL DEFAULT now()
);
