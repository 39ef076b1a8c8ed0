-- final
-- The sweep of the version before finds its rows by these.
DROP INDEX duebridge_platform.funds_expiring, duebridge_platform.funds_releasing;
