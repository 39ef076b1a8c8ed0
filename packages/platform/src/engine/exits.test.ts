/**
 * No state without an exit (LV6): every state that a payment and its funds can reach is in the table of docs/reliability.md, and each act
 * of an operator that the table names ends the state.
 */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { PAYMENT_STAGES, type PaymentStage } from '@duebridge/contract';
import { findPayment, type PaymentRow } from '../store/payments.ts';
import {
  advance,
  endPayments,
  ground,
  ME,
  MINE,
  settlePayments,
  type Ground,
} from '../../test/standing.ts';
import { readStatement } from '../reconciliation/batch.ts';
import { isWithdrawable } from '../admin/payment-list.ts';
import { endCase } from '../store/cases.ts';
import { pausePayment, settleByWord, withdrawPayment } from '../store/operators-acts.ts';
import type { Partner } from '../partners/registry.ts';
import { activePayment } from './active-payment.ts';
import { callsEndMs } from './options.ts';
import { decide, type PaymentEvent, type PaymentMemory } from './payment-steps.ts';
import { SettlementTimes } from './poll-schedule.ts';
import { closePayment } from './review.ts';
import { writer } from '../../test/engine-rig.ts';

const PAGE = new URL('../../../../docs/reliability.md', import.meta.url);
const NO_ONE = { reason: 'a test', actor: 'ada' } as const;

