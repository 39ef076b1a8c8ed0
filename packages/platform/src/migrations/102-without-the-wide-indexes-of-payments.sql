-- additive
DROP INDEX duebridge_platform.payments_by_account, duebridge_platform.payments_by_amount;
