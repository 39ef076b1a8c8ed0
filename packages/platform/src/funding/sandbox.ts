/**
 * The sandbox: an adapter that moves no money and says so, for registrations in test mode.
 *
 * enters: orders, as every adapter gets them.  leaves: answers that follow from the method and the amount (decision 161).
 * holds:  nothing is kept of an order but what its customer answered, where a test amount asks; every call may be repeated. The page that
 *         asks is checkout/test-approval.ts, below `publicUrl`. The answers are in `sandbox_funds`.
 */
import { testAmount } from '@duebridge/contract';
import { sql, systemClock, type Clock, type Database } from '@duebridge/runtime';
import type { FundingOrder } from '../funding.ts';
import { madeAt } from '../payment-id.ts';
import type { AdapterMethod, FundingAdapter } from './adapter.ts';

const METHODS: readonly AdapterMethod[] = [
  { funding_method: 'sandbox_bank', label: 'Sandbox bank account', sandbox: true },
  { funding_method: 'sandbox_declined', label: 'Sandbox account that declines', sandbox: true },
];

/** How long a customer may take to approve. */
const ANSWER_WITHIN_MS = 30 * 60_000;

const answerStatement = sql(
  'sandbox_funds_answer',
  `INSERT INTO duebridge_platform.sandbox_funds (platform_payment_id, act, funding_method, amount_in_cents) VALUES ($1, $2, $3, $4)
   ON CONFLICT (platform_payment_id, phase) DO NOTHING`,
);
const findStatement = sql(
  'sandbox_funds_find',
  `SELECT act FROM duebridge_platform.sandbox_funds WHERE platform_payment_id = $1 AND phase = 'hold'`,
);

/** The adapter, with what its own page for approvals needs. */
export interface Sandbox extends FundingAdapter {
  /** Whether an order waits for its customer's answer. */
  waits(order: FundingOrder): Promise<boolean>;
  /** The customer approves or declines an order that asks for it; the first answer counts. */
  decide(order: FundingOrder, approves: boolean): Promise<void>;
}

/** Opens the sandbox, whose answers of customers are in `database`. */
export function openSandbox(options: {
  readonly database: Database;
  readonly publicUrl?: string | undefined;
  readonly clock?: Pick<Clock, 'now'>;
}): Sandbox {
  const { database, publicUrl, clock = systemClock } = options;

  /** What becomes of an order; `asks` until its customer has answered or the time for it is over. */
  const standing = async (order: FundingOrder): Promise<'authorized' | 'declined' | 'asks'> => {
    const { platform_payment_id: id, funding_method, amount_in_cents } = order;
    if (funding_method !== 'sandbox_bank') return 'declined';
    const funding = testAmount(amount_in_cents)?.funding;
    if (funding !== 'asks') return funding ?? 'authorized';
    const [answer] = await database.query<{ act: string }>(findStatement, [id]);
    if (answer !== undefined) return answer.act === 'authorize' ? 'authorized' : 'declined';
    return clock.now() < madeAt(id) + ANSWER_WITHIN_MS ? 'asks' : 'declined';
  };

  return {
    name: 'sandbox',
    methods: () => METHODS,
    waits: async (order) => (await standing(order)) === 'asks',
    async decide(order, approves) {
      if ((await standing(order)) !== 'asks') return;
      const { platform_payment_id, funding_method, amount_in_cents } = order;
      const act = approves ? 'authorize' : 'decline';
      const values = [platform_payment_id, act, funding_method, amount_in_cents];
      await database.query(answerStatement, values);
    },
    async authorize(order) {
      switch (await standing(order)) {
        case 'asks': {
          const path = `/flow/test/${order.platform_payment_id}`;
          const url = publicUrl === undefined ? path : new URL(path, publicUrl).href;
          return { kind: 'requires_action', action: { kind: 'redirect', url } };
        }
        case 'authorized':
          return { kind: 'authorized' };
        case 'declined':
          return { kind: 'declined', reason: 'The funding method was declined.' };
      }
    },
    // No money moves, so nothing has to be kept to move it once.
    capture: () => Promise.resolve({ kind: 'captured' }),
    void: () => Promise.resolve('released'),
    refund: () => Promise.resolve(),
    refundPart: () => Promise.resolve({ kind: 'refunded' }),
  };
}
