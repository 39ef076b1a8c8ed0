import assert from 'node:assert/strict';
import test from 'node:test';
import { scriptedPartner, engineRig } from '../../test/engine-rig.ts';

test('a partner that claims to wait but answers at once is not polled in a tight loop [RU4]', async (t) => {
  const rig = await engineRig(t);
  const partner = await scriptedPartner(t);
  await rig.register('acme', partner.url, { budget: { wait_seconds: 5 } });
  const polls: number[] = [];
  partner.script = (seen) => {
    if (seen.method !== 'GET') return undefined;
    polls.push(seen.at);
    if (polls.length > 4) return undefined;
    const payment = partner.payments.values().next().value;
    return { json: payment, headers: { 'preference-applied': 'wait' } };
  };
  const engine = rig.engine({ options: { pollMs: 200 } });
  await engine.start();
  const row = await rig.pay(engine, 'acme');
  assert.equal(
    (await rig.until(row.platform_payment_id, (now) => now.settled_at !== null)).status,
    'succeeded',
  );
  const gaps = polls.slice(1).map((at, index) => at - (polls[index] ?? 0));
  // The schedule's first delay is 200 ms, with jitter; without it these gaps are a millisecond or two.
  assert.ok(
    gaps.every((gap) => gap > 80),
    `gaps of ${gaps.map(Math.round).join(', ')} ms`,
  );
});
