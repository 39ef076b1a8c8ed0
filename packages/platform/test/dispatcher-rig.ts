/**
 * A dispatcher in virtual time, for its tests: partners, rows, slots and a processor for the funds are in memory and do what a test
 * tells them, and everything that reaches one of them is written into one story.
 */
import assert from 'node:assert/strict';
import type { Json } from '@duebridge/contract';
import { DatabaseUnavailable, type Database, type Statement } from '@duebridge/runtime';
import { manualClock } from '@duebridge/runtime/testing';
import type { Authorization, Funding, FundingOrder, SettledFunds } from '../src/funding.ts';
import type { CallOptions, NotSent, PartnerClient } from '../src/partners/client.ts';
import type { Intent } from '../src/partners/payment-record.ts';
import type { Exchange, NoReply } from '../src/partners/http-call.ts';
import type { Partner, PartnerRegistry } from '../src/partners/registry.ts';
import type { PaymentRow } from '../src/store/payments.ts';
import { Dispatcher } from '../src/engine/dispatcher.ts';
import { DEFAULT_TIMES, type EngineTimes } from '../src/engine/options.ts';
import { Outage } from '../src/engine/outage.ts';
import type { LoadedRow } from '../src/engine/slots.ts';

/** Wall time at the start. */
export const BEGAN = Date.UTC(2026, 5, 1, 12);
/** The worker whose payments are driven. */
export const ME = 'worker-1';
/** Monotonic time at the start: the process has run for a while, so that a partner's calls per second have been saved up. */
export const UPTIME = 3_600_000;
/** How long a call, and a statement, takes unless a test says otherwise. */
export const CALL_MS = 5;
export const STATEMENT_MS = 1;

/** A call that reached a partner. */
export interface Asked {
  readonly kind: 'put' | 'get';
  readonly partner_id: string;
  /** The number of the payment, as `pay` took it. */
  readonly payment: number;
  readonly order: Intent;
  readonly at: number;
  readonly waitSeconds: number;
}

/** What a partner does with a call; whatever is absent is as a correct partner does it. */
export interface Answered {
  /** Default CALL_MS; Infinity for a call that hangs. */
  readonly afterMs?: number;
  readonly status?: number;
  readonly json?: Json;
  /** Fields of the record that differ. */
  readonly fields?: Readonly<Record<string, Json>>;
  readonly retryAfter?: string;
  readonly waited?: boolean;
  readonly lost?: NoReply['reason'];
  readonly notSent?: NotSent['reason'];
}

/** What the dispatcher did and met, one line each: `at` is virtual time. */
interface Line {
  readonly at: number;
  readonly what: string;
}

/** The id of a payment: a UUID, so that a payment that waits is kept as bytes, as in production. */
export function idOf(payment: number): string {
  return `0199aaaa-0000-7000-8000-${String(payment).padStart(12, '0')}`;
}

/** The number of the payment with an id. */
function numberOf(id: unknown): number {
  return Number(String(id).slice(-12));
}

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** A partner that can be called, as the registry gives it. */
export function partnerCalled(
  partner_id: string,
  more: Partial<Partner> & { readonly wait_seconds?: number } = {},
): Partner {
  const { wait_seconds = 0, ...rest } = more;
  return {
    partner_id,
    refusals: [],
    paused: false,
    pause_reason: null,
    budget: {
      max_concurrent_calls: 8,
      max_calls_per_second: 1_000,
      call_timeout_ms: 15_000,
      wait_seconds,
    },
    ...rest,
  } as unknown as Partner;
}

