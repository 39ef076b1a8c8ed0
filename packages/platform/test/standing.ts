/** Test support: payments that stand in any stage, in slots of the worker under test and of another. */
import assert from 'node:assert/strict';
import type { MoneyCheck, PaymentStage } from '@duebridge/contract';
import type { SettledFunds } from '../src/funding.ts';
import { checkMoney } from '../src/money/check.ts';
import { setPayout } from '../src/money/payouts.ts';
import { openSealer } from '../src/partners/seal.ts';
import { idleWorker, engineRig, SEAL_KEY, stateOfFunds, writer } from './engine-rig.ts';
import type { EngineRig } from './engine-rig.ts';
import { batchFor } from '../src/reconciliation/batch.ts';
import { findPayments, insertPayment, type Queryable } from '../src/store/payments.ts';
import { takeSteps, type Step, type Writer } from '../src/store/steps.ts';

/** The worker under test. */
export const ME = 'me';
/** A slot of it, and one of another worker. */
export const [MINE, FOREIGN] = [7, 8];
/** When the partner says that it accepted them, and has posted them. */
export const ACCEPTED_AT = '2026-03-01T10:00:00.000Z';
export const POSTED_AT = '2026-03-01T10:00:05.000Z';

/** Steps of one kind. */
type Of<Kind extends Step['kind']> = Omit<Extract<Step, { kind: Kind }>, 'kind'>;
type Advance = Of<'advance'>;
export type End = Of<'end'>;
/** Takes steps that have these fields in common, as takeSteps does. */
const taking =
  <const Common extends Pick<Step, 'kind'> & Partial<Step>>(common: Common) =>
  (on: Queryable, by: Writer, steps: readonly Omit<Of<Common['kind']>, keyof Common>[]) =>
    takeSteps(
      on,
      by,
      steps.map((step) => ({ ...step, ...common }) as Step),
    );
export const advance = taking({ kind: 'advance' });
export const endPayments = taking({ kind: 'end' });
export const settlePayments = taking({ kind: 'settle', from: 'ended' });

/** What a partner says of a payment that it has posted then. */
export function posted(at: string) {
  return {
    status: 'succeeded',
    payment_id: 'P',
    initiated_at: at,
    posted_at: at,
    failure_reason: null,
  } as const;
}

/** Pays the biller by bank from now on, whose remittances bear its refunds or not. */
export async function paidByBank(
  { database, registry }: EngineRig,
  bears_refunds: boolean,
): Promise<void> {
  const partner = await registry.get('acme');
  assert(partner);
  const account = { holder_name: 'Acme', routing_number: '021000021', account_number: '1234' };
  const sealer = openSealer(SEAL_KEY);
  const order = { way: 'pain001', ...account, bears_refunds } as const;
  await setPayout({ database, sealer }, partner, order, 'ada');
}

/** Makes these people operators, whose asks count. */
export async function operators(
  { database }: Pick<EngineRig, 'database'>,
  ...names: readonly string[]
): Promise<void> {
  await database.query(
    `INSERT INTO duebridge_platform.operators (operator_id, name, role) SELECT name, name, 'operator' FROM unnest($1::text[]) AS name`,
    [names],
  );
}

/** A database with a partner and two workers, whose payments are of $7.00. */
export type Ground = Awaited<ReturnType<typeof ground>>;

