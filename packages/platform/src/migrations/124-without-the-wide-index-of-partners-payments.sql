-- final
DROP INDEX duebridge_platform.payments_partner;
