/**
 * The customer's funds, behind a port (decision 19): authorize before the first PUT, capture after succeeded, void after failed or
 * canceled. Here are the port as the engine uses it, and a sandbox that moves no money and says so; processors are in funding/.
 *
 * holds: each act is idempotent by platform_payment_id, so that the engine may repeat it after any crash; funds are captured at
 *        most once and never both captured and voided (PL7): what must be given back after a capture is refunded (decision 111). Card
 *        and bank numbers never come here.
 */
import { testAmount, type Mode } from '@duebridge/contract';
import { groupCommit, sql, systemClock, type Clock, type Database } from '@duebridge/runtime';
import { madeAt } from './payment-id.ts';

/** A way to pay that the flow may offer. */
export interface FundingMethod {
  readonly funding_method: string;
  /** For the customer. */
  readonly label: string;
  /** True: no money moves. */
  readonly sandbox: boolean;
  /** Limits of this method, in cents, within those of the account. */
  readonly min_amount_in_cents?: number;
  readonly max_amount_in_cents?: number;
  /** What the customer agrees to by paying, by language tag, `en` at least; `{biller}` and `{amount}` are filled in by the page. */
  readonly authorization_text?: Readonly<Record<string, string>>;
  /** The page that asks for the details, from the platform's root; a confirm then carries the instrument that it returns. */
  readonly frame?: string;
  /** The customer may have to approve the payment at the processor or at their bank. */
  readonly may_act?: boolean;
}

/** Whose payment it is, without personal data. */
export interface FundingCustomer {
  readonly partner_id: string;
  readonly biller_id: string;
  readonly customer_id: string;
  /** Which methods are on offer: in test mode those of a sandbox, live all others (decision 160). */
  readonly mode: Mode;
}

/** Which funds: always those of one payment. */
export interface FundingOrder {
  readonly platform_payment_id: string;
  readonly funding_method: string;
  readonly amount_in_cents: number;
}

/**
 * What came of an authorization. `reason` is for the customer, at most 500 characters. `waits`: the customer or the processor has yet to
 * act; ask again after so many milliseconds.
 */
export type Authorization =
  | { readonly kind: 'authorized' }
  | { readonly kind: 'declined'; readonly reason: string }
  | { readonly kind: 'waits'; readonly afterMs: number };

/** What became of the funds after the end, where it is not what the payment's status says. */
export type SettledFunds =
  /** They had been taken although the payment failed, and were given back. */
  | { readonly kind: 'refunded' }
  /** The biller was paid, and the customer's funds cannot be collected any more: an operator's to solve. */
  | { readonly kind: 'uncollected'; readonly reason: string };

/** How long a call to the port may take: aborted at its deadline, and when the worker stops. */
export interface FundingCallOptions {
  readonly signal: AbortSignal;
}

/** What the customer has to do before the funds are authorized. */
export type FundingAction =
  /** Go to this page of the processor or the bank, in a window of its own, and come back. */
  | { readonly kind: 'redirect'; readonly url: string }
  /** Something that the frame of the method does; `data` is the adapter's own. */
  | { readonly kind: 'step_up'; readonly data: string };

/**
 * The port as the engine uses it. A call that throws, or is not answered by its deadline, is made again later with the same order, until
 * it gives; the one before may then still be under way.
 */
export interface Funding {
  /** The methods on offer, for this amount where one is given. */
  methods(
    customer: FundingCustomer,
    amount_in_cents?: number,
  ): readonly FundingMethod[] | Promise<readonly FundingMethod[]>;
  /**
   * Given by a port that keeps its acts in the platform's own database, in `sandbox_funds`: true for an order that it authorizes,
   * captures and releases without asking anybody. The engine then writes the act in the statement that takes the payment on, and
   * makes no call.
   */
  readonly isInDatabase?:
    ((order: Omit<FundingOrder, 'platform_payment_id'>) => boolean) | undefined;
  authorize(order: FundingOrder, call?: FundingCallOptions): Promise<Authorization>;
  /** What the customer has to do now, if anything. */
  actionOf?(order: FundingOrder): Promise<FundingAction | undefined>;
  capture(order: FundingOrder, call?: FundingCallOptions): Promise<SettledFunds | void>;
  /** Releases what was authorized, or is yet to be: an authorization that arrives after it is declined. */
  void(order: FundingOrder, call?: FundingCallOptions): Promise<SettledFunds | void>;
}

