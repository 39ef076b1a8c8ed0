/**
 * The funds of payments at processors: between the engine's port and the adapters (decision 110).
 *
 * enters: a payment's order, as the engine asks; what a webhook told.  leaves: the port's answers, and the row of `funds`.
 * holds:  the reference is stored before the authorization is asked for, so that no crash leaves funds held that nobody knows. The row
 *         decides what may follow: once a release has begun, no authorization is reported any more, and a late one is released too.
 *         Funds taken for a payment that failed or was canceled are refunded (decision 111). Sandbox orders pass through.
 * next:   the processor, by adapter.ts.
 *
 * One file because every act on funds is decided by the same row, whose states exclude each other.
 */
import { Refusal } from '@duebridge/contract';
import {
  messageOf,
  sql,
  type Clock,
  type Database,
  type Log,
  type Metrics,
} from '@duebridge/runtime';
import type {
  Authorization,
  Funding,
  FundingAction,
  FundingCallOptions,
  FundingMethod,
  FundingOrder,
  SettledFunds,
} from '../funding.ts';
import type { Sealer } from '../partners/seal.ts';
import type { Queryable } from '../store/payments.ts';
import type { FundingAdapter, PreparedOrder, ProcessorEvent } from './adapter.ts';

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
/**
 * While its payment is in progress, an authorization is captured this long before it expires, which leaves time for several
 * failed sweeps.
 */
const CAPTURE_BEFORE_MS = 12 * 3_600_000;
/** Interval of the sweep. */
const SWEEP_MS = 60_000;
/** Maximum rows per sweep. */
const SWEEP_ROWS = 100;
/** Maximum duration of a sweep's call to a processor. */
const SWEEP_CALL_MS = 15_000;

/** Outcomes that need an operator. */
const WANTED = ['uncollected', 'event_disputed', 'event_returned'] as const;

/** Shown to a customer who did not approve in time. */
const TOO_LATE = 'The payment was not approved in time.';
const WITHDRAWN = 'The payment was withdrawn.';

type State =
  | 'new'
  | 'acting'
  | 'authorized'
  | 'declined'
  | 'captured'
  | 'releasing'
  | 'released'
  | 'refunded'
  | 'uncollected';

interface FundsRow {
  readonly adapter: string;
  readonly instrument: string | null;
  readonly reference: string | null;
  readonly state: State;
  readonly action: string | null;
  readonly act_by: string | null;
  readonly asked_at: string | null;
  readonly news_at: string | null;
  readonly reason: string | null;
}

/** The port, with the additional operations of the checkout and the webhooks. */
export interface Funds extends Funding {
  /** The adapters offered, without the sandbox. */
  readonly adapters: readonly FundingAdapter[];
  /** Stores the input from the page, in the transaction that creates the payment. Does nothing for a sandbox order. */
  keep(on: Queryable, order: FundingOrder, instrument: string | undefined): Promise<void>;
  /** What the customer has to do now, if anything. */
  actionOf(order: FundingOrder): Promise<FundingAction | undefined>;
  /**
   * Applies a verified event, once: returns false for one that was applied before, and for one about a payment that is not
   * recorded under this adapter.
   */
  apply(adapter: string, event: ProcessorEvent): Promise<boolean>;
  /** Captures authorizations that are about to expire, and makes releases that nothing else makes. */
  sweep(): Promise<void>;
}

const COLUMNS = 'adapter, instrument, reference, state, action, act_by, asked_at, news_at, reason';

