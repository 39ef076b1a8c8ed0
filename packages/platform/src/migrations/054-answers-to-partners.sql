-- additive
-- What Create Token answered a client, counted by the hour (checkout/answers.ts).
CREATE TABLE duebridge_platform.answers (
  client_id text NOT NULL,
  partner_id text NOT NULL,
  hour timestamptz NOT NULL,
  status smallint NOT NULL,
  -- Empty for a 200.
  code text NOT NULL,
  cause text NOT NULL,
  count int NOT NULL CHECK (count > 0),
  last_at timestamptz NOT NULL,
  -- The X-Request-Id of the last.
  request_id text NOT NULL,
  PRIMARY KEY (client_id, hour, status, code, cause)
);
CREATE INDEX answers_of_partner ON duebridge_platform.answers (partner_id, last_at);
