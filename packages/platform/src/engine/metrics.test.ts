import assert from 'node:assert/strict';
import test from 'node:test';
import { createMetrics } from '@duebridge/runtime';
import { engineMetrics } from './metrics.ts';

const GAUGES = {
  lease_age_seconds: () => 2.5,
  oldest_due_call_seconds: () => 0,
  slots_owned: () => 0,
  payments_in_flight: () => 7,
};

test('/metrics stays small with 5,000 partners and counts every one of them', async () => {
  const metrics = createMetrics({ processFigures: false });
  const engine = engineMetrics(metrics, GAUGES);
  for (let index = 0; index < 5_000; index += 1) {
    const partner_id = `a-partner-with-quite-a-long-name-${index}`;
    for (const outcome of ['processing', 'ended', 'unknown_timeout']) {
      engine.submitted(partner_id, outcome);
      engine.polled(partner_id, outcome);
    }
    engine.ended(partner_id, 'succeeded', 2_000);
    // The codes of a partner make no labels of their own.
    engine.breached(partner_id, `rejected_422_CODE-${index}`);
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

test('dashboards and alerts find each figure under its name and labels, in seconds', async () => {
  const metrics = createMetrics({ processFigures: false });
  const engine = engineMetrics(metrics, GAUGES);
  engine.submitted('acme', 'processing');
  engine.submitted('acme', 'processing');
  engine.polled('acme', 'ended');
  engine.breached('acme', 'redirect');
  engine.broken('acme', true);
  engine.broken('water', true);
  engine.broken('water', false);
  engine.detected(1_500);
  for (const ms of [100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000]) {
    engine.ended('acme', 'succeeded', ms);
  }
  for (const s of [300, 1_800, 7_200, 43_200, 86_400]) engine.ended('acme', 'succeeded', s * 1_000);
  // The clocks of two hosts differ: it counts as no time, not as less.
  engine.ended('acme', 'failed', -5_000);
  const lines = (await metrics.text()).split('\n').filter((line) => !line.startsWith('#'));
  for (const line of [
    'duebridge_submits_total{partner_id="acme",outcome="processing"} 2',
    'duebridge_polls_total{partner_id="acme",outcome="ended"} 1',
    'duebridge_partner_breaches_total{partner_id="acme",kind="redirect"} 1',
    'duebridge_payments_ended_total{partner_id="acme",status="succeeded"} 13',
    'duebridge_payments_ended_total{partner_id="acme",status="failed"} 1',
    'duebridge_breaker_open{partner_id="acme"} 1',
    'duebridge_breaker_open{partner_id="water"} 0',
    'duebridge_detection_seconds_sum 1.5',
    'duebridge_payments_in_flight 7',
    'duebridge_lease_age_seconds 2.5',
    'duebridge_payment_seconds_sum{status="succeeded"} 139009.1',
    'duebridge_payment_seconds_sum{status="failed"} 0',
  ]) {
    assert.ok(lines.includes(line), `${line} is not among\n${lines.join('\n')}`);
  }
});
