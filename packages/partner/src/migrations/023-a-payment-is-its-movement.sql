-- additive
-- A payment that the ledger posted is itself the movement on its account, and what an import changes is one row: a transfer with two
-- entries took more room than the payment. `transfer` and `entry` keep those of earlier versions. Their servers may go on posting during an
-- update; their imports are refused, because they would not see the payments that are posted by this version.
ALTER TABLE duebridge_partner.payment ADD COLUMN in_ledger boolean NOT NULL DEFAULT false;
-- Not validated: every row has the default.
ALTER TABLE duebridge_partner.payment ADD CONSTRAINT payment_in_ledger_when_succeeded CHECK (NOT in_ledger OR status = 'succeeded') NOT VALID;
ALTER TABLE duebridge_partner.transfer ADD CONSTRAINT transfer_of_payment CHECK (kind = 'payment') NOT VALID;

-- By how much an import changed what an account owes.
CREATE TABLE duebridge_partner.billed (
  biller_id text COLLATE "C" NOT NULL,
  account_id text COLLATE "C" NOT NULL,
  amount_in_cents bigint NOT NULL,
  billed_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
  CONSTRAINT billed_moves_money CHECK (amount_in_cents <> 0)
);
CREATE INDEX billed_account ON duebridge_partner.billed (account_id, biller_id);
CREATE TRIGGER billed_append_only BEFORE UPDATE OR DELETE ON duebridge_partner.billed
  FOR EACH ROW EXECUTE FUNCTION duebridge_partner.refuse_change();
CREATE TRIGGER billed_never_emptied BEFORE TRUNCATE ON duebridge_partner.billed EXECUTE FUNCTION duebridge_partner.refuse_change();

-- The entries of the accounts: what an account owes is the sum of its own. A payment's lower it.
CREATE VIEW duebridge_partner.movement AS
  SELECT biller_id, account_id, -amount_in_cents AS amount_in_cents, posted_at AS moved_at, platform_payment_id
    FROM duebridge_partner.payment WHERE in_ledger
  UNION ALL
  SELECT biller_id, account_id, amount_in_cents, billed_at, NULL FROM duebridge_partner.billed
  UNION ALL
  SELECT entry.biller_id, entry.account_id, entry.amount_in_cents, transfer.created_at,
         CASE WHEN transfer.kind = 'payment' THEN transfer_id END
    FROM duebridge_partner.entry JOIN duebridge_partner.transfer USING (transfer_id) WHERE entry.line = 1;
