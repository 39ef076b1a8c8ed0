/** One process of the platform in a simulated world: the real engine over the world's database, network and funding. */
import { randomBytes } from 'node:crypto';
import { silentLog, type Log } from '@duebridge/runtime';
import { noteFlowPayment } from '../../packages/platform/src/checkout/flow.ts';
import { LostPayments } from '../../packages/platform/src/checkout/lost-payments.ts';
import { Engine } from '../../packages/platform/src/engine/engine.ts';
import type { FundingOrder } from '../../packages/platform/src/funding.ts';
import type { FundingAdapter } from '../../packages/platform/src/funding/adapter.ts';
import { Funds } from '../../packages/platform/src/funding/funds.ts';
import { openSealer } from '../../packages/platform/src/partners/seal.ts';
import type { Partner, PartnerRegistry } from '../../packages/platform/src/partners/registry.ts';
import { flowPaymentId } from '../../packages/platform/src/payment-id.ts';
import { batchFor } from '../../packages/platform/src/reconciliation/batch.ts';
import { insertPayment, type PaymentRow } from '../../packages/platform/src/store/payments.ts';
import type { DatabaseFaults, SimulatedPostgres } from './database.ts';
import type { History } from './history.ts';
import { simulatedClient, type NetworkFaults } from './network.ts';
import type { SimulatedPartner } from './partners.ts';
import { Process, type World } from './time.ts';

/** What all processes of a world share. */
export interface Surroundings {
  readonly world: World;
  readonly postgres: SimulatedPostgres;
  readonly databaseFaults: DatabaseFaults;
  readonly networkFaults: NetworkFaults;
  readonly history: History;
  readonly processor: Processor;
  /** Errors of our own that the code under test met and logged. */
  readonly bugs: string[];
  readonly partners: ReadonlyMap<
    string,
    { readonly partner: Partner; readonly side: SimulatedPartner }
  >;
  /** A standby that lacks the latest commits will take over. */
  readonly failsOver?: boolean;
}

/** What a customer confirms, and confirms again if the platform knows nothing of it: the page knows the payment's id beforehand. */
export interface Confirm {
  readonly partner_id: string;
  readonly account_id: string;
  readonly cents: number;
  readonly funding_method?: FundingMethod;
  readonly flow_id: Buffer;
  readonly id: string;
}

/** A customer's confirm, with the id that the page was given at `now`. */
export function confirmOf(what: Omit<Confirm, 'flow_id' | 'id'>, now: number): Confirm {
  const flow_id = randomBytes(32);
  return { ...what, flow_id, id: flowPaymentId(flow_id, 0, now) };
}

function sessionOf({ flow_id, partner_id, account_id }: Confirm, biller_id: string) {
  const nobody = '00000000-0000-4000-8000-000000000000';
  return {
    session_id: nobody,
    token_hash: flow_id,
    partner_id,
    customer_id: nobody,
    biller_id,
    account_id,
    flow_id,
    balance: null,
    expires_at: '2100-01-01T00:00:00.000Z',
  };
}

/** When the funds of a payment are taken: reserved before it is sent, after the biller has posted, or by the platform's own means. */
export type FundingMethod = 'simulated' | 'mandate' | 'elsewhere';

/** As a bank's debit, a mandate is taken once and for all, whatever was reserved. */
const METHODS = [
  { funding_method: 'simulated', label: 'Simulated', sandbox: true },
  { funding_method: 'mandate', label: 'Mandate', sandbox: true, collection: 'afterwards' },
  { funding_method: 'elsewhere', label: 'Elsewhere', sandbox: true, collection: 'elsewhere' },
] as const;
export const SEAL_KEY = Buffer.alloc(32, 1).toString('base64');

/** The bank or card processor behind the funding port: it executes each act once per order. */
export class Processor {
  readonly acts: { id: string; act: string; cents: number; at: number; until?: number }[] = [];
  readonly #done = new Set<string>();
  readonly #world: World;
  /**
   * How long a hold lasts, if it ends by itself. It binds the first PUT alone: what is sent in time is taken as if it lasted, since the
   * sweep that captures such payments early has tests of its own (funding/sweep.test.ts).
   */
  holdMs: number | undefined;
  readonly #holds = new Map<string, number>();
  /** Chance that a call fails before it acts, fails after it acted, or never returns. */
  readonly faults = { before: 0, after: 0, hangs: 0 };

  constructor(world: World) {
    this.#world = world;
  }

