-- additive
-- Processes of the version before ask by the id alone. Until they have ended, what they read of one payment for an operator reads all lines, and is
-- refused after ten seconds in a large database; what they count for the overview is found by its event. No payment reads lines.
DROP INDEX duebridge_platform.audit_payment;
