import assert from 'node:assert/strict';
import test from 'node:test';
import { createMetrics } from './metrics.ts';

test('metrics are in the Prometheus text format', async () => {
  const metrics = createMetrics();
  metrics.counter('duebridge_things_total', 'Things', ['kind']).inc({ kind: 'x' });
  metrics.gauge('duebridge_level', 'Level', [], () => 7);
  metrics.histogram('duebridge_time_seconds', 'Time').observe(0.002);
  const printed = await metrics.text();
  assert.match(printed, /duebridge_things_total\{kind="x"\} 1/);
  assert.match(printed, /duebridge_level 7/);
  assert.match(printed, /duebridge_time_seconds_bucket\{le="0.0025"\} 1/);
  assert.match(printed, /process_resident_memory_bytes/);
});
