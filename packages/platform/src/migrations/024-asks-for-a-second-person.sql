-- additive
-- What a first person asked for: a second one confirms the same, and no other.
ALTER TABLE duebridge_platform.review_closes ADD COLUMN asked text NOT NULL DEFAULT 'close';
