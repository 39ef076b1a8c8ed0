/**
 * The statements that end payments and settle them, each over a table in which payments of every stage
 * and of another worker stand beside the one that is meant. What is at stake: one late, doubled or mistaken step that ends a payment
 * of somebody else, holds up the others of its batch, or lets funds look settled that are not.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { writer } from '../../test/engine-rig.ts';
import { auditOfPayment } from './audit.ts';
import { findPayment } from './payments.ts';
import {
  ACCEPTED_AT,
  bystanders,
  endPayments,
  FOREIGN,
  ground,
  lastLine,
  lines,
  ME,
  MINE,
  POSTED_AT,
  settlePayments,
  type End,
} from '../../test/standing.ts';

const ending = (platform_payment_id: string, more: Partial<End> = {}): End => ({
  platform_payment_id,
  from: 'accepted',
  by: 'partner',
  ending: {
    status: 'succeeded',
    payment_id: 'P',
    initiated_at: ACCEPTED_AT,
    posted_at: POSTED_AT,
    failure_reason: null,
  },
  ...more,
});

test('of a batch of ends, the late, the foreign and the doubled change nothing, and hold up no other [PL4 PL10 RU2]', async (t) => {
  const rig = await ground(t);
  const { database, standing } = rig;
  const [first, second, late] = [
    await standing('accepted'),
    await standing('accepted'),
    await standing('accepted'),
  ];
  const [foreign, moved] = [await standing('accepted', FOREIGN), await standing('dispatching')];
  const unchanged = await bystanders(rig);
  assert.deepEqual(await endPayments(database, writer(ME), [ending(late)]), [true]);
  const before = await lines(rig);
  const at = new Date(Date.now() - 1_000).toISOString();
  const failed = {
    status: 'failed',
    payment_id: 'P',
    initiated_at: ACCEPTED_AT,
    posted_at: null,
    failure_reason: 'account closed',
  } as const;
  assert.deepEqual(
    await endPayments(database, { worker_id: ME, at }, [
      ending(late, { ending: failed }),
      ending(first),
      ending(foreign),
      ending(moved),
      ending(second, { ending: failed }),
    ]),
    [false, true, false, false, true],
  );
  assert.equal(await lines(rig), before + 2, 'one line for each that was ended');
  const row = await findPayment(database, first);
  assert.deepEqual(
    [row?.status, row?.stage, row?.ended_by, row?.posted_at, row?.failure_reason, row?.ended_at],
    ['succeeded', 'ended', 'partner', POSTED_AT, null, at],
  );
  // Nothing has captured the funds yet: whoever drives it next has to.
  assert.equal(row?.settled_at, null);
  // It was accepted before it ended, and keeps that time.
  assert.notEqual(row?.accepted_at, at);
  assert.equal((await findPayment(database, second))?.failure_reason, 'account closed');
  assert.equal((await findPayment(database, late))?.status, 'succeeded');
  assert.equal((await findPayment(database, foreign))?.status, 'processing');
  assert.equal((await findPayment(database, moved))?.stage, 'dispatching');
  assert.deepEqual(await lastLine(rig, first), [
    ME,
    'payment_ended',
    { status: 'succeeded', by: 'partner', payment_id: 'P', amount_in_cents: 700 },
  ]);
  await unchanged();
});

test('an end records the acceptance that nobody had written, and whether anything is left to settle [PL7 EE8]', async (t) => {
  const rig = await ground(t);
  const { database, standing } = rig;
  const at = new Date().toISOString();
  const cases = [
    { from: 'dispatching', by: 'partner', status: 'succeeded', settles: true },
    { from: 'dispatching', by: 'partner', status: 'canceled', settles: true },
    { from: 'dispatching', by: 'partner', status: 'failed', settles: false },
    { from: 'dispatching', by: 'refusal', status: 'failed', settles: false },
    { from: 'created', by: 'funding', status: 'failed', settles: false },
    { from: 'accepted', by: 'partner', status: 'failed', settles: true },
  ] as const;
  for (const { from, by, status, settles } of cases) {
    const id = await standing(from);
    const payment_id = by === 'partner' ? 'P' : null;
    const what = {
      status,
      payment_id,
      initiated_at: by === 'partner' ? ACCEPTED_AT : null,
      posted_at: status === 'succeeded' ? POSTED_AT : null,
      failure_reason: status === 'failed' ? 'no' : null,
    };
    const one = { platform_payment_id: id, from, by, ending: what, settles };
    assert.deepEqual(await endPayments(database, { worker_id: ME, at }, [one]), [true]);
    const row = await findPayment(database, id);
    const name = JSON.stringify({ from, by, status, settles });
    assert.deepEqual(
      [row?.payment_id, row?.initiated_at, row?.posted_at, row?.failure_reason],
      [what.payment_id, what.initiated_at, what.posted_at, what.failure_reason],
      name,
    );
    assert.deepEqual(
      [row?.ended_by, row?.settled_at, row?.accepted_at === null],
      // Declined funds leave nothing to settle; a refusal was never an acceptance.
      [by, settles || by === 'funding' ? at : null, by !== 'partner'],
      name,
    );
    assert.deepEqual(
      (await lastLine(rig, id))[2],
      { status, by, payment_id, amount_in_cents: row?.amount_in_cents },
      name,
    );
  }
});

test('settling is noted once, for ended payments of the own slots alone [PL7 PL10]', async (t) => {
  const rig = await ground(t);
  const { database, standing } = rig;
  const unchanged = await bystanders(rig);
  const failed = { ...ending('').ending, status: 'failed', posted_at: null } as const;
  const ended = async (more: Partial<End> = {}, slot = MINE): Promise<string> => {
    const id = await standing('accepted', slot);
    const owner = writer(slot === MINE ? ME : 'another');
    assert.deepEqual(await endPayments(database, owner, [ending(id, more)]), [true]);
    return id;
  };
  const captured = await ended();
  const released = await ended({ ending: { ...failed, failure_reason: 'no' } });
  const lost = await ended();
  const foreign = await ended({}, FOREIGN);
  const open = await standing('accepted');
  const bystander = await ended();
  const at = new Date(Date.now() - 1_000).toISOString();
  const settle = (ids: readonly string[]): Promise<boolean[]> =>
    settlePayments(
      database,
      { worker_id: ME, at },
      ids.map((id) => ({
        platform_payment_id: id,
        ...(id === lost ? { settled: { kind: 'uncollected', reason: 'expired' } as const } : {}),
      })),
    );
  assert.deepEqual(await settle([captured, foreign, released, open, lost]), [
    true,
    false,
    true,
    false,
    true,
  ]);
  const before = await lines(rig);
  assert.deepEqual(await settle([captured, released]), [false, false]);
  assert.equal(await lines(rig), before);
  assert.equal((await findPayment(database, captured))?.settled_at, at);
  for (const id of [foreign, open, bystander]) {
    assert.equal((await findPayment(database, id))?.settled_at, null);
  }
  for (const [id, event] of [
    [captured, 'funds_captured'],
    [released, 'funds_released'],
  ] as const) {
    assert.equal((await auditOfPayment(rig.database, id)).at(-1)?.event, event);
  }
  assert.deepEqual(await lastLine(rig, lost), [ME, 'funds_uncollected', { reason: 'expired' }]);
  await unchanged();
});
