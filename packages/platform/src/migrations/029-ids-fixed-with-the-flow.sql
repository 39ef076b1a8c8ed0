-- additive
-- The id of a flow's next payment is fixed before the confirm (decision 13): it follows from the flow's own id, from how many payments the
-- flow has made, and from the instant at which the id was minted.
ALTER TABLE duebridge_platform.flows ADD COLUMN made integer NOT NULL DEFAULT 0;
ALTER TABLE duebridge_platform.flows ADD COLUMN minted_at timestamptz;

-- Flows that were only looked at are removed after a while (checkout/retention.ts).
CREATE INDEX flows_only_seen ON duebridge_platform.flows (minted_at) WHERE latest_payment_id IS NULL;