const keepStatement = sql(
  'funds_keep',
  `INSERT INTO duebridge_platform.funds (platform_payment_id, adapter, instrument) VALUES ($1, $2, $3)`,
);
const findStatement = sql(
  'funds_find',
  `SELECT ${COLUMNS} FROM duebridge_platform.funds WHERE platform_payment_id = $1`,
);
const referStatement = sql(
  'funds_refer',
  `UPDATE duebridge_platform.funds SET reference = $2
    WHERE platform_payment_id = $1 AND state = 'new' AND reference IS NULL RETURNING 1`,
);
const askedStatement = sql(
  'funds_asked',
  `UPDATE duebridge_platform.funds SET asked_at = $2::timestamptz WHERE platform_payment_id = $1`,
);
const actStatement = sql(
  'funds_act',
  `UPDATE duebridge_platform.funds SET state = 'acting', action = $2, act_by = coalesce(act_by, $3::timestamptz)
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting') RETURNING 1`,
);
const heldStatement = sql(
  'funds_held',
  `UPDATE duebridge_platform.funds SET state = 'authorized', action = NULL, expires_at = $2::timestamptz
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting', 'authorized') RETURNING 1`,
);
const declineStatement = sql(
  'funds_decline',
  `UPDATE duebridge_platform.funds SET state = 'declined', action = NULL, reason = $2
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting', 'declined') RETURNING 1`,
);
/** From here on no authorization is reported any more. */
const releaseStatement = sql(
  'funds_release',
  `UPDATE duebridge_platform.funds SET state = 'releasing', action = NULL
    WHERE platform_payment_id = $1 AND state IN ('new', 'acting', 'authorized', 'captured', 'declined', 'releasing') RETURNING 1`,
);
const endStatement = sql(
  'funds_end',
  `UPDATE duebridge_platform.funds SET state = $2, reason = $3
    WHERE platform_payment_id = $1 AND state = ANY($4) RETURNING 1`,
);
/**
 * The event, its effect on the row, and its audit line. A payment that failed or was canceled must not keep funds, whatever the
 * row said about them: `taken` then begins a release.
 */
const applyStatement = sql(
  'funds_apply_event',
  `WITH p AS (
     SELECT p.platform_payment_id, p.partner_id, p.status
       FROM duebridge_platform.payments p JOIN duebridge_platform.funds f USING (platform_payment_id)
      WHERE p.platform_payment_id = $3 AND f.adapter = $1
   ), fresh AS (
     INSERT INTO duebridge_platform.funding_events AS made (adapter, event_id, kind, platform_payment_id)
     SELECT $1, $2, $4, p.platform_payment_id FROM p
     ON CONFLICT (adapter, event_id) DO NOTHING
     RETURNING made.kind
   ), changed AS (
     UPDATE duebridge_platform.funds f
        SET news_at = $5::timestamptz,
            state = CASE WHEN fresh.kind = 'taken' AND p.status IN ('failed', 'canceled')
                          AND f.state IN ('new', 'acting', 'declined', 'released') AND f.reference IS NOT NULL THEN 'releasing'
                         WHEN fresh.kind = 'returned' AND f.state = 'captured' THEN 'uncollected'
                         ELSE f.state END,
            action = CASE WHEN fresh.kind = 'taken' AND p.status IN ('failed', 'canceled') THEN NULL ELSE f.action END
       FROM fresh, p WHERE f.platform_payment_id = p.platform_payment_id
   ), noted AS (
     INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
     SELECT 'processor ' || $1, 'funds_' || $4, p.platform_payment_id, p.partner_id, $6::jsonb
       FROM p, fresh WHERE fresh.kind IN ('disputed', 'returned', 'refunded')
   )
   SELECT kind FROM fresh`,
);
const expiringStatement = sql(
  'funds_expiring',
  `SELECT p.platform_payment_id, p.funding_method, p.amount_in_cents
     FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE f.state = 'authorized' AND f.expires_at < $1::timestamptz
      AND p.status = 'processing' AND p.stage IN ('dispatching', 'accepted', 'review')
    ORDER BY f.expires_at LIMIT ${SWEEP_ROWS}`,
);
/** A release that the settlement of its payment will not make, because the settlement is over. */
const owedStatement = sql(
  'funds_owed',
  `SELECT p.platform_payment_id, p.partner_id, p.funding_method, p.amount_in_cents
     FROM duebridge_platform.funds f JOIN duebridge_platform.payments p USING (platform_payment_id)
    WHERE f.state = 'releasing' AND p.settled_at IS NOT NULL
    ORDER BY f.platform_payment_id LIMIT ${SWEEP_ROWS}`,
);
const noteStatement = sql(
  'funds_note',
  `INSERT INTO duebridge_platform.audit (actor, event, platform_payment_id, partner_id, detail)
   SELECT 'funding', $2, p.platform_payment_id, p.partner_id, $3::jsonb FROM duebridge_platform.payments p WHERE p.platform_payment_id = $1`,
);

