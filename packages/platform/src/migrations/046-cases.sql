-- additive
-- What a processor or a person reports about a payment, until it has ended (store/cases.ts). `amount_in_cents` is the money that the case
-- itself moves; 0 for a complaint. A case about money is `open` while it is undecided, and `lost` while nobody has made up for it.
CREATE TABLE duebridge_platform.cases (
  case_id text NOT NULL,
  platform_payment_id text NOT NULL,
  partner_id text NOT NULL,
  biller_id text NOT NULL,
  funding_method text NOT NULL,
  reason_code text NOT NULL CHECK (reason_code IN ('disputed', 'debit_returned', 'uncollected', 'refunded_elsewhere', 'wrong_account',
    'still_due', 'charged_twice', 'amount_differs', 'not_authorized', 'other')),
  amount_in_cents bigint NOT NULL CHECK (amount_in_cents >= 0),
  state text NOT NULL CHECK (state IN ('open', 'lost', 'ended')),
  disposition text CHECK (disposition IN ('answered', 'won', 'recovered', 'charged_to_biller', 'written_off')),
  -- By when the processor wants an answer.
  deadline timestamptz,
  note text NOT NULL,
  opened_by text NOT NULL,
  opened_at timestamptz NOT NULL DEFAULT now(),
  -- What a first person said; a second one says the same.
  asked_by text,
  asked text,
  ended_by text,
  ended_at timestamptz,
  outcome text,
  PRIMARY KEY (platform_payment_id, case_id),
  CONSTRAINT cases_ended CHECK ((state = 'ended') = (disposition IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL))
);
CREATE INDEX cases_by_id ON duebridge_platform.cases (case_id);
CREATE INDEX cases_open ON duebridge_platform.cases (opened_at) WHERE state <> 'ended';
CREATE INDEX cases_newest ON duebridge_platform.cases (opened_at);

-- What a case is about never changes, and one that has ended stays so.
CREATE FUNCTION duebridge_platform.cases_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (NEW.case_id, NEW.platform_payment_id, NEW.partner_id, NEW.biller_id, NEW.funding_method, NEW.reason_code, NEW.amount_in_cents)
     IS DISTINCT FROM
     (OLD.case_id, OLD.platform_payment_id, OLD.partner_id, OLD.biller_id, OLD.funding_method, OLD.reason_code, OLD.amount_in_cents)
     OR OLD.state = 'ended' OR (OLD.state = 'lost' AND NEW.state = 'open') THEN
    RAISE EXCEPTION 'a case never changes what it is about, and ends once'
      USING ERRCODE = 'check_violation', CONSTRAINT = 'cases_guard';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER cases_guard BEFORE UPDATE ON duebridge_platform.cases
  FOR EACH ROW EXECUTE FUNCTION duebridge_platform.cases_guard();
CREATE TRIGGER cases_kept BEFORE DELETE OR TRUNCATE ON duebridge_platform.cases
  FOR EACH STATEMENT EXECUTE FUNCTION duebridge_platform.kept_for_ever();

-- Marks for a follow-up, and money that was not collected, are cases from now on.
INSERT INTO duebridge_platform.cases (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code, amount_in_cents,
       state, note, opened_by, opened_at)
SELECT 'follow-up-' || p.platform_payment_id, p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, 'other', 0,
       'open', f.note, f.marked_by, f.marked_at
  FROM duebridge_platform.follow_ups f JOIN duebridge_platform.payments p USING (platform_payment_id);
INSERT INTO duebridge_platform.cases (case_id, platform_payment_id, partner_id, biller_id, funding_method, reason_code, amount_in_cents,
       state, note, opened_by)
SELECT 'uncollected-' || p.platform_payment_id, p.platform_payment_id, p.partner_id, p.biller_id, p.funding_method, 'uncollected',
       p.amount_in_cents, 'lost', coalesce(f.reason, 'not collected'), 'funds'
  FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
 WHERE f.state = 'uncollected' AND p.settled_at IS NOT NULL AND p.status = 'succeeded';
