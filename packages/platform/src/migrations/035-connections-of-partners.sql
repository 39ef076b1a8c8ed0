-- additive
-- How a partner is reached when plain TLS is not enough: a client certificate, authorities of its own, a proxy. `connection_public` is
-- what operators see; the whole, with the private key, is sealed.
ALTER TABLE duebridge_platform.partners ADD COLUMN connection_public jsonb;
ALTER TABLE duebridge_platform.partners ADD COLUMN connection_sealed text;
