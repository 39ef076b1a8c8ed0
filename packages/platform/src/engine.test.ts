import assert from 'node:assert/strict';
import test from 'node:test';
import { scriptedPartner, stand } from './engine-testing.ts';

test('a payment is put once, polled until it has ended, and then left alone [S4 RU4 EV1 B4 B5]', async (t) => {
  const place = await stand(t);
  const partner = await scriptedPartner(t);
  partner.pollsToEnd = 3;
  await place.register('acme', partner.url);
  const engine = place.engine();
  await engine.start();
  const row = await place.pay(engine, 'acme');
  const done = await place.until(row.platform_payment_id, (now) => now.settled_at !== null);
  assert.equal(done.status, 'succeeded');
  assert.equal(done.payment_id, `P-${row.platform_payment_id}`);
  assert.notEqual(done.posted_at, null);
  const calls = partner.seen.length;
  assert.deepEqual(
    partner.seen.map((seen) => seen.method),
    ['PUT', 'GET', 'GET', 'GET', 'GET'],
  );
  await engine.tick();
  await engine.tick();
  assert.equal(partner.seen.length, calls);
  const funds = await place.database.query(
    'SELECT act FROM sandbox_funds WHERE platform_payment_id = $1 ORDER BY phase',
    [row.platform_payment_id],
  );
  assert.deepEqual(funds, [{ act: 'authorize' }, { act: 'capture' }]);
});
