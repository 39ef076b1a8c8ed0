-- additive
-- Rows that were reserved or being released before the column was there; the trigger gives them their time.
UPDATE duebridge_platform.funds SET swept_at = swept_at WHERE state = 'authorized' AND expires_at IS NOT NULL OR state = 'releasing';
-- The sweep of a process of the version before reads the whole table once a minute, for ten seconds at most, until the process has ended: those of
-- this version find the same rows.
DROP INDEX duebridge_platform.funds_expiring, duebridge_platform.funds_releasing;
