-- additive
-- 100 left those of the last hour to servers of two versions ago, which no longer run: nobody approves them any more. A refund that is
-- being made passes through this state inside its transaction, which no other statement sees.
UPDATE duebridge_platform.refunds
   SET state = 'refused', note = 'a second person never approved it', ended_at = now()
 WHERE state = 'asked';
