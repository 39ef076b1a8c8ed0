-- additive
-- Nothing has used them since several payments are acted on one by one, and marks are cases (046).
DROP TABLE duebridge_platform.bulk_items, duebridge_platform.bulk_runs, duebridge_platform.follow_ups;