/** Opens the port over `adapters` and, when the sandbox is offered, with its methods first. */
export function openFunds(options: {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics;
  /** Kept for payments that used it, whether it is still offered or not. */
  readonly sandbox: Funding;
  readonly offersSandbox: boolean;
  readonly adapters: readonly FundingAdapter[];
  /** The public listener's address as browsers reach it, for returns from a redirect. */
  readonly publicUrl?: string | undefined;
}): Funds {
  const { database, sealer, clock, log, sandbox, offersSandbox, adapters, publicUrl } = options;
  const byName = new Map(adapters.map((adapter) => [adapter.name, adapter]));
  const adapterOf = new Map<string, FundingAdapter>();
  for (const adapter of adapters) {
    for (const { funding_method } of adapter.methods()) adapterOf.set(funding_method, adapter);
  }
  const outcomes = options.metrics?.counter(
    'duebridge_funds_total',
    'What became of funds at processors, and what their webhooks reported, by adapter',
    ['adapter', 'outcome'],
  );
  // Start at zero, so that the first occurrence of each kind is an increase that an alert can see.
  for (const { name } of adapters) {
    for (const outcome of WANTED) outcomes?.inc({ adapter: name, outcome }, 0);
  }
  const count = (adapter: string, outcome: string): void => outcomes?.inc({ adapter, outcome });
  const instant = (ms: number): string => new Date(ms).toISOString();
  const placeOf = (id: string): string => `funds/${id}/action`;

  /** The row, its adapter, and the order in the adapter's form; undefined for an order of the sandbox. */
  const read = async (
    order: FundingOrder,
  ): Promise<{ adapter: FundingAdapter; row: FundsRow; full: PreparedOrder } | undefined> => {
    const [row] = await database.query<FundsRow>(findStatement, [order.platform_payment_id]);
    if (row === undefined) {
      // Never fall back from a processor to the sandbox: the payment would count as funded.
      if (isOfSandbox(order)) return undefined;
      throw new Error(`no funds are kept for ${order.platform_payment_id}`);
    }
    const adapter = byName.get(row.adapter);
    if (adapter === undefined) {
      throw new Error(
        `the funding adapter ${row.adapter} is not configured, and payments still need it: add it to DUEBRIDGE_FUNDING`,
      );
    }
    const full = {
      platform_payment_id: order.platform_payment_id,
      funding_method: order.funding_method,
      amount_in_cents: order.amount_in_cents,
      instrument: row.instrument ?? undefined,
      reference: row.reference ?? '',
      return_url: publicUrl === undefined ? undefined : new URL('/flow/return', publicUrl).href,
    };
    return { adapter, row, full };
  };

  const end = async (
    id: string,
    state: State,
    from: readonly State[],
    reason: string | null = null,
  ): Promise<boolean> => (await database.query(endStatement, [id, state, reason, from])).length > 0;

  const decline = async (
    adapter: FundingAdapter,
    id: string,
    reason: string,
  ): Promise<Authorization> => {
    const text = reason.slice(0, 500);
    await database.query(declineStatement, [id, text]);
    count(adapter.name, 'declined');
    return { kind: 'declined', reason: text };
  };

  const authorize = async (
    order: FundingOrder,
    call: FundingCallOptions,
  ): Promise<Authorization> => {
    const found = await read(order);
    if (found === undefined) return sandbox.authorize(order, call);
    const { adapter, row, full } = found;
    const id = order.platform_payment_id;
    const now = clock.now();
    switch (row.state) {
      case 'authorized':
      case 'captured':
        return { kind: 'authorized' };
      case 'declined':
        return { kind: 'declined', reason: row.reason ?? WITHDRAWN };
      case 'releasing':
      case 'released':
      case 'refunded':
      case 'uncollected':
        return { kind: 'declined', reason: WITHDRAWN };
      case 'acting':
        if (row.act_by !== null && Date.parse(row.act_by) <= now) {
          // Release first, because the customer might still approve it a moment later.
          if ((await adapter.void(full, call)) === 'captured') await adapter.refund(full, call);
          return decline(adapter, id, TOO_LATE);
        }
        if (!isDue(row, now)) return { kind: 'waits', afterMs: LOOK_MS };
        break;
      case 'new':
        break;
    }
    let { reference } = full;
    if (reference === '') {
      reference = await adapter.prepare(full, call);
      const stored = await database.query(referStatement, [id, reference]);
      if (stored.length === 0) {
        // Withdrawn in the meantime, or another worker was first. Nothing is held yet, so nothing has to be released.
        return { kind: 'waits', afterMs: LOOK_MS };
      }
    }
    await database.query(askedStatement, [id, instant(now)]);
    const reply = await adapter.authorize({ ...full, reference }, call);
    switch (reply.kind) {
      case 'authorized': {
        const expires = reply.expires_at === undefined ? null : instant(reply.expires_at);
        const held = await database.query(heldStatement, [id, expires]);
        // A release has begun and will find these funds by their reference.
        if (held.length === 0) return { kind: 'declined', reason: WITHDRAWN };
        count(adapter.name, 'authorized');
        return { kind: 'authorized' };
      }
      case 'declined':
        return decline(adapter, id, reply.reason);
      case 'requires_action': {
        const sealed = sealer.seal(JSON.stringify(reply.action), placeOf(id));
        await database.query(actStatement, [id, sealed, instant(now + ACT_WITHIN_MS)]);
        if (row.state === 'new') count(adapter.name, 'requires_action');
        return { kind: 'waits', afterMs: LOOK_MS };
      }
      case 'pending':
        return { kind: 'waits', afterMs: ASK_MS };
    }
  };

  const capture = async (
    order: FundingOrder,
    call: FundingCallOptions,
  ): Promise<SettledFunds | void> => {
    const found = await read(order);
    if (found === undefined) return sandbox.capture(order, call);
    const { adapter, row, full } = found;
    const id = order.platform_payment_id;
    const lost = (reason: string): SettledFunds => ({ kind: 'uncollected', reason });
    switch (row.state) {
      case 'captured':
        return undefined;
      case 'uncollected':
        return lost(row.reason ?? 'unknown');
      case 'new':
      case 'acting':
      case 'declined':
      case 'releasing':
      case 'released':
      case 'refunded':
        return lost(`the funds were ${row.state}, not authorized`);
      case 'authorized':
        break;
    }
    const reply = await adapter.capture(full, call);
    if (reply.kind === 'captured') {
      await end(id, 'captured', ['authorized']);
      count(adapter.name, 'captured');
      return undefined;
    }
    const reason = reply.reason.slice(0, 500);
    await end(id, 'uncollected', ['authorized'], reason);
    count(adapter.name, 'uncollected');
    log.error(
      { platform_payment_id: id, reason },
      'the biller was paid, but the customer’s funds cannot be collected',
    );
    return lost(reason);
  };

  const release = async (
    order: FundingOrder,
    call: FundingCallOptions,
  ): Promise<SettledFunds | void> => {
    const found = await read(order);
    if (found === undefined) return sandbox.void(order, call);
    const id = order.platform_payment_id;
    if (found.row.state === 'refunded') return { kind: 'refunded' };
    if (found.row.state === 'released' || found.row.state === 'uncollected') return undefined;
    await database.query(releaseStatement, [id]);
    // Read again: a reference may have been stored before this statement, and none can be stored after it.
    const { adapter, full } = (await read(order)) ?? found;
    if (full.reference === '') {
      await end(id, 'released', ['releasing']);
      return undefined;
    }
    if ((await adapter.void(full, call)) === 'released') {
      if (await end(id, 'released', ['releasing'])) count(adapter.name, 'released');
      return undefined;
    }
    await adapter.refund(full, call);
    if (await end(id, 'refunded', ['releasing'])) count(adapter.name, 'refunded');
    return { kind: 'refunded' };
  };

  const never = new AbortController().signal;
  return {
    adapters,
    async methods(customer, amount) {
      const offered: FundingMethod[] = offersSandbox
        ? [...(await sandbox.methods(customer, amount))]
        : [];
      for (const adapter of adapters) {
        for (const { asks, ...method } of adapter.methods()) {
          offered.push(
            asks === true
              ? {
                  ...method,
                  frame: `flow/v1/${encodeURIComponent(customer.partner_id)}/fund/${method.funding_method}`,
                }
              : method,
          );
        }
      }
      return offered.filter(
        (method) =>
          method.sandbox === (customer.mode === 'test') &&
          (amount === undefined || isWithin(method, amount)),
      );
    },
    isInDatabase: (order) => isOfSandbox(order) && sandbox.isInDatabase?.(order) === true,
    authorize: (order, call) => authorize(order, call ?? { signal: never }),
    capture: (order, call) => capture(order, call ?? { signal: never }),
    void: (order, call) => release(order, call ?? { signal: never }),

    async keep(on, order, instrument) {
      const adapter = adapterOf.get(order.funding_method);
      const asks = adapter
        ?.methods()
        .some((method) => method.funding_method === order.funding_method && method.asks === true);
      const path = 'body.instrument';
      if (instrument === undefined && asks === true) {
        throw new Refusal('INVALID_REQUEST', {
          details: [{ path, problem: 'is required by this funding method' }],
        });
      }
      if (instrument !== undefined && asks !== true) {
        throw new Refusal('INVALID_REQUEST', {
          details: [{ path, problem: 'is not accepted by this funding method' }],
        });
      }
      if (adapter === undefined) return;
      await on.query(keepStatement, [order.platform_payment_id, adapter.name, instrument ?? null]);
    },

    async actionOf(order) {
      if (isOfSandbox(order)) return sandbox.actionOf?.(order);
      const id = order.platform_payment_id;
      const [row] = await database.query<FundsRow>(findStatement, [id]);
      if (row?.action === null || row === undefined) return undefined;
      return JSON.parse(sealer.open(row.action, placeOf(id))) as FundingAction;
    },

    async apply(adapter, event) {
      const { event_id, platform_payment_id, kind, detail = {} } = event;
      const fresh = await database.query(applyStatement, [
        adapter,
        event_id,
        platform_payment_id,
        kind,
        instant(clock.now()),
        JSON.stringify({ event_id, ...detail }),
      ]);
      if (fresh.length === 0) return false;
      count(adapter, `event_${kind}`);
      if (kind === 'disputed' || kind === 'returned') {
        log.error(
          { platform_payment_id, event_id, kind },
          'the funds of a payment are disputed or were returned: an operator has to act',
        );
      }
      return true;
    },

    async sweep() {
      const before = instant(clock.now() + CAPTURE_BEFORE_MS);
      const each = async (
        orders: readonly FundingOrder[],
        act: (order: FundingOrder, call: FundingCallOptions) => Promise<void>,
      ): Promise<void> => {
        for (const order of orders) {
          try {
            await act(order, { signal: AbortSignal.timeout(SWEEP_CALL_MS) });
          } catch (error) {
            const { platform_payment_id } = order;
            log.error(
              { platform_payment_id, error: messageOf(error) },
              'the funding sweep failed for a payment; retrying',
            );
          }
        }
      };
      await each(
        await database.query<FundingOrder>(expiringStatement, [before]),
        async (order, call) => {
          if ((await capture(order, call)) !== undefined) return;
          await database.query(noteStatement, [
            order.platform_payment_id,
            'funds_captured_early',
            '{}',
          ]);
        },
      );
      await each(await database.query<FundingOrder>(owedStatement), async (order, call) => {
        const settled = await release(order, call);
        await database.query(noteStatement, [
          order.platform_payment_id,
          settled?.kind === 'refunded' ? 'funds_refunded' : 'funds_released',
          JSON.stringify({ late: 1 }),
        ]);
      });
    },
  };
}

