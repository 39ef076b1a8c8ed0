-- Who may ask for tokens, the customers they ask for, and the flows that customers open.
-- Readers: keys.ts, token.ts, session.ts, payment.ts, retention.ts.

-- A partner's credential holder at the token endpoint (AU1, decision 6).
CREATE TABLE clients (
  client_id text PRIMARY KEY,
  partner_id text NOT NULL REFERENCES partners (partner_id),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX clients_by_partner ON clients (partner_id);

-- API keys: never the key, only HMAC-SHA-256 of it under the pepper, which is not in the database.
CREATE TABLE client_keys (
  key_id text PRIMARY KEY,
  client_id text NOT NULL REFERENCES clients (client_id),
  -- Two keys at once, so that a key is rotated without a gap: the unique index below lets no third one in.
  slot smallint NOT NULL CHECK (slot IN (1, 2)),
  -- The first characters, by which an operator tells which key a partner holds.
  prefix text NOT NULL,
  digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz,
  revoked_at timestamptz
);
CREATE UNIQUE INDEX client_keys_two_active ON client_keys (client_id, slot) WHERE revoked_at IS NULL;
CREATE INDEX client_keys_by_client ON client_keys (client_id, created_at);

-- The person who pays. Everything personal is in `sealed` (AES-256-GCM, bound to this row) and nowhere
-- else, so that erasing one column erases the person and keeps the facts of the payment.
CREATE TABLE customers (
  customer_id uuid PRIMARY KEY,
  partner_id text NOT NULL,
  sealed text,
  created_at timestamptz NOT NULL DEFAULT now(),
  erase_after timestamptz NOT NULL,
  erased_at timestamptz,
  CHECK ((sealed IS NULL) = (erased_at IS NOT NULL))
);
CREATE INDEX customers_to_erase ON customers (erase_after) WHERE erased_at IS NULL;

-- Start values of the flow (TK1, decision 8). No foreign keys here or below: each would lock a row of
-- partners for every token, and its partner is the registered one of the client that asked.
CREATE TABLE tokens (
  token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  client_id text NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  -- Null when the partner named no account: such a token opens a page that can only say so (TR4).
  biller_id text,
  account_id text,
  -- Names what one customer pays at one account of one partner; see flow_id in session.ts.
  flow_id bytea CHECK (octet_length(flow_id) = 32),
  balance jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  CHECK ((biller_id IS NULL) = (account_id IS NULL)),
  CHECK ((flow_id IS NULL) = (account_id IS NULL))
);
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

-- What a token is exchanged for in the browser (decision 31). It holds what it needs of its token, so
-- that one primary-key read opens a request, and tokens can be removed at their end.
CREATE TABLE sessions (
  session_hash bytea PRIMARY KEY CHECK (octet_length(session_hash) = 32),
  session_id uuid NOT NULL UNIQUE,
  token_hash bytea NOT NULL,
  partner_id text NOT NULL,
  customer_id uuid NOT NULL,
  biller_id text,
  account_id text,
  flow_id bytea,
  balance jsonb,
  -- The flow's latest payment when this session was opened: a later one was made unseen by this page.
  opened_after text,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  CHECK ((flow_id IS NULL) = (account_id IS NULL))
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

-- One row for each customer and account that has paid: the row that a confirm locks, so that any
-- number of tabs, reloads and tokens make one payment (P3).
CREATE TABLE flows (
  flow_id bytea PRIMARY KEY CHECK (octet_length(flow_id) = 32),
  latest_payment_id text
);

-- Which flow, token and customer a payment came from. Kept with the payment, for ever.
CREATE TABLE flow_payments (
  platform_payment_id text PRIMARY KEY,
  flow_id bytea NOT NULL,
  token_hash bytea NOT NULL,
  session_id uuid NOT NULL,
  customer_id uuid NOT NULL,
  -- The payment that failed or was canceled and that this one stands in for; at most one may.
  replaces text UNIQUE,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX flow_payments_by_token ON flow_payments (token_hash, created_at);
