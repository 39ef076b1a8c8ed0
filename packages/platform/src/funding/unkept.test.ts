/** Funds of which nothing has to be remembered: they have no row until something happens to them, and then as any others. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, systemClock } from '@duebridge/runtime';
import { requestRefund } from '../money/refunds.ts';
import { ground } from '../../test/standing.ts';
import { applyEvent } from './apply-event.ts';

test('funds that were simply taken are refunded, and disputed, without a row of before [PL7 PL17]', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  const at = new Date().toISOString();
  const taken = async (): Promise<string> => {
    const id = await rig.standing('accepted');
    await rig.ends(id);
    await rig.settles(id);
    assert.equal(await rig.fundsOf(id), undefined);
    return id;
  };
  const refunding = {
    database,
    refundPart: () => Promise.resolve({ kind: 'refunded' } as const),
    secondPersonAboveCents: 1_000_000,
    clock: systemClock,
    log: silentLog,
  };
  const request = { amount_in_cents: 300, reason_code: 'charged_twice', reason: 'asked' } as const;
  const refund = (id: string) => requestRefund(refunding, id, request, 'ada');
  assert.equal((await refund(await taken())).outcome, 'done');

  const lost = await taken();
  const tell = (kind: 'returned' | 'news', id: string, ...methods: string[]) =>
    applyEvent(database, 'bank', { event_id: id, platform_payment_id: id, kind }, at, methods);
  assert.equal(await tell('returned', lost, 'another_method'), false, 'not of that adapter');
  assert.equal(await tell('returned', lost, 'sandbox_bank'), true);
  assert.equal(await rig.fundsOf(lost), 'uncollected');
  await assert.rejects(refund(lost), { code: 'CONFLICT' });

  // Before the settlement an event makes no row: the settlement would not see it.
  const open = await rig.standing('accepted');
  assert.equal(await tell('news', open, 'sandbox_bank'), true);
  assert.equal(await rig.fundsOf(open), undefined);
  await rig.holds();
});