const SANDBOX_METHODS: readonly FundingMethod[] = [
  { funding_method: 'sandbox_bank', label: 'Sandbox bank account', sandbox: true },
  { funding_method: 'sandbox_declined', label: 'Sandbox account that declines', sandbox: true },
];

/** How long a customer may take to approve, and how often the sandbox looks. */
const ANSWER_WITHIN_MS = 30 * 60_000;
const ANSWER_EVERY_MS = 500;
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

/** The sandbox, with what its own page for approvals needs. */
export interface SandboxFunding extends Funding {
  actionOf(order: FundingOrder): Promise<FundingAction | undefined>;
  /** The customer approves or declines an order that asks for it; the first answer counts. */
  decide(order: FundingOrder, approves: boolean): Promise<void>;
}

/**
 * The sandbox: keeps one line per act in `sandbox_funds` and moves no money. Test amounts make it decline, or ask the customer
 * (decision 161); the page that asks is checkout/test-approval.ts, below `publicUrl`.
 */
export function sandboxFunding(options: {
  readonly database: Database;
  readonly publicUrl?: string | undefined;
  readonly clock?: Pick<Clock, 'now'>;
}): SandboxFunding {
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
  }: Omit<FundingOrder, 'platform_payment_id'>): 'declined' | 'asks' | undefined =>
    funding_method === 'sandbox_bank' ? testAmount(amount_in_cents)?.funding : 'declined';
  /** Whether the customer has answered, and how. */
  const answerOf = async ({ platform_payment_id }: FundingOrder): Promise<Act | undefined> => {
    const lines = await database.query<Line>(lookStatement, [[platform_payment_id]]);
    return lines.find((line) => line.phase === 'hold' || line.act === 'void')?.act;
  };

  return {
    methods: () => SANDBOX_METHODS,
    isInDatabase: (order) => byAmount(order) === undefined,
    async actionOf(order) {
      if (byAmount(order) !== 'asks' || (await answerOf(order)) !== undefined) return undefined;
      const path = `/flow/test/${order.platform_payment_id}`;
      return {
        kind: 'redirect',
        url: publicUrl === undefined ? path : new URL(path, publicUrl).href,
      };
    },
    async decide(order, approves) {
      if (byAmount(order) !== 'asks') return;
      await acts.add({ ...order, act: approves ? 'authorize' : 'decline' });
    },
    async authorize(order) {
      const asks = byAmount(order) === 'asks';
      const isInTime = clock.now() < madeAt(order.platform_payment_id) + ANSWER_WITHIN_MS;
      if (asks && isInTime && (await answerOf(order)) === undefined)
        return { kind: 'waits', afterMs: ANSWER_EVERY_MS };
      const declines = byAmount(order) !== undefined;
      const act = await acts.add({ ...order, act: declines ? 'decline' : 'authorize' });
      return act === 'authorize'
        ? { kind: 'authorized' }
        : { kind: 'declined', reason: 'The funding method was declined.' };
    },
    async capture(order) {
      const act = await acts.add({ ...order, act: 'capture' });
      if (act !== 'capture')
        throw new Error(`the funds of ${order.platform_payment_id} were already released`);
    },
    async void(order) {
      const act = await acts.add({ ...order, act: 'void' });
      if (act === 'void') return undefined;
      await acts.add({ ...order, act: 'refund' });
      return { kind: 'refunded' };
    },
  };
}
