/**
 * The sandbox: an adapter that moves no money and says so, for registrations in test mode.
 *
 * enters: orders, as every adapter gets them.  leaves: its own book, one line per act, in `sandbox_funds`.
 * holds:  the first act of each phase of a payment counts, so that every call may be repeated. Test amounts make it decline, or ask the
 *         customer (decision 161); the page that asks is checkout/test-approval.ts, below `publicUrl`.
 */
import { testAmount } from '@duebridge/contract';
import { groupCommit, sql, systemClock, type Clock, type Database } from '@duebridge/runtime';
import type { FundingOrder } from '../funding.ts';
import { madeAt } from '../payment-id.ts';
import type { AdapterMethod, FundingAdapter } from './adapter.ts';

const METHODS: readonly AdapterMethod[] = [
  { funding_method: 'sandbox_bank', label: 'Sandbox bank account', sandbox: true },
  { funding_method: 'sandbox_declined', label: 'Sandbox account that declines', sandbox: true },
];

/** How long a customer may take to approve. */
const ANSWER_WITHIN_MS = 30 * 60_000;
/** Acts in one statement at most. */
const MAX_BATCH = 500;
/** Acts waiting at most; far above what one engine has under way. */
const MAX_QUEUED = 100_000;

// The settled ones are read once for all acts: a sharded database refuses a subquery that looks them up act by act.
const actStatement = sql(
  'sandbox_funds_act',
  `INSERT INTO duebridge_platform.sandbox_funds (platform_payment_id, act, funding_method, amount_in_cents)
   SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS u (id, act, funding_method, amount_in_cents)
     LEFT JOIN (SELECT f.platform_payment_id FROM duebridge_platform.sandbox_funds f
                 WHERE f.platform_payment_id = ANY ($1::text[]) AND f.phase = 'settle') AS settled ON settled.platform_payment_id = u.id
    WHERE u.act NOT IN ('authorize', 'decline') OR settled.platform_payment_id IS NULL
   ON CONFLICT (platform_payment_id, phase) DO NOTHING
   RETURNING platform_payment_id, act`,
);
const lookStatement = sql(
  'sandbox_funds_look',
  `SELECT platform_payment_id, phase, act FROM duebridge_platform.sandbox_funds WHERE platform_payment_id = ANY($1)`,
);

type Act = 'authorize' | 'decline' | 'capture' | 'void' | 'refund';

const PHASES = {
  authorize: 'hold',
  decline: 'hold',
  capture: 'settle',
  void: 'settle',
  refund: 'undo',
} as const satisfies Record<Act, string>;

interface Line {
  readonly platform_payment_id: string;
  readonly phase: (typeof PHASES)[Act];
  readonly act: Act;
}

/** The adapter, with what its own page for approvals needs. */
export interface Sandbox extends FundingAdapter {
  /** Whether an order waits for its customer's answer. */
  waits(order: FundingOrder): Promise<boolean>;
  /** The customer approves or declines an order that asks for it; the first answer counts. */
  decide(order: FundingOrder, approves: boolean): Promise<void>;
}

/** Opens the sandbox over its book in `database`. */
export function openSandbox(options: {
  readonly database: Database;
  readonly publicUrl?: string | undefined;
  readonly clock?: Pick<Clock, 'now'>;
}): Sandbox {
  const { database, publicUrl, clock = systemClock } = options;
  const acts = groupCommit<FundingOrder & { readonly act: Act }, Act>({
    maxBatch: MAX_BATCH,
    maxQueued: MAX_QUEUED,
    async flush(orders) {
      const written = await database.query<Line>(actStatement, [
        orders.map((order) => order.platform_payment_id),
        orders.map((order) => order.act),
        orders.map((order) => order.funding_method),
        orders.map((order) => order.amount_in_cents),
      ]);
      if (written.length === orders.length) return orders.map((order) => order.act);
      // Some stood there already. A separate statement: within the insert's own snapshot a racing line could not be seen.
      const lines = await database.query<Line>(lookStatement, [
        orders.map((order) => order.platform_payment_id),
      ]);
      const stands = new Map(
        lines.map((line) => [`${line.platform_payment_id} ${line.phase}`, line.act]),
      );
      return orders.map((order) => {
        const phase = PHASES[order.act];
        // Nothing stands and nothing was written: they were released before, and are not reserved any more.
        return stands.get(`${order.platform_payment_id} ${phase}`) ?? 'decline';
      });
    },
  });

  const byAmount = ({
    funding_method,
    amount_in_cents,
  }: FundingOrder): 'declined' | 'asks' | undefined =>
    funding_method === 'sandbox_bank' ? testAmount(amount_in_cents)?.funding : 'declined';
  const waits = async (order: FundingOrder): Promise<boolean> => {
    if (byAmount(order) !== 'asks') return false;
    if (clock.now() >= madeAt(order.platform_payment_id) + ANSWER_WITHIN_MS) return false;
    const lines = await database.query<Line>(lookStatement, [[order.platform_payment_id]]);
    return !lines.some((line) => line.phase === 'hold' || line.act === 'void');
  };

  return {
    name: 'sandbox',
    methods: () => METHODS,
    waits,
    async decide(order, approves) {
      if (byAmount(order) !== 'asks') return;
      await acts.add({ ...order, act: approves ? 'authorize' : 'decline' });
    },
    async authorize(order) {
      if (await waits(order)) {
        const path = `/flow/test/${order.platform_payment_id}`;
        const url = publicUrl === undefined ? path : new URL(path, publicUrl).href;
        return { kind: 'requires_action', action: { kind: 'redirect', url } };
      }
      const declines = byAmount(order) !== undefined;
      const act = await acts.add({ ...order, act: declines ? 'decline' : 'authorize' });
      return act === 'authorize'
        ? { kind: 'authorized' }
        : { kind: 'declined', reason: 'The funding method was declined.' };
    },
    async capture(order) {
      const act = await acts.add({ ...order, act: 'capture' });
      return act === 'capture'
        ? { kind: 'captured' }
        : { kind: 'uncollectable', reason: 'the funds were released' };
    },
    async void(order) {
      return (await acts.add({ ...order, act: 'void' })) === 'void' ? 'released' : 'captured';
    },
    async refund(order) {
      await acts.add({ ...order, act: 'refund' });
    },
    // No money moves, so nothing has to be kept to move it once.
    refundPart: () => Promise.resolve({ kind: 'refunded' }),
  };
}
