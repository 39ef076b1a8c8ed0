/**
 * The customer's funds, behind a port (decision 19): authorize before the first PUT, capture after succeeded, void after failed or
 * canceled. The real thing is a bank's or a processor's adapter; what ships is a sandbox that moves no money and says so.
 *
 * holds: each act is idempotent by platform_payment_id, so that the engine may repeat it after any crash; funds are captured at
 *        most once and never both captured and voided (PL7). Card and bank numbers never come here.
 */
import { groupCommit, sql, type Database } from '@duebridge/runtime';

/** A way to pay that the flow may offer. */
export interface FundingMethod {
  readonly funding_method: string;
  /** For the customer. */
  readonly label: string;
  /** True: no money moves. */
  readonly sandbox: boolean;
}

/** Which funds: always those of one payment. */
export interface FundingOrder {
  readonly platform_payment_id: string;
  readonly funding_method: string;
  readonly amount_in_cents: number;
}

/** What came of an authorization; `reason` is for the customer, at most 500 characters. */
export type Authorization =
  { readonly kind: 'authorized' } | { readonly kind: 'declined'; readonly reason: string };

/** How long a call to the port may take: aborted at its deadline, and when the worker stops. */
export interface FundingCallOptions {
  readonly signal: AbortSignal;
}

/**
 * The port. A call that throws, or is not answered by its deadline, is made again later with the same order, until it gives; the one
 * before may then still be under way.
 */
export interface Funding {
  methods(): readonly FundingMethod[];
  /**
   * Given by a port that keeps its acts in the platform's own database, in `sandbox_funds`: true for an order that it authorizes,
   * captures and releases without asking anybody. The engine then writes the act in the statement that takes the payment on, and
   * makes no call.
   */
  readonly isInDatabase?: ((order: FundingOrder) => boolean) | undefined;
  authorize(order: FundingOrder, call?: FundingCallOptions): Promise<Authorization>;
  capture(order: FundingOrder, call?: FundingCallOptions): Promise<void>;
  /** Releases what was authorized, or is yet to be: an authorization that arrives after it is declined. */
  void(order: FundingOrder, call?: FundingCallOptions): Promise<void>;
}

const SANDBOX_METHODS: readonly FundingMethod[] = [
  { funding_method: 'sandbox_bank', label: 'Sandbox bank account', sandbox: true },
  { funding_method: 'sandbox_declined', label: 'Sandbox account that declines', sandbox: true },
];

/** Acts in one statement at most. */
const MAX_BATCH = 500;
/** Acts waiting at most; far above what one engine has under way. */
const MAX_QUEUED = 100_000;

const actStatement = sql(
  'sandbox_funds_act',
  `INSERT INTO duebridge_platform.sandbox_funds (platform_payment_id, act, funding_method, amount_in_cents)
   SELECT u.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS u (id, act, funding_method, amount_in_cents)
    WHERE u.act NOT IN ('authorize', 'decline')
       OR NOT EXISTS (SELECT 1 FROM duebridge_platform.sandbox_funds f WHERE f.platform_payment_id = u.id AND f.phase = 'settle')
   ON CONFLICT (platform_payment_id, phase) DO NOTHING
   RETURNING platform_payment_id, act`,
);
const lookStatement = sql(
  'sandbox_funds_look',
  `SELECT platform_payment_id, phase, act FROM duebridge_platform.sandbox_funds WHERE platform_payment_id = ANY($1)`,
);

type Act = 'authorize' | 'decline' | 'capture' | 'void';

interface Line {
  readonly platform_payment_id: string;
  readonly phase: 'hold' | 'settle';
  readonly act: Act;
}

/** The sandbox: keeps one line per act in `sandbox_funds` and moves no money. */
export function sandboxFunding(options: { readonly database: Database }): Funding {
  const { database } = options;
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
        const phase = order.act === 'authorize' || order.act === 'decline' ? 'hold' : 'settle';
        // Nothing stands and nothing was written: they were released before, and are not reserved any more.
        return stands.get(`${order.platform_payment_id} ${phase}`) ?? 'decline';
      });
    },
  });

  return {
    methods: () => SANDBOX_METHODS,
    isInDatabase: (order) => order.funding_method === 'sandbox_bank',
    async authorize(order) {
      const declines = order.funding_method !== 'sandbox_bank';
      const act = await acts.add({ ...order, act: declines ? 'decline' : 'authorize' });
      return act === 'authorize'
        ? { kind: 'authorized' }
        : { kind: 'declined', reason: 'The funding method was declined.' };
    },
    async capture(order) {
      const act = await acts.add({ ...order, act: 'capture' });
      if (act !== 'capture')
        throw new Error(`the funds of ${order.platform_payment_id} were released before`);
    },
    async void(order) {
      const act = await acts.add({ ...order, act: 'void' });
      if (act !== 'void')
        throw new Error(`the funds of ${order.platform_payment_id} were captured before`);
    },
  };
}
