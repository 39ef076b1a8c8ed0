-- A budget is divided by the workers that live; nobody claims a part of it any more. Not additive: a worker of the version before keeps the
-- parts that it has, and gets none of a partner that it did not call yet.
DROP TABLE duebridge_platform.shares;
