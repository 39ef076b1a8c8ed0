/** Changes that the tables themselves reject, whatever the code does, and steps that the fence refuses. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { constraintOf, type Database } from '@duebridge/runtime';
import { idleWorker, engineRig, type EngineRig, writer } from '../../test/engine-rig.ts';
import type { Hold } from '../funding.ts';
import * as standing from '../../test/standing.ts';

const { advance } = standing;
/** A statement that changes the payment `$1`. */
const update = (change: string): string =>
  `UPDATE duebridge_platform.payments SET ${change} WHERE platform_payment_id = $1`;

async function ground(t: Parameters<typeof engineRig>[0]): Promise<EngineRig & { id: string }> {
  const rig = await engineRig(t);
  await rig.register('acme', 'http://127.0.0.1:9');
  await idleWorker(rig.database, 'me', [7]);
  const row = await rig.pay(rig.engine(), 'acme', { slot: 7 });
  return { ...rig, id: row.platform_payment_id };
}

async function refused(
  database: Database,
  statement: string,
  values: unknown[],
  rule: string,
): Promise<void> {
  await assert.rejects(database.query(statement, values), (error) => {
    // The key of a month's partition has the month in its name.
    assert.equal(constraintOf(error)?.replace(/_\d{4}_\d\d(?=_)/, ''), rule, statement);
    return true;
  });
}

test('what the customer confirmed cannot be changed by any statement [PF2 PF3 PF6 PL1 PL2]', async (t) => {
  const { database, id } = await ground(t);
  for (const change of [
    "platform_payment_id = 'other'",
    "biller_id = 'other'",
    "account_id = 'other'",
    'amount_in_cents = 1',
    "platform_batch_id = 'other'",
    "funding_method = 'other'",
    'created_at = now()',
  ]) {
    await refused(database, update(change), [id], 'payments_intent');
  }
});

test('a terminal payment never changes again, and no payment is ever deleted [RU2 PF2 PL4]', async (t) => {
  const { database, id } = await ground(t);
  const dispatched = await advance(database, writer('me'), [
    { platform_payment_id: id, from: 'created', to: 'dispatching' },
  ]);
  assert.deepEqual(dispatched, [true]);
  await database.query(
    `UPDATE duebridge_platform.payments SET status = 'succeeded', stage = 'ended', payment_id = 'P', initiated_at = now(), posted_at = now(),
            accepted_at = now(), ended_at = now() WHERE platform_payment_id = $1`,
    [id],
  );
  for (const change of [
    "status = 'failed', failure_reason = 'x', posted_at = NULL",
    "status = 'processing', stage = 'dispatching', ended_at = NULL, posted_at = NULL",
    "posted_at = now() + interval '1 day'",
    "payment_id = 'Q'",
    "ended_at = now() + interval '1 day'",
  ]) {
    await refused(database, update(change), [id], 'payments_terminal');
  }
  await database.query(update('settled_at = now()'), [id]);
  await refused(database, update('settled_at = NULL'), [id], 'payments_terminal');
  await refused(
    database,
    'DELETE FROM duebridge_platform.payments WHERE platform_payment_id = $1',
    [id],
    'kept_for_ever',
  );
  await refused(database, 'TRUNCATE duebridge_platform.payments', [], 'kept_for_ever');
});

test('only the allowed steps are taken, and a payment starts as processing [RU1 ST1 PL4]', async (t) => {
  const { database, id } = await ground(t);
  await refused(database, update("stage = 'accepted'"), [id], 'payments_edge');
  await refused(
    database,
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents,
                           funding_method, stage)
     SELECT 'new', partner_id, biller_id, account_id, platform_batch_id, 1, 'x', 'accepted' FROM duebridge_platform.payments`,
    [],
    'payments_start',
  );
  await refused(
    database,
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, funding_method)
     SELECT platform_payment_id, partner_id, biller_id, 'another', platform_batch_id, 1, 'x' FROM duebridge_platform.payments`,
    [],
    'payments_pkey',
  );
  await refused(
    database,
    `INSERT INTO duebridge_platform.payments (platform_payment_id, partner_id, biller_id, account_id, platform_batch_id, amount_in_cents, funding_method)
     SELECT 'new', partner_id, biller_id, account_id, 'no-such-batch', 1, 'x' FROM duebridge_platform.payments`,
    [],
    'payments_batch_open',
  );
});

test('what the partner said at acceptance never changes [PF1 PF7]', async (t) => {
  const { database, id } = await ground(t);
  const step = { platform_payment_id: id } as const;
  await advance(database, writer('me'), [{ ...step, from: 'created', to: 'dispatching' }]);
  await advance(database, writer('me'), [
    {
      ...step,
      from: 'dispatching',
      to: 'accepted',
      payment_id: 'P',
      initiated_at: '2026-03-01T10:00:00Z',
    },
  ]);
  for (const change of ["payment_id = 'Q'", 'payment_id = NULL', 'initiated_at = now()']) {
    await refused(
      database,
      `UPDATE duebridge_platform.payments SET ${change} WHERE platform_payment_id = $1`,
      [id],
      'payments_acceptance',
    );
  }
});

test('audit lines can be added but not changed or removed [EE8]', async (t) => {
  const { database } = await ground(t);
  await refused(database, "UPDATE duebridge_platform.audit SET event = 'x'", [], 'kept_for_ever');
  await refused(database, 'DELETE FROM duebridge_platform.audit', [], 'kept_for_ever');
  await refused(database, 'TRUNCATE duebridge_platform.audit', [], 'kept_for_ever');
});

test('a hold that ends or was acted for is noted with the step that relies on it, in a row of funds that has its reference [PL7]', async (t) => {
  const rig = await standing.ground(t);
  const expires_at = Date.parse('2026-04-01T00:00:00.000Z');
  const step = { from: 'created', to: 'dispatching' } as const;
  const cases: readonly (readonly [string, string | null, Hold, string])[] = [
    ['new', 'r', { expires_at }, 'authorized'],
    ['new', null, { expires_at }, 'new'],
    ['releasing', 'r', { expires_at }, 'releasing'],
    // One that lasts is not noted, unless the row says that the customer has yet to act.
    ['new', 'r', {}, 'new'],
    ['acting', 'r', {}, 'authorized'],
  ];
  for (const [state, reference, hold, then] of cases) {
    const id = await rig.standing('created');
    await rig.database.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state) VALUES ($1, 'a', $2, $3)`,
      [id, reference, state],
    );
    const steps = [{ ...step, hold, platform_payment_id: id }];
    assert.deepEqual(await advance(rig.database, writer(standing.ME), steps), [true]);
    // The time at which the sweep looks at it comes from the trigger.
    const [row] = await rig.database.query<{ state: string; expires_at: string | null }>(
      `SELECT state, nullif(sweep_at, '-infinity') AS expires_at FROM duebridge_platform.funds WHERE platform_payment_id = $1`,
      [id],
    );
    const isNoted = then === 'authorized' && 'expires_at' in hold;
    const until = isNoted ? new Date(expires_at).toISOString() : null;
    assert.deepEqual(row, { state: then, expires_at: until });
  }
});
