/** One process of the platform in a simulated world: the real engine over the world's database, network and funding. */
import { silentLog, type Log } from '@duebridge/runtime';
import { createEngine, type Engine } from '../../packages/platform/src/engine/engine.ts';
import type { FundingOrder } from '../../packages/platform/src/funding.ts';
import type { FundingAdapter } from '../../packages/platform/src/funding/adapter.ts';
import { openFunds, type Funds } from '../../packages/platform/src/funding/funds.ts';
import { openSealer } from '../../packages/platform/src/partners/seal.ts';
import type { Partner, PartnerRegistry } from '../../packages/platform/src/partners/registry.ts';
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
}

/** When the funds of a payment are taken: reserved before it is sent, after the biller has posted, or by the platform's own means. */
export type FundingMethod = 'simulated' | 'mandate' | 'elsewhere';

/** As a bank's debit, a mandate is taken once and for all, whatever was reserved. */
const METHODS = [
  { funding_method: 'simulated', label: 'Simulated', sandbox: true },
  { funding_method: 'mandate', label: 'Mandate', sandbox: true, collection: 'afterwards' },
  { funding_method: 'elsewhere', label: 'Elsewhere', sandbox: true, collection: 'elsewhere' },
] as const;
const SEAL_KEY = Buffer.alloc(32, 1).toString('base64');

/** The bank or card processor behind the funding port: it executes each act once per order. */
export class Processor {
  readonly acts: { id: string; act: string; cents: number; at: number }[] = [];
  readonly #done = new Set<string>();
  readonly #world: World;
  /** Chance that a call fails before it acts, fails after it acted, or never returns. */
  readonly faults = { before: 0, after: 0, hangs: 0 };

  constructor(world: World) {
    this.#world = world;
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
  readonly #around: Surroundings;

  constructor(around: Surroundings, name: string) {
    const { world, postgres, databaseFaults, networkFaults, history, partners, processor } = around;
    this.#around = around;
    this.process = new Process(world, name);
    const { process } = this;
    const database = postgres.connect(process, databaseFaults);
    this.#funds = openFunds({
      database,
      sealer: openSealer(SEAL_KEY),
      clock: process.clock,
      log: bugsOf(around.bugs),
      adapters: [adapterOf(process, processor)],
    });
    this.engine = createEngine({
      database,
      registry: registryOf(partners),
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
    await this.engine.start();
  }

  /** A customer confirms: the row is committed, owned by this worker, and handed over. */
  async confirm(
    partner_id: string,
    account_id: string,
    cents: number,
    funding_method: FundingMethod = 'simulated',
  ): Promise<void> {
    const { world, postgres, history, partners } = this.#around;
    const known = partners.get(partner_id);
    if (known === undefined || this.process.isDead) return;
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
          platform_batch_id,
          amount_in_cents: cents,
          session_id: null,
          funding_method,
          ...this.engine.placeForNew(known.partner, { funding_method }),
          actor: 'simulation',
        });
        await this.#funds.keep(tx, made, undefined);
        return made;
      });
    } catch {
      return;
    }
    const { platform_payment_id: id, stage } = row;
    history.add({ kind: 'confirmed', id, partner: partner_id, cents, stage });
    this.engine.watch(row.platform_payment_id, (changed) => {
      history.add({ kind: 'told', id: changed.platform_payment_id, status: changed.status });
    });
    this.engine.take(row);
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

function registryOf(partners: Surroundings['partners']): PartnerRegistry {
  const refuse = (): never => {
    throw new Error('the simulated registry is only read');
  };
  return {
    get: (partner_id) => Promise.resolve(partners.get(partner_id)?.partner),
    hold: () => Promise.resolve(),
    add: refuse,
    change: refuse,
    logo: refuse,
    list: refuse,
    credentials: refuse,
    reseal: refuse,
  };
}

/** The processor as an adapter. It finds everything by the payment's id, so that its reference needs no call. */
function adapterOf(process: Process, processor: Processor): FundingAdapter {
  const act = (order: FundingOrder, name: string): Promise<boolean> =>
    process.arrive(processor.act(order, name));
  return {
    name: 'simulated',
    methods: () => METHODS,
    authorize: async (order) =>
      (await act(order, 'authorize'))
        ? { kind: 'authorized' }
        : { kind: 'declined', reason: 'It was released.' },
    capture: async (order) =>
      (await act(order, 'capture'))
        ? { kind: 'captured' }
        : { kind: 'uncollectable', reason: 'It was released.' },
    void: async (order) => ((await act(order, 'void')) ? 'released' : 'captured'),
    refund: async (order) => void (await act(order, 'refund')),
  };
}
