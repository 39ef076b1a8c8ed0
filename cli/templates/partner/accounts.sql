-- 1 of 4: your accounts. This is a small example; point src/accounts.js at your own tables instead.
CREATE SCHEMA IF NOT EXISTS billing;

CREATE TABLE IF NOT EXISTS billing.account (
  account_no text PRIMARY KEY,
  closed boolean NOT NULL DEFAULT false,
  open_cents bigint NOT NULL DEFAULT 0,
  pay_by date
);

-- One row for each payment. Its primary key is what keeps a payment from being posted twice.
CREATE TABLE IF NOT EXISTS billing.receipt (
  platform_payment_id text PRIMARY KEY,
  account_no text NOT NULL REFERENCES billing.account,
  cents bigint NOT NULL CHECK (cents > 0),
  posted_at timestamptz NOT NULL DEFAULT now()
);

-- Examples that target.json names. Leave them out of production.
INSERT INTO billing.account (account_no, closed, open_cents, pay_by)
VALUES ('A-1', false, 12050, '2030-12-24'), ('A-2', false, 4000, NULL), ('A-3', true, 0, NULL)
ON CONFLICT DO NOTHING;
