-- additive
-- The customer's funds at payment processors (decision 110). The sandbox keeps its acts in sandbox_funds and has no rows here.

CREATE TABLE duebridge_platform.funds (
  platform_payment_id text PRIMARY KEY,
  -- Which adapter drives these funds: also after the configuration offers another.
  adapter text NOT NULL,
  -- The processor's name for what the customer entered at the processor. Never a card or bank number.
  instrument text CHECK (length(instrument) BETWEEN 1 AND 255),
  -- The processor's name for the authorization: stored before the authorization is asked for.
  reference text CHECK (length(reference) BETWEEN 1 AND 255),
  state text NOT NULL DEFAULT 'new' CHECK (state IN
    ('new', 'acting', 'authorized', 'declined', 'captured', 'releasing', 'released', 'refunded', 'uncollected')),
  -- What the customer has to do, sealed: it may hold a secret for their browser. Only while `acting`.
  action text,
  -- When the customer must have done it.
  act_by timestamptz,
  -- When the processor was last asked, and when it last sent word of these funds.
  asked_at timestamptz,
  news_at timestamptz,
  -- When the authorization ends by itself.
  expires_at timestamptz,
  -- Why it was declined or could not be collected.
  reason text CHECK (length(reason) <= 500),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT funds_action CHECK (action IS NULL OR state = 'acting'),
  CONSTRAINT funds_reference CHECK (reference IS NOT NULL OR state IN ('new', 'declined', 'releasing', 'released'))
);
-- What the sweep looks for: authorizations that end soon, and releases that no payment's settlement will make.
CREATE INDEX funds_expiring ON duebridge_platform.funds (expires_at) WHERE state = 'authorized';
CREATE INDEX funds_releasing ON duebridge_platform.funds (platform_payment_id) WHERE state = 'releasing';

-- The intent of these funds never changes, and a reference once given stays: a second one would be a second authorization.
CREATE FUNCTION duebridge_platform.funds_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.platform_payment_id, NEW.adapter) IS DISTINCT FROM (OLD.platform_payment_id, OLD.adapter)
     OR (OLD.reference IS NOT NULL AND NEW.reference IS DISTINCT FROM OLD.reference)
     OR (OLD.state IN ('refunded', 'uncollected') AND NEW.state = 'authorized') THEN
    RAISE EXCEPTION 'the adapter and the reference of funds never change'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'funds_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER funds_guard BEFORE UPDATE ON duebridge_platform.funds FOR EACH ROW EXECUTE FUNCTION duebridge_platform.funds_guard();
CREATE TRIGGER funds_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.funds
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- What processors sent, each event once. Nothing here decides: an event only says that the processor must be asked.
CREATE TABLE duebridge_platform.funding_events (
  adapter text NOT NULL,
  event_id text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 255),
  kind text NOT NULL,
  platform_payment_id text NOT NULL,
  received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (adapter, event_id)
);

-- The sandbox refunds too: what was captured for a payment that ends failed or canceled after all (decision 111).
ALTER TABLE duebridge_platform.sandbox_funds
  DROP CONSTRAINT sandbox_funds_act_check,
  DROP CONSTRAINT sandbox_funds_pkey,
  DROP COLUMN phase;
ALTER TABLE duebridge_platform.sandbox_funds
  ADD CONSTRAINT sandbox_funds_act_check CHECK (act IN ('authorize', 'decline', 'capture', 'void', 'refund')),
  ADD COLUMN phase text NOT NULL GENERATED ALWAYS AS
    (CASE WHEN act IN ('authorize', 'decline') THEN 'hold' WHEN act = 'refund' THEN 'undo' ELSE 'settle' END) STORED,
  ADD CONSTRAINT sandbox_funds_pkey PRIMARY KEY (platform_payment_id, phase);