  /** Holds the funds of an order, anew if its hold has expired. The wall time at which it ends; undefined where there is none. */
  async authorize(order: FundingOrder): Promise<{ held: boolean; expires_at?: number }> {
    const { platform_payment_id: id, amount_in_cents: cents } = order;
    const held = await this.act(order, 'authorize');
    if (!held || this.holdMs === undefined) return { held };
    const { elapsed } = this.#world;
    let until = this.#holds.get(id) ?? 0;
    if (until <= elapsed) {
      // A customer's bank takes every other one back for good.
      if (until > 0 && cents % 2 === 0) {
        this.acts.push({ id, act: 'decline', cents, at: elapsed });
        return { held: false };
      }
      until = elapsed + this.holdMs;
      this.#holds.set(id, until);
      this.acts.push({ id, act: 'authorize', cents, at: elapsed, until });
    }
    return { held, expires_at: this.#world.startedAt + until };
  }

  /** Executes an act once. False if another that excludes it came first. */
  async act(order: FundingOrder, act: string): Promise<boolean> {
    const { before, after, hangs } = this.faults;
    await this.#world.sleep(5 + this.#world.random() * 30);
    const chance = this.#world.random();
    if (chance < before) throw new Error('the processor did not answer');
    const id = order.platform_payment_id;
    const key = `${id} ${act}`;
    const excludes = act === 'void' ? 'capture' : act === 'refund' ? undefined : 'void';
    const isLate = excludes !== undefined && this.#done.has(`${id} ${excludes}`);
    if (!isLate && !this.#done.has(key)) {
      this.#done.add(key);
      this.acts.push({ id, act, cents: order.amount_in_cents, at: this.#world.elapsed });
    }
    if (chance < before + after) throw new Error('the answer of the processor was lost');
    if (chance < before + after + hangs) await new Promise<never>(() => undefined);
    return !isLate;
  }
}

/** One worker. */
export class WorkerProcess {
  readonly process: Process;
  readonly engine: Engine;
  readonly #funds: Funds;
  readonly #lost: LostPayments;
  readonly #around: Surroundings;

  constructor(around: Surroundings, name: string) {
    const { world, postgres, databaseFaults, networkFaults, history, partners, processor } = around;
    this.#around = around;
    this.process = new Process(world, name);
    const { process } = this;
    const database = postgres.connect(process, databaseFaults);
    this.#funds = new Funds({
      database,
      sealer: openSealer(SEAL_KEY),
      clock: process.clock,
      log: bugsOf(around.bugs),
      adapters: [adapterOf(process, processor)],
    });
    const registry = registryOf(partners);
    this.#lost = new LostPayments({
      database,
      registry,
      funding: this.#funds,
      clock: process.clock,
      log: bugsOf(around.bugs),
    });
    this.engine = new Engine({
      database,
      registry,
      client: simulatedClient({
        world,
        process,
        faults: networkFaults,
        history,
        partner: (id) => partners.get(id)?.side as SimulatedPartner,
      }),
      funding: this.#funds,
      clock: process.clock,
      log: bugsOf(around.bugs),
    });
  }

  async start(): Promise<void> {
    // Without a failover it would find nothing.
    if (this.#around.failsOver === true) {
      void this.#lost.watch(new AbortController().signal);
    }
    await this.engine.start();
  }

  /**
   * A customer confirms: the row is committed, owned by this worker, and handed over. With `again` the page repeats a confirm of
   * which the platform knows nothing any more. Whether it made the payment.
   */
  async confirm(confirmed: Confirm, again = false): Promise<boolean> {
    const { world, postgres, history, partners } = this.#around;
    const { partner_id, account_id, cents, funding_method = 'simulated' } = confirmed;
    const known = partners.get(partner_id);
    if (known === undefined || this.process.isDead) return false;
    const session = sessionOf(confirmed, known.side.biller_id);
    // The row's own way through lost commits has tests of its own (checkout/confirm-once.test.ts); here it is there or not.
    const database = postgres.connect(this.process, {
      down: this.#around.databaseFaults.down,
      lostBefore: 0,
      lostAnswer: 0,
      latencyMs: 2,
    });
    let row: PaymentRow;
    try {
      const platform_batch_id = await batchFor(database, known.partner, world.now());
      row = await database.transaction(async (tx) => {
        const made = await insertPayment(tx, {
          partner_id,
          biller_id: known.side.biller_id,
          account_id,
          platform_payment_id: confirmed.id,
          platform_batch_id,
          amount_in_cents: cents,
          funding_method,
          ...this.engine.placeForNew(known.partner, { funding_method }),
          maybe_sent: again ? true : null,
          actor: 'simulation',
        });
        await this.#funds.keep(tx, made, undefined);
        const { platform_payment_id } = made;
        const more = { platform_payment_id, place: 0, now: world.now() };
        if (this.#around.failsOver === true) await noteFlowPayment(tx, session, more);
        return made;
      });
    } catch {
      return false;
    }
    this.#lost.keep({ payment: row, session, place: 0, instrument: undefined });
    const { platform_payment_id: id, stage } = row;
    if (!again) history.add({ kind: 'confirmed', id, partner: partner_id, cents, stage });
    this.engine.take(row);
    return true;
  }
}

/** A log that keeps what was thrown where nothing should be: a failed assertion, a TypeError. */
function bugsOf(bugs: string[]): Log {
  return {
    ...silentLog,
    error(details) {
      const error: unknown = Reflect.get(details, 'error');
      if (
        error instanceof Error &&
        error.name !== 'DatabaseUnavailable' &&
        error.name !== 'Refusal'
      ) {
        bugs.push(`${error.name}: ${error.message}`);
      }
    },
  };
}

export function registryOf(partners: Surroundings['partners']): PartnerRegistry {
  const refuse = (): never => {
    throw new Error('the simulated registry is only read');
  };
  return {
    get: (partner_id) => Promise.resolve(partners.get(partner_id)?.partner),
    hold: () => Promise.resolve(),
    known: refuse,
    add: refuse,
    change: refuse,
    logo: refuse,
    list: refuse,
    credentials: refuse,
  };
}

/** The processor as an adapter. It finds everything by the payment's id, so that its reference needs no call. */
function adapterOf(process: Process, processor: Processor): FundingAdapter {
  const act = (order: FundingOrder, name: string): Promise<boolean> =>
    process.arrive(processor.act(order, name));
  return {
    name: 'simulated',
    methods: () => METHODS,
    authorize: async (order) => {
      const { held, ...hold } = await process.arrive(processor.authorize(order));
      return held
        ? { kind: 'authorized', ...hold }
        : { kind: 'declined', reason: 'It was released, or has expired.' };
    },
    capture: async (order) =>
      (await act(order, 'capture'))
        ? { kind: 'captured' }
        : { kind: 'uncollectable', reason: 'It was released.' },
    void: async (order) => ((await act(order, 'void')) ? 'released' : 'captured'),
    refund: async (order) => void (await act(order, 'refund')),
  };
}
