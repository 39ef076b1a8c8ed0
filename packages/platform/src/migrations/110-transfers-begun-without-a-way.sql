-- additive
-- Versions before 089 tried transfers without noting the way. 108 has moved those that the desk had; what is left may be at Stripe alone. It is
-- asked for there, even if its biller is paid another way by now, and two persons end what Stripe never had.
UPDATE duebridge_platform.remittances
   SET way = 'stripe'
 WHERE way IS NULL AND (state = 'sent' OR (state = 'sending' AND tries > 0));
