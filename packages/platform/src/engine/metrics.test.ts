import assert from 'node:assert/strict';
import test from 'node:test';
import { createMetrics } from '@duebridge/runtime';
import { engineMetrics } from './metrics.ts';

test('/metrics stays small with 5,000 partners and counts every one of them', async () => {
  const metrics = createMetrics({ processFigures: false });
  const engine = engineMetrics(metrics, {
    inFlight: () => 0,
    ages: () => ({ oldestSeconds: 0, overdue: 0 }),
  });
  for (let index = 0; index < 5_000; index += 1) {
    const partner_id = `a-partner-with-quite-a-long-name-${index}`;
    for (const outcome of ['processing', 'ended', 'unknown_timeout']) {
      engine.submitted(partner_id, outcome);
      engine.polled(partner_id, outcome);
    }
    engine.ended(partner_id, 'succeeded', 2_000);
    engine.breached(partner_id, 'redirect');
    engine.detected(10);
  }
  const text = await metrics.text();
  assert.ok(text.length < 1_000_000, `${text.length} characters`);
  const ended = [...text.matchAll(/^duebridge_payments_ended_total{.*} (\d+)$/gm)];
  assert.equal(
    ended.reduce((sum, line) => sum + Number(line[1]), 0),
    5_000,
  );
  assert.match(text, /partner_id="a-partner-with-quite-a-long-name-0"/);
  assert.match(text, /^duebridge_detection_seconds_count 5000$/m);
});
