/**
 * The statement that takes the steps of payments, over a table in which payments of every stage and of another worker stand beside those
 * that are meant. What is at stake: one late, doubled or mistaken step that ends a payment
 * of somebody else, holds up the others of its batch, or lets funds look settled that are not.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { writer } from '../../test/engine-rig.ts';
import { auditOfPayment } from './audit.ts';
import { findPayment } from './payments.ts';
import { takeSteps, type Step } from './steps.ts';
import {
  ACCEPTED_AT,
  advance,
  bystanders,
  endPayments,
  FOREIGN,
  ground,
  lastLine,
  lines,
  ME,
  MINE,
  POSTED_AT,
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

const FAILED = {
  status: 'failed',
  payment_id: 'P',
  initiated_at: ACCEPTED_AT,
  posted_at: null,
  failure_reason: 'account closed',
} as const;

test('of a batch of steps of every kind, the late, the foreign and the doubled change nothing, and hold up no other [PL4 PL7 PL10 RU2 EE8]', async (t) => {
  const rig = await ground(t);
  const { database, standing } = rig;
  const ended = async (more: Partial<End> = {}, slot = MINE): Promise<string> => {
    const id = await standing('accepted', slot);
    const owner = writer(slot === MINE ? ME : 'another');
    assert.deepEqual(await endPayments(database, owner, [ending(id, more)]), [true]);
    return id;
  };
  const accept = { kind: 'advance', from: 'dispatching', to: 'accepted' } as const;
  const told = { payment_id: 'P', initiated_at: ACCEPTED_AT };
  const review = { ...accept, to: 'review', review_reason: 'rejected_422' } as const;
  const settle = { kind: 'settle', from: 'ended' } as const;
  const lost = { kind: 'uncollected', reason: 'expired' } as const;
  const of = (id: string) => ({ platform_payment_id: id });
  const [accepted, reviewed] = [await standing('dispatching'), await standing('dispatching')];
  const [first, second] = [await standing('accepted'), await standing('accepted')];
  const late = await ended();
  const [captured, released] = [await ended(), await ended({ ending: FAILED })];
  const uncollected = await ended();
  const own: Step[] = [
    { ...accept, ...told, ...of(accepted) },
    { ...review, ...of(reviewed), rejection_message: 'no account', detail: { answer: 422 } },
    { kind: 'end', ...ending(first) },
    { kind: 'end', ...ending(second, { ending: FAILED }) },
    { ...settle, ...of(captured) },
    { ...settle, ...of(released) },
    { ...settle, ...of(uncollected), settled: lost },
  ];
  const others: Step[] = [
    { ...accept, ...told, ...of(await standing('dispatching', FOREIGN)) },
    { ...accept, ...told, ...of(await standing('accepted')) },
    { kind: 'end', ...ending(late, { ending: FAILED }) },
    { kind: 'end', ...ending(await standing('accepted', FOREIGN)) },
    { kind: 'end', ...ending(await standing('dispatching')) },
    { ...settle, ...of(await ended({}, FOREIGN)) },
    { ...settle, ...of(await standing('accepted')) },
  ];
  const unchanged = await bystanders(rig);
  const rows = () =>
    Promise.all(others.map((one) => findPayment(database, one.platform_payment_id)));
  const [before, wereLines] = [await rows(), await lines(rig)];
  const at = new Date(Date.now() - 1_000).toISOString();
  const batch = [...others, ...own].toSorted((a, b) =>
    a.platform_payment_id < b.platform_payment_id ? -1 : 1,
  );
  const take = () => takeSteps(database, { worker_id: ME, at }, batch);
  assert.deepEqual(
    await take(),
    batch.map((one) => own.includes(one)),
  );
  // The row itself tells of an acceptance, a capture and a release.
  assert.equal(await lines(rig), wereLines + 4);
  assert.ok((await take()).every((isTaken) => !isTaken));
  assert.equal(await lines(rig), wereLines + 4);
  assert.deepEqual(await rows(), before);
  await unchanged();
  const row = async (id: string) => (await findPayment(database, id))!;
  const one = await row(accepted);
  assert.deepEqual(
    [one.stage, one.payment_id, one.accepted_at, one.slot, one.posted_at],
    ['accepted', 'P', at, MINE, null],
  );
  const other = await row(reviewed);
  assert.deepEqual(
    [other.stage, other.review_reason, other.rejection_message, other.accepted_at, other.slot],
    // Nobody drives it until an operator has decided.
    ['review', 'rejected_422', 'no account', null, null],
  );
  assert.deepEqual(await lastLine(rig, reviewed), [ME, 'payment_review', { answer: 422 }]);
  const end = await row(first);
  assert.deepEqual(
    [end.status, end.stage, end.ended_by, end.posted_at, end.failure_reason, end.ended_at],
    ['succeeded', 'ended', 'partner', POSTED_AT, null, at],
  );
  // Nothing has captured the funds yet. It was accepted before it ended, and keeps that time.
  assert.deepEqual([end.settled_at, end.accepted_at === at], [null, false]);
  assert.deepEqual(await lastLine(rig, first), [
    ME,
    'payment_ended',
    { status: 'succeeded', payment_id: 'P', amount_in_cents: 700 },
  ]);
  const shown = (await auditOfPayment(rig.database, first)).find((line) => line.actor === ME);
  assert.equal(shown?.detail['by'], 'partner');
  assert.equal((await row(second)).failure_reason, 'account closed');
  for (const [id, event] of [
    [captured, 'funds_captured'],
    [released, 'funds_released'],
  ] as const) {
    assert.equal((await row(id)).settled_at, at);
    assert.equal((await auditOfPayment(database, id)).at(-1)?.event, event);
  }
  assert.deepEqual(await lastLine(rig, uncollected), [
    ME,
    'funds_uncollected',
    { reason: 'expired' },
  ]);
});

test('a partner that forgot a payment takes it again under another id, and the former one is kept as evidence [PF1 RU5]', async (t) => {
  const rig = await ground(t);
  const id = await rig.standing('accepted');
  const again = async (payment_id: string, initiated_at: string) => {
    const back = { platform_payment_id: id, from: 'accepted', to: 'dispatching' } as const;
    await advance(rig.database, writer(ME), [back]);
    const told = { payment_id, initiated_at };
    const taken = { ...back, from: 'dispatching', to: 'accepted', ...told } as const;
    await advance(rig.database, writer(ME), [taken]);
    const row = await findPayment(rig.database, id);
    return [row?.payment_id, row?.initiated_at];
  };
  assert.deepEqual(await again('Q', POSTED_AT), ['Q', POSTED_AT]);
  assert.deepEqual((await lastLine(rig, id))[2], { former_payment_id: 'P' });
  // The same id once more: the time of the first acceptance stays.
  assert.deepEqual(await again('Q', ACCEPTED_AT), ['Q', POSTED_AT]);
  // What a failover lost is refused as any other step of a row that is elsewhere, so that its worker reads the row.
  const { ending: said } = ending(id);
  const end = ending(id, { ending: { ...said, payment_id: 'R' } });
  assert.deepEqual(await endPayments(rig.database, writer(ME), [end]), [false]);
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
      {
        status,
        ...(by !== 'partner' && { by }),
        payment_id,
        amount_in_cents: row?.amount_in_cents,
      },
      name,
    );
  }
});
