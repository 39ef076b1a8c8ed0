/**
 * The funds of payments at processors: between the engine's port and the adapters (decision 110).
 *
 * enters: a payment's order, as the engine asks; what a webhook told.  leaves: the port's answers. The engine writes them into the row
 *         of `funds` with the step that follows from them; what must be known before that is written here.
 * holds:  the reference is stored before the authorization is asked for, so that no crash leaves funds held that nobody knows. The row
 *         decides what may follow: once a release has begun, no authorization is reported any more, and a late one is released too.
 *         Funds taken for a payment that failed or was canceled are refunded (decision 110).
 * next:   the processor, by adapter.ts.
 */
import {
  Refusal,
  type FlowAction,
  type FlowFundingMethod,
  type FlowSavedMethods,
} from '@duebridge/contract';
import {
  groupCommit,
  sql,
  steadyClock,
  type Clock,
  type Database,
  type GroupCommit,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import {
  lasts,
  type Authorization,
  type Collection,
  type FundingCallOptions,
  type FundingOrder,
  type Hold,
  type SettledFunds,
} from '../funding.ts';
import type { Partner } from '../partners/registry.ts';
import type { Sealer } from '../partners/seal.ts';
import type { Queryable } from '../store/payments.ts';
import type {
  AdapterMethod,
  FundingAdapter,
  PreparedOrder,
  ProcessorAuthorization,
  ProcessorEvent,
  RefundedPart,
  RefundPart,
} from './adapter.ts';
import { applyEvent } from './apply-event.ts';
import { sandbox } from './sandbox.ts';
import { forgetSaved, openSaved, savedCustomer, type Saver } from './saved.ts';
import { sweepFunds } from './sweep.ts';

/** How long the customer has for a step-up or a redirect: longer than a bank's own limit, shorter than a session. */
const ACT_WITHIN_MS = 30 * 60_000;
/** Pause between two reads of the row of a waiting authorization. */
const LOOK_MS = 1_000;
/**
 * The interval at which the processor is asked while the customer acts, first and after `PROMPT_MS`; a webhook makes it prompt
 * again.
 */
const ASK_MS = 2_000;
const ASK_LATER_MS = 30_000;
const PROMPT_MS = 2 * 60_000;
/** Rows of funds that one statement reads, or stores references in, at most. */
const MAX_BATCH = 500;
/** Orders waiting for such a statement at most: one per payment under way. */
const MAX_QUEUED = 1_000_000;

/** Outcomes that need an operator. */
const WANTED = ['uncollected', 'event_disputed', 'event_returned'] as const;

/** Shown to a customer who did not approve in time. */
const TOO_LATE = 'The payment was not approved in time.';
const WITHDRAWN = 'The payment was withdrawn.';
const EXPIRED = 'The authorization expired before the payment could be sent.';

/** The states of funds, and how the money stands in each: what may still be asked of the processor follows from it. */
const STANDS = {
  new: 'open',
  acting: 'open',
  authorized: 'open',
  captured: 'taken',
  declined: 'given_up',
  releasing: 'given_up',
  released: 'given_up',
  refunded: 'given_up',
  uncollected: 'lost',
  borne: 'lost',
} as const satisfies Record<string, 'open' | 'taken' | 'given_up' | 'lost'>;
type State = keyof typeof STANDS;

interface FundsRow {
  readonly platform_payment_id: string;
  readonly adapter: string;
  readonly instrument: string | null;
  readonly customer: string | null;
  readonly reference: string | null;
  readonly state: State;
  readonly action: string | null;
  readonly act_by: string | null;
  readonly asked_at: string | null;
  readonly news_at: string | null;
  readonly reason: string | null;
}

const COLUMNS =
  'platform_payment_id, adapter, instrument, customer, reference, state, action, act_by, asked_at, news_at, reason';

const keepStatement = sql(`
   INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, instrument, reference, customer) VALUES ($1, $2, $3, $4, $5)
   ON CONFLICT (platform_payment_id) DO NOTHING`);
const findStatement = sql(`
   SELECT ${COLUMNS} FROM duebridge_platform.funds WHERE platform_payment_id = ANY($1)`);
const referStatement = sql(`
   UPDATE duebridge_platform.funds AS f SET reference = u.reference FROM unnest($1::text[], $2::text[]) AS u (id, reference)
    WHERE f.platform_payment_id = u.id AND f.state = 'new' AND f.reference IS NULL RETURNING f.platform_payment_id`);
const actStatement = sql(`
   UPDATE duebridge_platform.funds 
      SET state = CASE WHEN $2::text IS NULL THEN state ELSE 'acting' END, action = coalesce($2, action),
          act_by = coalesce(act_by, $3::timestamptz), asked_at = $4::timestamptz
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting') RETURNING 1`);
const declineStatement = sql(`
   UPDATE duebridge_platform.funds SET state = 'declined', action = NULL, reason = $2
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting', 'authorized', 'declined') RETURNING 1`);
/** From here on no authorization is reported any more. */
const releaseStatement = sql(`
   UPDATE duebridge_platform.funds SET state = 'releasing', action = NULL
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting', 'authorized', 'captured', 'declined', 'releasing') RETURNING 1`);
/** They were captured before their payment ended (sweep.ts). */
const takenEarlyStatement = sql(`
   SELECT 1 FROM duebridge_platform.transfers t WHERE t.id = $1 AND t.act = 'taken_early'`);

const instant = (ms: number): string => new Date(ms).toISOString();
const placeOf = (id: string): string => `funds/${id}/action`;

/** What the funds depend on. */
export interface FundsOptions {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  readonly adapters: readonly FundingAdapter[];
  /** The public listener's address as browsers reach it, for returns from a redirect. */
  readonly publicUrl?: string | undefined;
}

/**
 * The funds of all payments. `authorize`, `capture` and `release` read the row of one payment, ask the processor what the row allows, and
 * answer the engine. A call of these that throws, or is not answered by its deadline, is made again later with the same order, until it
 * gives; the one before may then still be under way.
 */
export class Funds {
  /** The adapters offered. */
  readonly adapters: readonly FundingAdapter[];
  readonly #on: FundsOptions;
  /** How long a customer has had is an interval: a step of the wall clock must not end an approval, or hide it. */
  readonly #clock: Clock;
  readonly #byName: ReadonlyMap<string, FundingAdapter>;
  /** A method, and the adapter that offers it. */
  readonly #byMethod: ReadonlyMap<string, { adapter: FundingAdapter; method: AdapterMethod }>;
  readonly #count: (adapter: string, outcome: string) => void;
  readonly #rows: GroupCommit<string, FundsRow | undefined>;
  readonly #references: GroupCommit<{ id: string; reference: string }, boolean>;

  constructor(on: FundsOptions) {
    const { adapters } = on;
    this.#on = on;
    this.adapters = adapters;
    this.#clock = steadyClock(on.clock);
    // Where it is not offered any more, payments that used it are still there.
    const known = [sandbox, ...adapters];
    this.#byName = new Map(known.map((adapter) => [adapter.name, adapter]));
    this.#byMethod = new Map(
      known.flatMap((adapter) =>
        adapter.methods().map((method) => [method.funding_method, { adapter, method }] as const),
      ),
    );
    const outcomes = on.metrics?.counter(
      'duebridge_funds_total',
      'What became of funds at processors, and what their webhooks reported, by adapter',
      ['adapter', 'outcome'],
    );
    // Start at zero, so that the first occurrence of each kind is an increase that an alert can see.
    for (const { name } of adapters) {
      for (const outcome of WANTED) outcomes?.inc({ adapter: name, outcome }, 0);
    }
    this.#count = (adapter, outcome) => outcomes?.inc({ adapter, outcome });
    // As the writes of the engine: many payments in one statement.
    const group = { maxBatch: MAX_BATCH, maxQueued: MAX_QUEUED, concurrency: 2 };
    this.#rows = groupCommit({
      ...group,
      async flush(ids) {
        const found = await on.database.query<FundsRow>(findStatement, [ids]);
        const byId = new Map(found.map((row) => [row.platform_payment_id, row]));
        return ids.map((id) => byId.get(id));
      },
    });
    this.#references = groupCommit({
      ...group,
      async flush(some) {
        const stored = await on.database.query<Pick<FundsRow, 'platform_payment_id'>>(
          referStatement,
          [some.map(({ id }) => id), some.map(({ reference }) => reference)],
        );
        const ids = new Set(stored.map((row) => row.platform_payment_id));
        return some.map(({ id }) => ids.has(id));
      },
    });
  }

  /** The methods on offer to a partner's customers: in test mode those of a sandbox, live all others (decision 160). */
  methods({ partner_id, mode }: Pick<Partner, 'partner_id' | 'mode'>): FlowFundingMethod[] {
    return this.adapters
      .flatMap((adapter) => adapter.methods())
      .filter(({ sandbox }) => sandbox === (mode === 'test'))
      .map(({ asks, ...method }) => {
        const frame = `flow/v1/${encodeURIComponent(partner_id)}/fund/${method.funding_method}`;
        return asks === true ? { ...method, frame } : method;
      });
  }

  /** When this method takes the money; `reserved` for one that is not configured any more. */
  collection(funding_method: string): Collection {
    return this.#byMethod.get(funding_method)?.method.collection ?? 'reserved';
  }

  /** Stores the input from the page, if the method takes any, in the transaction that creates the payment. Throws Refusal INVALID_REQUEST. */
  async keep(
    on: Queryable,
    { platform_payment_id, funding_method }: FundingOrder,
    instrument: string | undefined,
    flow_id?: Buffer,
  ): Promise<void> {
    const own = this.#byMethod.get(funding_method);
    const asks = own?.method.asks === true;
    if ((instrument !== undefined) !== asks) {
      const problem = `is ${asks ? 'required' : 'not accepted'} by this funding method`;
      throw new Refusal('INVALID_REQUEST', { details: [{ path: 'body.instrument', problem }] });
    }
    if (own === undefined || own.method.collection === 'elsewhere') return;
    const { adapter, method } = own;
    const customer =
      method.saves && flow_id ? await savedCustomer(on, adapter.name, flow_id) : undefined;
    await keepRow(on, adapter, platform_payment_id, { instrument, customer });
  }

  /** What the page of a method needs to show and save methods of this customer. */
  async openSaved(session: Saver, funding_method: string): Promise<FlowSavedMethods> {
    const own = this.#byMethod.get(funding_method);
    return own?.method.saves === true
      ? openSaved(this.#on.database, own.adapter, session)
      : { data: null };
  }

  /** What the customer has to do now, if anything. */
  async actionOf({ platform_payment_id: id }: FundingOrder): Promise<FlowAction | undefined> {
    const [row] = await this.#on.database.query<FundsRow>(findStatement, [[id]]);
    if (row?.action === null || row === undefined) return undefined;
    return JSON.parse(this.#on.sealer.open(row.action, placeOf(id))) as FlowAction;
  }

  /**
   * Applies a verified event, once: returns false for one that was applied before, and for one about a payment that is not
   * recorded under this adapter.
   */
  async apply(adapter: string, event: ProcessorEvent): Promise<boolean> {
    const { event_id, platform_payment_id, kind } = event;
    const { database, log } = this.#on;
    if (!(await applyEvent(database, adapter, event, instant(this.#clock.now())))) return false;
    this.#count(adapter, `event_${kind}`);
    if (kind === 'disputed' || kind === 'returned') {
      log.error(
        { platform_payment_id, event_id, kind },
        'the funds of a payment are disputed or were returned: an operator has to act',
      );
    }
    return true;
  }

  /** Captures authorizations that are about to expire, and makes releases that nothing else makes. */
  async sweep(): Promise<void> {
    const { database, log } = this.#on;
    await sweepFunds({
      database,
      clock: this.#clock,
      log,
      capture: (order, call) => this.capture(order, call),
      release: (order, call) => this.release(order, call),
    });
    await forgetSaved(database, this.#byName, log);
  }

  /** The row, its adapter, and the order in the adapter's form. */
  async #read(
    order: FundingOrder,
  ): Promise<{ adapter: FundingAdapter; row: FundsRow; full: PreparedOrder }> {
    const id = order.platform_payment_id;
    let row = await this.#rows.add(id);
    if (row === undefined) {
      // Nothing was kept for a payment that no page made, and its method needs no details.
      const own = this.#byMethod.get(order.funding_method);
      if (own === undefined || own.method.asks === true) {
        throw new Error(`no funds are kept for ${id}`);
      }
      await keepRow(this.#on.database, own.adapter, id, {});
      row = await this.#rows.add(id);
      if (row === undefined) throw new Error(`no funds are kept for ${id}`);
    }
    const adapter = this.#byName.get(row.adapter);
    if (adapter === undefined) {
      throw new Error(
        `the funding adapter ${row.adapter} is not configured, and payments still need it: add it to DUEBRIDGE_FUNDING`,
      );
    }
    const full = {
      platform_payment_id: id,
      funding_method: order.funding_method,
      amount_in_cents: order.amount_in_cents,
      instrument: row.instrument ?? undefined,
      customer: row.customer ?? undefined,
      reference: row.reference ?? '',
      return_url:
        this.#on.publicUrl === undefined
          ? undefined
          : new URL('/flow/return', this.#on.publicUrl).href,
    };
    return { adapter, row, full };
  }

  /**
   * The order with its reference, which is stored before the processor can hold or take anything. Undefined when a release has begun, or
   * another worker was first: nothing is held yet, so nothing has to be released.
   */
  async #prepared(
    adapter: FundingAdapter,
    full: PreparedOrder,
    call: FundingCallOptions,
  ): Promise<PreparedOrder | undefined> {
    if (full.reference !== '') return full;
    const id = full.platform_payment_id;
    const reference = (await adapter.prepare?.(full, call)) ?? id;
    return (await this.#references.add({ id, reference })) ? { ...full, reference } : undefined;
  }

  async #decline(adapter: FundingAdapter, id: string, reason: string): Promise<Authorization> {
    const text = reason.slice(0, 500);
    await this.#on.database.query(declineStatement, [id, text]);
    this.#count(adapter.name, 'declined');
    return { kind: 'declined', reason: text };
  }

  /** Ends an authorization that came too late. Releases first, because the customer might still approve it a moment later. */
  async #endLate(
    adapter: FundingAdapter,
    full: PreparedOrder,
    call: FundingCallOptions,
    reason: string,
  ): Promise<Authorization> {
    if ((await adapter.void(full, call)) === 'captured') await adapter.refund(full, call);
    return this.#decline(adapter, full.platform_payment_id, reason);
  }

  async authorize(order: FundingOrder, call: FundingCallOptions): Promise<Authorization> {
    const { adapter, row, full } = await this.#read(order);
    const now = this.#clock.now();
    const stands = STANDS[row.state];
    if (stands === 'taken') return { kind: 'authorized' };
    if (stands !== 'open') {
      // Only what was declined has a reason for the customer.
      const reason = row.state === 'declined' ? row.reason : null;
      return { kind: 'declined', reason: reason ?? WITHDRAWN };
    }
    if (row.state === 'acting' && !isDue(row, now)) return { kind: 'waits', afterMs: LOOK_MS };
    const ready = await this.#prepared(adapter, full, call);
    if (ready === undefined) return { kind: 'waits', afterMs: LOOK_MS };
    const reply = await adapter.authorize(ready, call);
    switch (reply.kind) {
      case 'authorized': {
        const { expires_at } = reply;
        const hold: Hold = expires_at === undefined ? {} : { expires_at };
        if (!lasts(hold, now)) return this.#endLate(adapter, ready, call, EXPIRED);
        this.#count(adapter.name, 'authorized');
        return { kind: 'authorized', ...hold };
      }
      case 'declined':
        return this.#decline(adapter, full.platform_payment_id, reply.reason);
      case 'requires_action':
      case 'pending':
        // The customer may have acted in time, and the process that waited for it have died since: only the processor knows.
        return row.state === 'authorized' || Date.parse(row.act_by ?? '') <= now
          ? this.#endLate(adapter, ready, call, TOO_LATE)
          : this.#waits(adapter, row, reply, now);
    }
  }

  /** The customer or the processor has yet to act. */
  async #waits(
    adapter: FundingAdapter,
    row: FundsRow,
    reply: Extract<ProcessorAuthorization, { kind: 'requires_action' | 'pending' }>,
    now: number,
  ): Promise<Authorization> {
    const id = row.platform_payment_id;
    const acts = reply.kind === 'requires_action';
    if (acts || row.state === 'acting') {
      const sealed = acts ? this.#on.sealer.seal(JSON.stringify(reply.action), placeOf(id)) : null;
      const act_by = instant(now + ACT_WITHIN_MS);
      await this.#on.database.query(actStatement, [id, sealed, act_by, instant(now)]);
    }
    if (acts && row.state === 'new') this.#count(adapter.name, 'requires_action');
    return { kind: 'waits', afterMs: acts ? LOOK_MS : ASK_MS };
  }

  async capture(order: FundingOrder, call: FundingCallOptions): Promise<SettledFunds | void> {
    // What is collected elsewhere was never ours: there is nothing to take or to give back.
    if (this.collection(order.funding_method) === 'elsewhere') {
      return { kind: 'captured', source: 'elsewhere' };
    }
    const { adapter, row, full } = await this.#read(order);
    const id = order.platform_payment_id;
    const lost = (reason: string): SettledFunds => ({ kind: 'uncollected', reason });
    switch (STANDS[row.state]) {
      case 'taken':
        return { kind: 'captured', source: 'under_way' };
      case 'lost':
        return lost(row.reason ?? 'unknown');
      case 'given_up':
        return lost(`the funds were ${row.state}, not authorized`);
      case 'open':
    }
    const ready = await this.#prepared(adapter, full, call);
    if (ready === undefined) throw new Error(`the funds of ${id} changed meanwhile`);
    const reply = await adapter.capture(ready, call);
    if (reply.kind === 'captured') {
      this.#count(adapter.name, 'captured');
      return undefined;
    }
    const reason = reply.reason.slice(0, 500);
    this.#count(adapter.name, 'uncollected');
    this.#on.log.error(
      { platform_payment_id: id, reason },
      'the biller was paid, but the customer’s funds cannot be collected',
    );
    return lost(reason);
  }

  /** Refunds a part of what was captured; see FundingAdapter.refundPart. */
  async refundPart(
    order: FundingOrder,
    part: RefundPart,
    call: FundingCallOptions,
  ): Promise<RefundedPart> {
    const { adapter, full } = await this.#read(order);
    if (adapter.refundPart === undefined) {
      return { kind: 'refused', reason: `${adapter.name} has no partial refunds` };
    }
    return adapter.refundPart(full, part, call);
  }

  /** Releases what was authorized, or is yet to be: an authorization that arrives after it is declined. */
  async release(order: FundingOrder, call: FundingCallOptions): Promise<SettledFunds | void> {
    if (this.collection(order.funding_method) === 'elsewhere') return undefined;
    const before = await this.#read(order);
    const refunded = async (): Promise<SettledFunds> => {
      const early = await this.#on.database.query(takenEarlyStatement, [order.platform_payment_id]);
      return { kind: 'refunded', ...(early.length > 0 ? { source: 'under_way' } : {}) };
    };
    if (before.row.state === 'refunded') return refunded();
    if (before.row.state === 'released' || before.row.state === 'uncollected') return undefined;
    await this.#on.database.query(releaseStatement, [order.platform_payment_id]);
    // Read again: a reference may have been stored before this statement, and none can be stored after it.
    const { adapter, full } = await this.#read(order);
    if (full.reference === '') return undefined;
    if ((await adapter.void(full, call)) === 'released') {
      this.#count(adapter.name, 'released');
      return undefined;
    }
    await adapter.refund(full, call);
    this.#count(adapter.name, 'refunded');
    return refunded();
  }
}

/** Whose reference needs no call is given one at once: the payment's own id. */
async function keepRow(
  on: Queryable,
  adapter: FundingAdapter,
  id: string,
  { instrument, customer }: { instrument?: string | undefined; customer?: string | undefined },
): Promise<void> {
  const reference = adapter.prepare === undefined ? id : null;
  const row = [id, adapter.name, instrument ?? null, reference, customer ?? null];
  await on.query(keepStatement, row);
}

/** Whether to ask the processor about an authorization that waits for the customer. */
function isDue({ asked_at, news_at, act_by }: FundsRow, now: number): boolean {
  if (asked_at === null || act_by === null) return true;
  const asked = Date.parse(asked_at);
  if (news_at !== null && Date.parse(news_at) >= asked) return true;
  const began = Date.parse(act_by) - ACT_WITHIN_MS;
  return now - asked >= (now - began < PROMPT_MS ? ASK_MS : ASK_LATER_MS);
}
