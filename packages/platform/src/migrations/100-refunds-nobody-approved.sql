-- additive
-- Two versions ago a refund waited here for its second person; no server approves one any more, and none of them has moved money.
UPDATE duebridge_platform.refunds
   SET state = 'refused', note = 'a second person never approved it', ended_at = now()
 WHERE state = 'asked' AND made_at < now() - interval '1 hour';