/** Sweeps until `signal` aborts. */
export async function keepSweeping(options: {
  readonly funds: Pick<Funds, 'sweep' | 'adapters'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly signal: AbortSignal;
}): Promise<void> {
  const { funds, clock, log, signal } = options;
  if (funds.adapters.length === 0) return;
  while (!signal.aborted) {
    await clock.sleep(SWEEP_MS, signal);
    if (signal.aborted) return;
    await funds.sweep().catch((error: unknown) => log.warn({ error }, 'the funding sweep failed'));
  }
}

/** True when an amount is within the limits of a method. */
export function isWithin(
  {
    min_amount_in_cents: min = 1,
    max_amount_in_cents: max = Number.MAX_SAFE_INTEGER,
  }: FundingMethod,
  amount: number,
): boolean {
  return amount >= min && amount <= max;
}

/** Whether to ask the processor about an authorization that waits for the customer. */
/** By the name, whatever adapters are configured now: no adapter may have a method that begins so (configured.ts). */
function isOfSandbox({ funding_method }: Pick<FundingOrder, 'funding_method'>): boolean {
  return funding_method.startsWith('sandbox_');
}

function isDue({ asked_at, news_at, act_by }: FundsRow, now: number): boolean {
  if (asked_at === null || act_by === null) return true;
  const asked = Date.parse(asked_at);
  if (news_at !== null && Date.parse(news_at) >= asked) return true;
  const began = Date.parse(act_by) - ACT_WITHIN_MS;
  return now - asked >= (now - began < PROMPT_MS ? ASK_MS : ASK_LATER_MS);
}
