-- additive
-- Rows that were reserved or being released before the column was there; the trigger gives them their time.
UPDATE duebridge_platform.funds SET swept_at = swept_at WHERE state = 'authorized' AND expires_at IS NOT NULL OR state = 'releasing';
