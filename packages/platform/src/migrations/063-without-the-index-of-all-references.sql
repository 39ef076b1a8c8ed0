-- additive
DROP INDEX duebridge_platform.funds_by_reference;
