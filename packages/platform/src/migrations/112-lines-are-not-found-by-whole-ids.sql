-- additive
DROP INDEX duebridge_platform.audit_of_payment, duebridge_platform.audit_payment_id;
