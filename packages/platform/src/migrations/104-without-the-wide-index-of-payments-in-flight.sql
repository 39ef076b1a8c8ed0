-- additive
DROP INDEX duebridge_platform.payments_in_flight;
