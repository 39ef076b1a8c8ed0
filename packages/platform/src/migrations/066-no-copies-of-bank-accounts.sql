-- additive
-- A transfer that waits for a file goes to the account that its biller has when the file is made: no copy of the account is kept with it.
-- The column stays for the servers of the last version.
ALTER TABLE duebridge_platform.bank_transfers ALTER COLUMN sealed DROP NOT NULL;
