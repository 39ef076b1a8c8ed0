-- additive
-- A payment is searched by its account, customer, amount, batch or any id of the partner or the processor: nobody has the id of a session.
DROP INDEX duebridge_platform.payments_session;
-- The token's payments are among the few of its flow, which have an index.
DROP INDEX duebridge_platform.flow_payments_by_token;
