/**
 * The way from a token to a receipt, and what browsers and people do on it.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { until, useRig, values } from './rig.ts';

const rig = useRig();

test('a customer pays a bill to the receipt, and the site hears of each step [S1]', async () => {
  const world = rig.flow.world({ outcome: [] });
  const visit = await rig.visit(world);
  assert.equal(await visit.start(), 'mounted');
  await visit.title('Your bill from Acme Water');
  await visit.frame.getByText('$123.45', { exact: true }).waitFor();
  await visit.frame.getByText('Due December 3, 2099').waitFor();
  await visit.press('Pay $123.45');
  await visit.title('Check your payment');
  await visit.press('Pay $123.45 now');
  await visit.title('Your payment is on its way');
  world.change({
    progress: 'accepted',
    payment_id: 'BP-7781',
    initiated_at: '2026-03-01T18:00:01.000Z',
  });
  await visit.frame.locator('li.done', { hasText: 'Accepted by Acme Water' }).waitFor();
  world.change({
    status: 'succeeded',
    progress: 'ended',
    posted_at: '2026-03-01T18:00:02.000Z',
  });
  await visit.title('Paid. Thank you!');
  await visit.frame.getByText('BP-7781').waitFor();
  await visit.press('Done');
  await until(async () => values(await visit.heard(), 'exit').length === 1);

  const heard = await visit.heard();
  const names = values(heard, 'screen').map((value) => (value as { name: string }).name);
  assert.deepEqual(names, ['review', 'confirm', 'status', 'receipt']);
  const statuses = values(heard, 'payment').map((value) => (value as { status: string }).status);
  assert.deepEqual(statuses, ['processing', 'processing', 'succeeded']);
  const [exit] = values(heard, 'exit') as { reason: string; payment: object }[];
  assert.equal(exit?.reason, 'completed');
  assert.deepEqual(exit.payment, {
    platformPaymentId: world.payments[0]!.platform_payment_id,
    status: 'succeeded',
    amountInCents: 12_345,
    initiatedAt: '2026-03-01T18:00:01.000Z',
    postedAt: '2026-03-01T18:00:02.000Z',
  });
  assert.equal(world.counts.pay, 1);
  await visit.close();
});