/** Makes it. */
export async function ground(...rigged: Parameters<typeof engineRig>) {
  const rig = await engineRig(...rigged);
  await rig.register('acme', 'http://127.0.0.1:9');
  await idleWorker(rig.database, ME, [MINE]);
  await idleWorker(rig.database, 'another', [FOREIGN]);
  const partner = await rig.registry.get('acme');
  assert(partner);
  const paths: Partial<Record<PaymentStage, readonly Omit<Advance, 'platform_payment_id'>[]>> = {
    dispatching: [{ from: 'created', to: 'dispatching' }],
    accepted: [
      { from: 'created', to: 'dispatching' },
      { from: 'dispatching', to: 'accepted', payment_id: 'P', initiated_at: ACCEPTED_AT },
    ],
    review: [
      { from: 'created', to: 'dispatching' },
      { from: 'dispatching', to: 'review', review_reason: 'amount' },
    ],
  };
  /** A payment that stands in this stage, in a slot of ours unless told otherwise. */
  const standing = async (stage: PaymentStage, slot = MINE): Promise<string> => {
    const { platform_payment_id } = await insertPayment(rig.database, {
      partner_id: 'acme',
      biller_id: 'acme',
      account_id: 'A-1',
      platform_batch_id: await batchFor(rig.database, partner, Date.now()),
      amount_in_cents: 700,
      funding_method: 'sandbox_bank',
      slot,
      stage: 'created',
      actor: 'test',
    });
    const owner = writer(slot === MINE ? ME : 'another');
    for (const step of paths[stage] ?? []) {
      assert.deepEqual(await advance(rig.database, owner, [{ platform_payment_id, ...step }]), [
        true,
      ]);
    }
    return platform_payment_id;
  };
  const { database } = rig;
  /** A payment that the biller has, with its row of funds. */
  const sent = async (state = 'authorized'): Promise<string> => {
    const id = await standing('accepted');
    await database.query(
      `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, reference, state, expires_at, sweep_at) VALUES ($1, 'a', 'r', $2, now(), now())`,
      [id, state],
    );
    return id;
  };
  const ends = async (
    id: string,
    status: 'succeeded' | 'failed' = 'succeeded',
    settled = false,
  ): Promise<void> => {
    const ending =
      status === 'succeeded'
        ? posted(POSTED_AT)
        : { ...posted(POSTED_AT), status, posted_at: null, failure_reason: 'no' };
    const end = { platform_payment_id: id, from: 'accepted', by: 'partner', ending } as const;
    const ended = await endPayments(database, writer(ME), [{ ...end, settles: settled }]);
    assert.deepEqual(ended, [true]);
  };
  const settles = async (id: string, settled?: SettledFunds): Promise<boolean | undefined> => {
    const one = { platform_payment_id: id, ...(settled !== undefined && { settled }) };
    return (await settlePayments(database, writer(ME), [one]))[0];
  };
  const check = (): Promise<MoneyCheck> => checkMoney(database, Date.now(), 1);
  return {
    ...rig,
    standing,
    sent,
    ends,
    settles,
    check,
    /** A payment whose money was taken, or is in this state of funds already. */
    async paid(state?: string): Promise<string> {
      const id = await sent(state);
      await ends(id);
      await settles(id);
      return id;
    },
    fundsOf: (id: string) => stateOfFunds(database, id),
    /** Every cent is where it should be. */
    async holds(): Promise<void> {
      assert.deepEqual((await check()).faults, []);
    },
  };
}

/** One of each stage, and one of another worker: whatever is done to another payment, these stay as they are. */
export async function bystanders({ database, standing }: Ground): Promise<() => Promise<void>> {
  const ids = [await standing('dispatching', FOREIGN), await standing('created', FOREIGN)];
  for (const stage of ['created', 'dispatching', 'accepted', 'review'] as const) {
    ids.push(await standing(stage));
  }
  const look = async (): Promise<object[]> =>
    (await findPayments(database, ids)).toSorted((one, other) =>
      one.platform_payment_id < other.platform_payment_id ? -1 : 1,
    );
  const before = await look();
  return async () => assert.deepEqual(await look(), before, 'another payment was changed');
}

/** The last audit line of a payment: who, what, and its details. */
export async function lastLine({ database }: EngineRig, id: string): Promise<unknown[]> {
  const [line] = await database.query<{ actor: string; event: string; detail: object }>(
    `SELECT actor, event, detail FROM duebridge_platform.audit WHERE platform_payment_id = $1 ORDER BY at DESC LIMIT 1`,
    [id],
  );
  return [line?.actor, line?.event, line?.detail];
}

/** How many audit lines there are. */
export async function lines({ database }: EngineRig): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'SELECT count(*) AS count FROM duebridge_platform.audit',
  );
  return row?.count ?? 0;
}
