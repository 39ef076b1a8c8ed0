/** One process of the platform in a simulated world: the real engine over the world's database, network and funding. */
import { testAmount } from '@duebridge/contract';
import { silentLog, type Database, type Log } from '@duebridge/runtime';
import { createEngine, type Engine } from '../../packages/platform/src/engine/engine.ts';
import {
  sandboxFunding,
  type Funding,
  type FundingOrder,
} from '../../packages/platform/src/funding.ts';
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

/** Where the funds of a payment are kept: at a processor, or in the platform's own database (decision 168). */
export type FundingMethod = 'simulated' | 'sandbox_bank';

/** The bank or card processor behind the funding port: it executes each act once per order. */
export class Processor {
  readonly acts: { id: string; act: string; cents: number }[] = [];
  readonly #done = new Set<string>();
  readonly #world: World;
  /** Chance that a call fails before it acts, fails after it acted, or never returns. */
  readonly faults = { before: 0, after: 0, hangs: 0 };

  constructor(world: World) {
    this.#world = world;
  }

  async act(order: FundingOrder, act: string): Promise<void> {
    const { before, after, hangs } = this.faults;
    await this.#world.sleep(5 + this.#world.random() * 30);
    const chance = this.#world.random();
    if (chance < before) throw new Error('the processor did not answer');
    const key = `${order.platform_payment_id} ${act}`;
    if (!this.#done.has(key)) {
      this.#done.add(key);
      this.acts.push({ id: order.platform_payment_id, act, cents: order.amount_in_cents });
    }
    if (chance < before + after) throw new Error('the answer of the processor was lost');
    if (chance < before + after + hangs) await new Promise<never>(() => undefined);
  }
}

/** One worker. */
export class WorkerProcess {
  readonly process: Process;
  readonly engine: Engine;
  readonly #around: Surroundings;

  constructor(around: Surroundings, name: string) {
    const { world, postgres, databaseFaults, networkFaults, history, partners, processor } = around;
    this.#around = around;
    this.process = new Process(world, name);
    const { process } = this;
    const database = postgres.connect(process, databaseFaults);
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
      funding: fundingOf(process, processor, database),
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
      row = await database.transaction((tx) =>
        insertPayment(tx, {
          partner_id,
          biller_id: known.side.biller_id,
          account_id,
          platform_batch_id,
          amount_in_cents: cents,
          session_id: null,
          funding_method,
          ...this.engine.placeForNew(known.partner, { funding_method, amount_in_cents: cents }),
          actor: 'simulation',
        }),
      );
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
    list: refuse,
    credentials: refuse,
    reseal: refuse,
  };
}

/** The processor for its own payments; for the others the product's sandbox, whose acts the engine writes in its own statements. */
function fundingOf(process: Process, processor: Processor, database: Database): Funding {
  const here = sandboxFunding({ database });
  const isHere = ({ funding_method }: Pick<FundingOrder, 'funding_method'>): boolean =>
    funding_method === 'sandbox_bank';
  const act = (order: FundingOrder, name: string): Promise<void> =>
    process.arrive(processor.act(order, name));
  return {
    methods: () => [{ funding_method: 'simulated', label: 'Simulated', sandbox: true }],
    isInDatabase: (order) => isHere(order) && here.isInDatabase?.(order) === true,
    authorize: async (order) => {
      if (isHere(order)) return here.authorize(order);
      await act(order, 'authorize');
      return { kind: 'authorized' };
    },
    capture: (order) => (isHere(order) ? here.capture(order) : act(order, 'capture')),
    void: (order) => (isHere(order) ? here.void(order) : act(order, 'void')),
  };
}

/** Whether the sandbox takes this amount without asking anybody: test amounts make it decline, or ask the customer. */
export function isPlainAmount(cents: number): boolean {
  return testAmount(cents)?.funding === undefined;
}
