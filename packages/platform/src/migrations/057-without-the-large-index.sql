-- additive
DROP INDEX duebridge_platform.audit_payment;