/** The rows of the table: a state, and the acts that end it. */
async function table(): Promise<Map<string, string[]>> {
  const text = await readFile(PAGE, 'utf8');
  const from = text.slice(text.indexOf('## Every state and its exits'));
  const rows = [...from.matchAll(/^\| `([a-z_]+)`[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|/gm)];
  return new Map(
    rows.map(([, state = '', , acts = '']) => [
      state,
      [...acts.matchAll(/`([a-z]+)`/g)].map(([, act = '']) => act),
    ]),
  );
}

/** The stages that a payment reaches by any answers in any order. */
function reached(): Set<PaymentStage> {
  const times = { dueAt: 0, startedAt: 0, retryAfterMs: undefined };
  const facts = { status: 200, ...times, waited: false, askedToWait: false };
  const acceptance = { payment_id: 'P', initiated_at: '2026-03-01T10:00:00.000Z' };
  const ended = { status: 'succeeded', ...acceptance, posted_at: acceptance.initiated_at } as const;
  const answers = [
    { kind: 'processing', acceptance, anomaly: undefined },
    { kind: 'incomplete', acceptance },
    { kind: 'ended', ending: { ...ended, failure_reason: null }, anomaly: undefined },
    { kind: 'mismatch', field: 'amount_in_cents' },
    { kind: 'unknown', reason: 'server_error' },
    { kind: 'held', reason: 'credentials' },
  ] as const;
  const absent = { kind: 'not_found', believed: true } as const;
  const rejection = { kind: 'rejected', status: 422, code: 'X', message: undefined } as const;
  const funds: PaymentEvent[] = [
    { kind: 'authorized' },
    { kind: 'declined', reason: 'no' },
    { kind: 'waits', afterMs: 1 },
    { kind: 'funding_failed' },
  ];
  const puts: PaymentEvent[] = [
    ...answers.map((outcome) => ({ kind: 'submitted', outcome, facts }) as const),
    { kind: 'rejected', rejection, found: absent, facts },
  ];
  const gets: PaymentEvent[] = [...answers, absent].map((outcome) => ({
    kind: 'polled',
    outcome,
    facts,
  }));
  const around = {
    now: 1,
    random: () => 0.5,
    times: { retryMs: 1, maxRetryMs: 2, pollMs: 1, trialMs: 1 },
    callsEndMs: 1,
    collection: 'reserved',
    refusals: [],
    settlements: new SettlementTimes(),
    canWait: false,
    workedAt: 0,
  } as const;
  const row = { stage: 'created', status: 'processing', created_at: '', accepted_at: null };
  const first: PaymentMemory = activePayment(row as PaymentRow, 0, undefined as never, {
    now: 0,
    at: 0,
    databaseNow: '',
  });
  const stages = new Set<PaymentStage>();
  const queue: [PaymentStage, PaymentMemory][] = [['created', { ...first }]];
  for (const [stage, memory] of queue) {
    if (stages.has(stage)) continue;
    stages.add(stage);
    if (stage === 'review' || stage === 'ended') continue;
    const isUnsent = stage === 'created';
    if (isUnsent) queue.push(['dispatching', { ...memory, stage: 'dispatching' }]);
    for (const event of isUnsent ? funds : stage === 'dispatching' ? puts : gets) {
      const { write, memory: more } = decide(memory, event, around);
      const to = write?.kind === 'advance' ? write.to : write?.kind === 'end' ? 'ended' : stage;
      queue.push([to, { ...memory, ...more, stage: to }]);
    }
  }
  return stages;
}

/** A payment in this state, with its row of funds; the partner answers every GET with 500. */
async function inState(rig: Ground, state: string): Promise<string> {
  const stages: Record<string, PaymentStage> = {
    paused: 'dispatching',
    ended: 'accepted',
    maybe_sent: 'created',
  };
  const isOfFunds = state === 'releasing';
  if (state === 'uncollected') {
    const id = await inState(rig, 'ended');
    const settled = { kind: 'uncollected', reason: 'expired' } as const;
    await settlePayments(rig.database, writer(ME), [{ platform_payment_id: id, settled }]);
    return id;
  }
  const stage = isOfFunds ? 'accepted' : (stages[state] ?? state);
  const id = await rig.standing(stage as PaymentStage);
  const funds = isOfFunds ? state : 'authorized';
  await rig.database.query(
    `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state) VALUES ($1, 'a', 'r', $2)`,
    [id, funds],
  );
  if (state === 'maybe_sent') {
    await rig.database.query(
      'UPDATE duebridge_platform.payments SET maybe_sent = true WHERE platform_payment_id = $1',
      [id],
    );
  }
  if (state === 'ended' || isOfFunds) {
    const isFailed = state === 'releasing';
    const ending = {
      status: isFailed ? 'failed' : 'succeeded',
      payment_id: 'P',
      initiated_at: null,
      posted_at: isFailed ? null : '2026-03-01T10:00:05.000Z',
      failure_reason: isFailed ? 'no' : null,
    } as const;
    const end = { platform_payment_id: id, from: 'accepted', by: 'partner', ending } as const;
    assert.deepEqual(
      await endPayments(rig.database, writer(ME), [{ ...end, settles: isOfFunds }]),
      [true],
    );
  }
  return id;
}

/** Waits out the time in which calls of before a pause may be under way. */
async function pause(rig: Ground, id: string): Promise<void> {
  await pausePayment(rig.database, id, 'a test', 'ada');
  await rig.database.query('ALTER TABLE duebridge_platform.audit DISABLE TRIGGER ALL');
  await rig.database.query(
    `UPDATE duebridge_platform.audit SET at = at - interval '1 minute' WHERE platform_payment_id = $1`,
    [id],
  );
}

async function act(rig: Ground, name: string, state: string, id: string): Promise<void> {
  const word = { outcome: 'canceled', evidence: 'ticket 7' } as const;
  const status = (await findPayment(rig.database, id))?.status;
  switch (name) {
    case 'withdraw':
      await withdrawPayment(rig.database, id, NO_ONE.reason, NO_ONE.actor);
      return;
    case 'close':
      if (state !== 'review') await pause(rig, id);
      await closePayment(rig, id, NO_ONE, word);
      return;
    case 'end': {
      const on = { database: rig.database, secondPersonAboveCents: 1_000 };
      const said = { actor: NO_ONE.actor, at: '2026-03-02T00:00:00Z' };
      const end = { disposition: 'written_off', reason: NO_ONE.reason } as const;
      const { outcome } = await endCase(on, `uncollected-${id}`, end, said);
      assert.equal(outcome, 'done');
      return;
    }
    case 'settle':
      await settleByWord(
        rig.database,
        id,
        { outcome: status === 'succeeded' ? 'borne' : 'refunded', evidence: 'ticket 7' },
        { ...NO_ONE, approved_by: 'grace' },
      );
      return;
    default:
      assert.fail(`the table names the act ${name}, which this test does not know`);
  }
}

test('every state that a payment can reach is in the table of exits [LV6]', async () => {
  const rows = await table();
  const stages = reached();
  // Earlier versions wrote `authorized`, from which the same leads on as from `created`.
  assert.deepEqual(stages, new Set(PAYMENT_STAGES.filter((stage) => stage !== 'authorized')));
  for (const stage of stages) assert.ok(rows.has(stage), `${stage} is not in docs/reliability.md`);
  for (const [state, acts] of rows) assert.ok(acts.length > 0, `${state} has no exit`);
});

test('each act of the table ends its state, though neither the partner nor the processor answers [LV6]', async (t) => {
  const rig = await ground(t);
  for (const [state, acts] of await table()) {
    for (const name of acts) {
      const id = await inState(rig, state);
      const before = await findPayment(rig.database, id);
      assert.equal(before && isWithdrawable(before), acts.includes('withdraw'), state);
      await act(rig, name, state, id);
      const row = await findPayment(rig.database, id);
      assert.notEqual(row?.status, 'processing', `${name} of ${state}`);
      if (row?.settled_at !== null) continue;
      // The funds of one that was ended are a worker's to settle, or, if its processor fails for good, an operator's again.
      assert.equal(row.slot, -1);
      await act(rig, 'settle', 'ended', id);
      assert.notEqual((await findPayment(rig.database, id))?.settled_at, null);
    }
  }
});

test('funds that are settled, or that do not fit the end of their payment, are not settled by word', async (t) => {
  const rig = await ground(t);
  const evidence = 'ticket 7';
  const refused = (id: string, outcome: 'captured' | 'released'): Promise<void> =>
    assert.rejects(settleByWord(rig.database, id, { outcome, evidence }, NO_ONE), {
      code: 'CONFLICT',
    });
  await refused(await rig.standing('accepted'), 'captured');
  const ended = await inState(rig, 'ended');
  await refused(ended, 'released');
  const settling = settlePayments(rig.database, writer(ME), [{ platform_payment_id: ended }]);
  assert.deepEqual(await settling, [true]);
  await refused(ended, 'captured');
  const unknown = settleByWord(rig.database, 'never', { outcome: 'borne', evidence }, NO_ONE);
  await assert.rejects(unknown, { code: 'PAYMENT_NOT_FOUND' });
});

test('a payment is closed by word only when no call for it can be under way [PL5]', async (t) => {
  const rig = await ground(t);
  const closes = (id: string) =>
    closePayment(rig, id, NO_ONE, { outcome: 'failed', evidence: 'ticket 7' });
  for (const stage of ['created', 'dispatching', 'accepted'] as const) {
    const id = await rig.standing(stage);
    await assert.rejects(closes(id), { code: 'CONFLICT' }, stage);
    await pausePayment(rig.database, id, 'a test', 'ada');
    await assert.rejects(closes(id), { code: 'CONFLICT' }, `${stage}, paused a moment ago`);
    assert.equal((await findPayment(rig.database, id))?.status, 'processing');
  }
  // A minute later one may be, where a partner is given two for each.
  const slow = await rig.standing('dispatching');
  const give = (call_timeout_ms: number) =>
    rig.registry.change('acme', { budget: { call_timeout_ms } }, 'ada');
  await give(120_000);
  await pause(rig, slow);
  await assert.rejects(closes(slow), { code: 'CONFLICT' });
  // After a 401 there is a second one, and a token may be fetched for each.
  const granted = { budget: { call_timeout_ms: 25_000 }, auth: { method: 'oauth' } };
  assert.ok(callsEndMs(granted as Partner) >= 2 * (10_000 + 25_000));
  await give(15_000);
  // One that succeeded by word has what the partner said.
  const id = await rig.standing('dispatching', MINE);
  const step = { platform_payment_id: id, from: 'dispatching', to: 'review' } as const;
  await advance(rig.database, writer(ME), [{ ...step, review_reason: 'mismatch_amount_in_cents' }]);
  const posted_at = '2026-03-01T10:00:05.000Z';
  const evidence = 'ticket 7';
  const word = { outcome: 'succeeded', payment_id: 'P-9', posted_at, evidence } as const;
  const lost = await inState(rig, 'maybe_sent');
  await pause(rig, lost);
  let succeeded = 0;
  for (const platform_payment_id of [id, lost]) {
    const row = await closePayment(rig, platform_payment_id, NO_ONE, word);
    assert.deepEqual(
      [row.status, row.payment_id, row.posted_at, row.ended_by, row.slot],
      ['succeeded', 'P-9', posted_at, 'operator', -1],
    );
    // It was accepted, whatever was heard of it: its batch has it, so that its biller is paid.
    const { totals } = await readStatement(rig.database, row.platform_batch_id);
    succeeded += 1;
    assert.equal(totals.find(({ status }) => status === 'succeeded')?.count, succeeded);
  }
});