/** A dispatcher and its surroundings. The partner `acme` is registered, and has a share of 8 calls. */
export function dispatcherRig(times: Partial<EngineTimes> = {}) {
  const time = manualClock(BEGAN);
  const story: Line[] = [];
  const tell = (what: string): void => void story.push({ at: time.monotonic(), what });

  const partners = new Map<string, Partner>([['acme', partnerCalled('acme')]]);
  const rows = new Map<string, Writable<PaymentRow>>();
  /** The payments that each partner has, with the time at which it took them. */
  const taken = new Map<string, number>();

  const rig = {
    time,
    times: { ...DEFAULT_TIMES, ...times },
    story,
    partners,
    rows,
    /** Whose slots others own. */
    owners: new Map<number, string>(),
    /** What chance gives. */
    chance: 0.5,
    leaseHolds: true,
    isDown: false,
    /** Called before a statement is executed; what it throws is the database's answer. */
    onStatement: (_name: string, _payments: readonly number[]): void | Promise<void> => undefined,
    onGet: (_partner_id: string): void | Promise<void> => undefined,
    onHold: (): Promise<void> => Promise.resolve(),
    /** How a partner answers; undefined: correctly. */
    script: (_asked: Asked): Answered | undefined => undefined,
    /** How long after it has taken a payment a correct partner ends it. */
    settleMs: 0,
    /** Whether a correct partner holds a read that asks to wait. */
    holdsReads: false,
    /** What the processor does. */
    onAuthorize: (_order: FundingOrder): Authorization | Promise<Authorization> => ({
      kind: 'authorized',
    }),
    onSettle: (_order: FundingOrder): SettledFunds | undefined | Promise<undefined> => undefined,
    dispatcher: undefined as unknown as Dispatcher,
    /** What the engine is given as its funding port. */
    funding: undefined as unknown as { -readonly [Key in keyof Funding]: Funding[Key] },
    pay,
    /** Lets virtual time pass. */
    run: (ms: number): Promise<void> => time.advance(ms),
    /** The story since it was last read; those lines alone that match, where a pattern is given. */
    read(pattern: RegExp = /./): string[] {
      return story
        .splice(0)
        .filter(({ what }) => pattern.test(what))
        .map(({ what }) => what);
    },
    /** The same with times. */
    readTimes(pattern: RegExp = /./): (readonly [number, string])[] {
      return story
        .splice(0)
        .filter(({ what }) => pattern.test(what))
        .map(({ at, what }) => [at, what] as const);
    },
    /** When the next step of a payment is due; undefined for one that is not driven. */
    dueAt(payment: number): number | undefined {
      const at = rig.dispatcher.dueAt(idOf(payment));
      return at === undefined ? undefined : at - UPTIME;
    },
    /** The row of a payment. */
    row(payment: number): Writable<PaymentRow> {
      const row = rows.get(idOf(payment));
      assert(row);
      return row;
    },
    /** The row of a payment as a worker loads it that takes its slot over. */
    loaded(payment: number): LoadedRow {
      const row = rig.row(payment);
      const { accepted_at } = row;
      return {
        ...row,
        accepted_age_ms: accepted_at === null ? null : time.now() - Date.parse(accepted_at),
      };
    },
    /** Makes a partner, with its share of calls. */
    register(partner: Partner, share = 8): void {
      partners.set(partner.partner_id, partner);
      give(partner.partner_id, share);
    },
    give,
  };

  /** Commits a payment, `created` and paid through the processor unless said otherwise; `add` drives it. */
  function pay(payment: number, more: Partial<PaymentRow> = {}): Writable<PaymentRow> {
    const row: Writable<PaymentRow> = {
      platform_payment_id: idOf(payment),
      partner_id: 'acme',
      biller_id: 'biller-1',
      account_id: `account-${payment}`,
      platform_batch_id: 'batch-1',
      amount_in_cents: 12_345,
      session_id: null,
      funding_method: 'processor',
      status: 'processing',
      stage: 'created',
      review_reason: null,
      rejection_message: null,
      slot: payment % 4,
      payment_id: null,
      failure_reason: null,
      ended_by: null,
      initiated_at: null,
      posted_at: null,
      created_at: new Date(time.now()).toISOString(),
      accepted_at: null,
      ended_at: null,
      settled_at: null,
      ...more,
    };
    rows.set(row.platform_payment_id, row);
    if (row.stage === 'accepted') taken.set(`${row.partner_id} ${payment}`, time.monotonic());
    return row;
  }

  function give(partner_id: string, share: number, rate = 1_000): void {
    const partner = partners.get(partner_id);
    assert(partner);
    const budget = { ...partner.budget, max_concurrent_calls: share, max_calls_per_second: rate };
    partners.set(partner_id, { ...partner, budget });
    rig.dispatcher.partnerOf(partner_id).applyBudget(budget);
  }

  const database = {
    async query(statement: Statement, values: readonly unknown[] = []): Promise<unknown[]> {
      const name = typeof statement === 'string' ? statement : statement.name;
      const ids = name.startsWith('payment')
        ? readArray(values[name === 'payment_find' ? 0 : 1])
        : [];
      await time.sleep(STATEMENT_MS);
      if (rig.isDown) throw new DatabaseUnavailable('it is away', 'unknown');
      await rig.onStatement(name, ids.map(numberOf));
      return execute(name, ids, values);
    },
  } as unknown as Database;

  function execute(
    name: string,
    ids: readonly (string | null)[],
    values: readonly unknown[],
  ): unknown[] {
    const column = (at: number, index: number): string | null =>
      readArray(values[at])[index] ?? null;
    const changed = ids.filter((id, index) => {
      const row = rows.get(String(id));
      if (row === undefined) return false;
      if (name === 'payment_find') return true;
      if (values[0] !== (rig.owners.get(row.slot ?? -1) ?? ME)) return false;
      const isOpen = row.status === 'processing' && row.stage === column(2, index);
      switch (name) {
        case 'payment_advance': {
          if (!isOpen) return false;
          const to = String(column(3, index));
          tell(
            `row ${numberOf(id)}: ${row.stage} > ${to}${column(10, index) === 'true' ? ', held' : ''}`,
          );
          row.stage = to as PaymentRow['stage'];
          row.payment_id = column(4, index) ?? row.payment_id;
          row.initiated_at ??= column(5, index);
          row.review_reason = column(6, index);
          if (to === 'accepted') row.accepted_at = String(values[9]);
          if (to === 'review') row.slot = null;
          return true;
        }
        case 'payment_end': {
          if (!isOpen) return false;
          const settles = column(10, index) === 'true';
          const by = column(3, index) as PaymentRow['ended_by'];
          row.status = column(4, index) as PaymentRow['status'];
          tell(
            `row ${numberOf(id)}: ${row.stage} > ended, ${row.status} by ${by}${settles ? ', settles' : ''}`,
          );
          row.stage = 'ended';
          row.ended_by = by;
          row.payment_id = column(5, index) ?? row.payment_id;
          row.posted_at = column(7, index);
          row.failure_reason = column(8, index);
          if (settles || by === 'funding') row.settled_at = String(values[9]);
          return true;
        }
        default:
          assert.equal(name, 'payment_settle');
          if (row.status === 'processing' || row.settled_at !== null) return false;
          row.settled_at = String(values[2]);
          tell(
            `row ${numberOf(id)}: settled${column(3, index) === null ? '' : ` funds_${column(3, index)}`}`,
          );
          return true;
      }
    });
    // A statement answers with copies.
    return changed.map((id) => ({ ...rows.get(String(id)) }));
  }

  const client: Pick<PartnerClient, 'submit' | 'poll' | 'reset'> = {
    submit: (partner, order, options) => call('put', partner, order, options),
    poll: (partner, order, options) => call('get', partner, order, options),
    reset: ({ partner_id }) => tell(`connections to ${partner_id} closed`),
  };

  async function call(
    kind: 'put' | 'get',
    { partner_id }: Partner,
    order: Intent,
    { signal, waitSeconds = 0 }: CallOptions & { readonly waitSeconds?: number } = {},
  ): Promise<Exchange | NotSent> {
    const payment = numberOf(order.platform_payment_id);
    const at = time.monotonic();
    tell(`${kind} ${payment}${waitSeconds > 0 ? `, waits ${waitSeconds} s` : ''}`);
    const key = `${partner_id} ${payment}`;
    const said = rig.script({ kind, partner_id, payment, order, at, waitSeconds }) ?? {};
    const isHeld = kind === 'get' && waitSeconds > 0 && rig.holdsReads;
    const endsAt = (taken.get(key) ?? Infinity) + rig.settleMs;
    const rightMs = isHeld
      ? Math.max(CALL_MS, Math.min(endsAt - at, waitSeconds * 1_000))
      : CALL_MS;
    await time.sleep(said.afterMs ?? rightMs, signal);
    if (signal?.aborted === true) return { kind: 'no_reply', reason: 'stopped' };
    const { lost, notSent, retryAfter } = said;
    if (notSent !== undefined) return { kind: 'not_sent', reason: notSent, retryAfter };
    if (lost !== undefined) return { kind: 'no_reply', reason: lost };
    const reply = {
      kind: 'reply',
      problem: undefined,
      retryAfter,
      waited: said.waited ?? isHeld,
    } as const;
    const { status = 200 } = said;
    if (status !== 200 || said.json !== undefined) return { ...reply, status, json: said.json };
    if (kind === 'put' && !taken.has(key)) taken.set(key, time.monotonic());
    const from = taken.get(key);
    if (from === undefined)
      return { ...reply, status: 404, json: { code: 'PAYMENT_NOT_FOUND', message: 'no' } };
    return { ...reply, status, json: { ...record(order, from, kind), ...said.fields } };
  }

  function record(order: Intent, from: number, kind: 'put' | 'get'): Record<string, Json> {
    const endsAt = from + rig.settleMs;
    const hasEnded = kind === 'get' && time.monotonic() >= endsAt;
    return {
      payment_id: `P-${numberOf(order.platform_payment_id)}`,
      platform_payment_id: order.platform_payment_id,
      platform_batch_id: order.platform_batch_id,
      biller_id: order.biller_id,
      account_id: order.account_id,
      amount_in_cents: order.amount_in_cents,
      status: hasEnded ? 'succeeded' : 'processing',
      initiated_at: new Date(BEGAN + from).toISOString(),
      posted_at: hasEnded ? new Date(BEGAN + endsAt).toISOString() : null,
    };
  }

  const registry: Pick<PartnerRegistry, 'get' | 'hold'> = {
    async get(partner_id) {
      await rig.onGet(partner_id);
      return partners.get(partner_id);
    },
    async hold(partner_id, reason, actor) {
      tell(`hold of ${partner_id} noted by ${actor}: ${reason}`);
      await rig.onHold();
      const partner = partners.get(partner_id);
      if (partner !== undefined) partners.set(partner_id, { ...partner, pause_reason: reason });
    },
  };

  /** At the processor, each act takes as long as a call. */
  async function act<T>(
    name: string,
    order: FundingOrder,
    does: (order: FundingOrder) => T,
  ): Promise<Awaited<T>> {
    tell(`${name} ${numberOf(order.platform_payment_id)}`);
    await time.sleep(CALL_MS);
    return await does(order);
  }
  rig.funding = {
    methods: () => [],
    collection: (funding_method) => (funding_method === 'elsewhere' ? 'elsewhere' : 'reserved'),
    authorize: (order) => act('authorize', order, rig.onAuthorize),
    capture: (order) => act('capture', order, rig.onSettle),
    void: (order) => act('void', order, rig.onSettle),
  };

  const log = (level: string) => (details: object, message: string) => {
    const id: unknown = Reflect.get(details, 'platform_payment_id');
    const { partner_id, funding_method, reason, review_reason, kind, error } = details as Record<
      string,
      unknown
    >;
    const what = error instanceof Error ? error.message : error;
    const more = [
      id === undefined ? undefined : numberOf(id),
      partner_id,
      funding_method,
      reason,
      review_reason,
      kind,
      what,
    ]
      .filter((one) => one !== undefined)
      .map(String);
    tell([`${level}: ${message}`, ...more].join(' | '));
  };

  const clock = {
    now: () => time.now(),
    monotonic: () => UPTIME + time.monotonic(),
    random: () => rig.chance,
    sleep: (ms: number, signal?: AbortSignal) => time.sleep(ms, signal),
  };
  const logger = { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') };
  const engine = new AbortController();
  rig.dispatcher = new Dispatcher(
    {
      database,
      registry: registry as PartnerRegistry,
      client: client as PartnerClient,
      funding: rig.funding,
      clock,
      log: logger,
    },
    rig.times,
    {
      submitted: (partner_id, outcome) => tell(`counted: put of ${partner_id} ${outcome}`),
      polled: (partner_id, outcome) => tell(`counted: get of ${partner_id} ${outcome}`),
      ended: (partner_id, status, ms) =>
        tell(`counted: ended at ${partner_id} ${status} after ${ms} ms`),
      breached: (partner_id, kind) => tell(`counted: breach of ${partner_id} ${kind}`),
      broken: (partner_id, open) => tell(`counted: ${partner_id} is ${open ? 'broken' : 'whole'}`),
      detected: (ms) => tell(`counted: end detected after ${ms} ms`),
    },
    {
      workerId: ME,
      databaseNow: () => new Date(time.now()).toISOString(),
      holds: () => rig.leaseHolds,
      owns: (slot) => (rig.owners.get(slot) ?? ME) === ME,
    },
    new Outage({ database, clock, log: logger, signal: engine.signal }),
    (id) => tell(`told of ${numberOf(id)}`),
  );
  give('acme', 8);
  return rig;
}

/** The elements of an array parameter (arrayText), or of an array. */
function readArray(value: unknown): readonly (string | null)[] {
  if (Array.isArray(value)) return value as readonly string[];
  return [...String(value).matchAll(/"((?:[^"\\]|\\.)*)"|([^,{}]+)/g)].map(([, quoted, plain]) => {
    if (quoted !== undefined) return quoted.replaceAll(/\\(.)/g, '$1');
    return plain === 'NULL' || plain === undefined ? null : plain;
  });
}
