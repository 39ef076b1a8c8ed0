-- additive
-- concurrently
-- Finds the payments of a flow (checkout/flow.ts). The key over `replaces` did so until now, and is dropped by the next migration: here the
-- payments of one flow share an entry.
CREATE INDEX CONCURRENTLY flow_payments_by_flow ON duebridge_platform.flow_payments USING btree (flow_id);
