-- final
-- The version before asks by the id alone.
DROP INDEX duebridge_platform.audit_payment;
