import assert from 'node:assert/strict';
import test from 'node:test';
import { silentLog, systemClock } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import { ground } from '../../test/standing.ts';
import { sweepFunds } from './sweep.ts';

test('holds that cannot be captured keep no other waiting, replicas take different ones, and reviews are left to their operator [PL7]', async (t) => {
  const rig = await ground(t);
  const clock = manualClock(Date.parse('2026-03-01T10:00:00.000Z'));
  const hold = async (stage: 'accepted' | 'review' | 'created', seconds: number) => {
    const id = await rig.standing(stage);
    await rig.database.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state, expires_at, sweep_at)
       VALUES ($1, 'a', 'r', 'authorized', $2::timestamptz, $2::timestamptz)`,
      [id, new Date(clock.now() + seconds * 1_000).toISOString()],
    );
    return id;
  };
  const bad = await Promise.all(Array.from({ length: 105 }, (_, n) => hold('accepted', n)));
  const [good, review] = [await hold('accepted', 3_600), await hold('review', 3_600)];
  const unsent = await hold('created', 3_600);
  const asked: string[] = [];
  const sweep = (): Promise<void> =>
    sweepFunds({
      database: rig.database,
      clock,
      log: silentLog,
      capture: ({ platform_payment_id: id }) => {
        asked.push(id);
        return id === good ? Promise.resolve() : Promise.reject(new Error('500'));
      },
      release: () => Promise.resolve(),
    });
  await Promise.all([sweep(), sweep()]);
  assert.equal(asked.length, bad.length + 1, 'each once');
  assert.ok(asked.includes(good));
  assert.ok(!asked.includes(review) && !asked.includes(unsent));
  assert.equal(await rig.fundsOf(good), 'captured');
  const booked = await rig.database.query(
    'SELECT id, act, debit, credit, amount_in_cents FROM duebridge_platform.transfers',
  );
  assert.deepEqual(booked, [
    { id: good, act: 'taken_early', debit: 'taken', credit: 'under_way', amount_in_cents: 700 },
  ]);
  await clock.advance(11 * 60_000);
  await sweep();
  assert.equal(asked.length, 2 * bad.length + 1, 'the others again, after a pause');
});

test('funds whose payment ends while they are captured early are booked once, by its settlement', async (t) => {
  const rig = await ground(t);
  const { database } = rig;
  const id = await rig.sent();
  await sweepFunds({
    database,
    clock: systemClock,
    log: silentLog,
    capture: () => rig.ends(id),
    release: () => Promise.resolve(),
  });
  assert.ok(await rig.settles(id));
  assert.deepEqual(
    await database.query('SELECT act, debit, credit FROM duebridge_platform.transfers'),
    [{ act: 'settled', debit: 'taken', credit: 'owed' }],
  );
});
