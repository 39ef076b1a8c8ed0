-- additive
-- A registration is test or live (decision 160). One that exists is live, so that no real customer is offered a sandbox by the upgrade;
-- except where its customers have paid by the sandbox and never by a processor: that was a test.
ALTER TABLE duebridge_platform.partners
  ADD COLUMN mode text NOT NULL DEFAULT 'live' CHECK (mode IN ('test', 'live'));
UPDATE duebridge_platform.partners p SET mode = 'test'
 WHERE EXISTS (SELECT 1 FROM duebridge_platform.payments y
                WHERE y.partner_id = p.partner_id AND y.funding_method LIKE 'sandbox\_%')
   AND NOT EXISTS (SELECT 1 FROM duebridge_platform.payments y
                    WHERE y.partner_id = p.partner_id AND y.funding_method NOT LIKE 'sandbox\_%');
