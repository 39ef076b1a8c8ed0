-- additive
-- The last version refused refunds that had waited an hour for their second person and left the younger ones, which no server approves
-- either. A server inserts a refund and sends it in one transaction, so that no other one is seen here.
UPDATE duebridge_platform.refunds SET state = 'refused', note = 'a second person never approved it', ended_at = now() WHERE state = 'asked';
