-- additive
-- A biller's colour and logo on its payment page. A logo is named by its content, so that its address may be cached forever.
ALTER TABLE duebridge_platform.partners ADD COLUMN colour text;
ALTER TABLE duebridge_platform.partners ADD COLUMN logo text;
CREATE TABLE duebridge_platform.logos (
  logo text PRIMARY KEY,
  image bytea NOT NULL
);
