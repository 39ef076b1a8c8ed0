/**
 * Processors that keep a hold per payment: the short form of an adapter. Five calls, each of which returns the hold as it is then
 * (docs/funding.md shows one in about 20 lines).
 *
 * enters: the processor's own calls.  leaves: an adapter that follows the rules of adapter.ts.
 * holds:  only a state that the processor told decides. A call that throws, or that leaves the hold undecided, is repeated later; but
 *         a hold that has come to its end meanwhile is recognized, because the answer to an earlier call may have been lost.
 */
import type { FundingCallOptions } from '../funding.ts';
import type { AdapterMethod, FundingAdapter, FundsOrder, PreparedOrder } from './adapter.ts';

/** A hold at a processor. */
export interface Hold {
  /** The processor's id: the reference of the payment's funds. */
  readonly id: string;
  /** `ended`: nothing is held, and nothing can be held under this id any more: declined, released or expired. */
  readonly state: 'open' | 'held' | 'taken' | 'ended' | 'refunded';
  /** While it is open: where the customer approves it. */
  readonly url?: string | null | undefined;
  /** While it is held: wall milliseconds at which it ends by itself, where it does. */
  readonly expires_at?: number | undefined;
  /** Of one that ended: why, for the customer, in one sentence. */
  readonly reason?: string | null | undefined;
}

/** One call to the processor. */
export interface HoldCall extends FundingCallOptions {
  /** The same whenever this call is repeated, and different for every other call of the payment. */
  readonly idempotency_key: string;
}

/** A processor with holds. Each call returns the hold as it is afterwards, and throws for everything that is not certain. */
export interface HoldProcessor {
  /** As of an adapter: `[a-z0-9_]`. */
  readonly name: string;
  readonly methods: readonly AdapterMethod[];
  /** Registers the payment without holding money. */
  create(order: FundsOrder, call: HoldCall): Promise<Hold>;
  read(order: PreparedOrder, call: HoldCall): Promise<Hold>;
  /** Takes what is held. */
  capture(order: PreparedOrder, call: HoldCall): Promise<Hold>;
  /** Ends a hold that has not been taken. */
  release(order: PreparedOrder, call: HoldCall): Promise<Hold>;
  /** Gives back what was taken. */
  refund(order: PreparedOrder, call: HoldCall): Promise<Hold>;
}

/** The adapter of a processor with holds. */
export function adapterOfHolds(processor: HoldProcessor): FundingAdapter {
  type Act = 'create' | 'read' | 'capture' | 'release' | 'refund';
  const keyed = (order: FundsOrder, act: Act, call: FundingCallOptions): HoldCall => ({
    ...call,
    idempotency_key: `${order.platform_payment_id}:${act}`,
  });
  const read = (order: PreparedOrder, call: FundingCallOptions): Promise<Hold> =>
    processor.read(order, keyed(order, 'read', call));
  /** Acts, and returns the hold once `decided` says that it has come to an end of this act. */
  const act = async (
    name: 'capture' | 'release' | 'refund',
    order: PreparedOrder,
    call: FundingCallOptions,
    decided: readonly Hold['state'][],
  ): Promise<Hold> => {
    let hold: Hold;
    try {
      hold = await processor[name](order, keyed(order, name, call));
    } catch (error) {
      hold = await read(order, call);
      if (!decided.includes(hold.state)) throw error;
    }
    if (decided.includes(hold.state)) return hold;
    throw new Error(`the hold ${hold.id} is ${hold.state} after its ${name}`);
  };
  return {
    name: processor.name,
    methods: () => processor.methods,
    async prepare(order, call) {
      return (await processor.create(order, keyed(order, 'create', call))).id;
    },
    async authorize(order, call) {
      const { state, url, reason, expires_at } = await read(order, call);
      switch (state) {
        case 'held':
        case 'taken':
          return { kind: 'authorized', ...(expires_at === undefined ? {} : { expires_at }) };
        case 'ended':
        case 'refunded':
          return { kind: 'declined', reason: reason ?? 'The funding method was declined.' };
        case 'open':
          return typeof url === 'string'
            ? { kind: 'requires_action', action: { kind: 'redirect', url } }
            : { kind: 'pending' };
        default:
          throw new Error(`the hold ${order.reference} has the unknown state ${String(state)}`);
      }
    },
    async capture(order, call) {
      const { state, id } = await act('capture', order, call, ['taken', 'ended', 'refunded']);
      if (state === 'taken') return { kind: 'captured' };
      return { kind: 'uncollectable', reason: `the hold ${id} is ${state}` };
    },
    async void(order, call) {
      const { state } = await act('release', order, call, ['ended', 'taken', 'refunded']);
      return state === 'taken' ? 'captured' : 'released';
    },
    async refund(order, call) {
      await act('refund', order, call, ['refunded', 'ended']);
    },
  };
}
