/**
 * The platform's office in a world: what happens to the money of payments while their engine is in trouble. Operators refund, customers' banks
 * take back, batches close and are remitted, and a file is carried to the bank, by processes that are killed, lose commits and answers, and whose
 * clocks are stepped.
 *
 * enters: a place, and a stream of random numbers of its own.  leaves: rows that the check of the book, which the world
 * makes at every look, has to explain; at the end, what the billers posted against what they were paid and are owed.
 */
import { silentLog, type Clock, type Database } from '@duebridge/runtime';
import { applyEvent } from '../../packages/platform/src/funding/apply-event.ts';
import { readBalances, sumBook } from '../../packages/platform/src/money/balances.ts';
import { endTransfer, makeBankFile } from '../../packages/platform/src/money/desk.ts';
import { setPayout } from '../../packages/platform/src/money/payouts.ts';
import { repeatRefunds, requestRefund } from '../../packages/platform/src/money/refunds.ts';
import { remit } from '../../packages/platform/src/money/remittance.ts';
import { linesOf, listRemittances } from '../../packages/platform/src/money/statement.ts';
import type { Partner, PartnerRegistry } from '../../packages/platform/src/partners/registry.ts';
import { openSealer } from '../../packages/platform/src/partners/seal.ts';
import { closeBatchNow } from '../../packages/platform/src/reconciliation/batch.ts';
import { endCase, listCases } from '../../packages/platform/src/store/cases.ts';
import type { Violation } from './checkers.ts';
import { healthyDatabase, type DatabaseFaults } from './database.ts';
import type { Stage } from './stage.ts';
import { Process } from './time.ts';
import { registryOf, SEAL_KEY } from './worker.ts';

/** With what an act is done: a database that may lose it, and a clock that may be wrong. */
export interface Tools {
  readonly database: Database;
  readonly clock: Clock;
}

/** Where an office is: in a world with an engine, or over many days without one (money.ts). */
export interface Place {
  readonly registry: Pick<PartnerRegistry, 'get'>;
  /** A query from outside, which nothing disturbs. */
  readonly look: Database['query'];
  readonly sleep: (ms: number) => Promise<void>;
  /** Payments whose money is with the platform. */
  readonly captured: () => Promise<readonly { readonly id: string; readonly cents: number }[]>;
  readonly happened: (what: string) => void;
  /** An error that no act may meet. */
  readonly bug: (what: string) => void;
}

/** How long after one act the next begins, in virtual milliseconds. */
const EVERY_MS = 1_500;
const PAYER = { name: 'P', routing_number: '011000015', account_number: '1', company_id: '1' };
const REASON = 'ticket';

/** The office of one world. */
export class Office {
  readonly #place: Place;
  readonly #random: () => number;
  readonly #sealer = openSealer(SEAL_KEY);
  /** What the processor has refunded, by our ids, and what became of payments: each is refunded or taken back, not both. */
  readonly #refunded = new Map<string, number>();
  readonly #fate = new Map<string, 'refund' | 'returned' | 'disputed'>();
  #events = 0;
  #billers = 0;
  /** What Stripe has transferred, by our ids. */
  readonly #transferred = new Set<string>();
  /** No call is lost any more. */
  isHealed = false;

  constructor(place: Place, random: () => number) {
    this.#place = place;
    this.#random = random;
  }

  /** Each of these billers of a partner has an account: at a bank, every other one at Stripe. */
  async pays(database: Database, partner: Partner, billers: readonly string[]): Promise<void> {
    for (const biller_id of billers) {
      const [routing_number, account_number] = ['021000021', '000111222'];
      this.#billers += 1;
      const account =
        this.#billers % 2 === 0
          ? ({ way: 'stripe', holder_name: 'B', stripe_account: 'acct_b' } as const)
          : ({ way: 'pain001', holder_name: 'B', routing_number, account_number } as const);
      await setPayout(
        { database, sealer: this.#sealer },
        partner,
        { biller_id, ...account },
        'ada',
      );
    }
  }

  /** One of the acts. */
  async act(tools: Tools): Promise<void> {
    await this.tried(this.#acts[Math.floor(this.#random() * this.#acts.length)]?.(tools));
  }

  /** An act that may be refused, or lost. */
  async tried(act: Promise<void> | undefined): Promise<void> {
    await act?.catch(this.#refused);
  }

  /** A refusal, a lost connection and a lost answer are what an act may meet. */
  readonly #refused = (error: unknown): void => {
    if (!(error instanceof Error)) return;
    const isMeant =
      /Refusal|DatabaseUnavailable|Crash/.test(error.name) || error.message === 'no answer';
    if (!isMeant) this.#place.bug(`the office: ${error.message}`);
  };

  readonly #acts: readonly ((tools: Tools) => Promise<void>)[] = [
    (tools) => this.refund(tools),
    (tools) => this.takeBack(tools),
    (tools) => this.takeBack(tools),
    (tools) => this.endCases(tools),
    (tools) => this.closeBatches(tools),
    (tools) => this.remit(tools),
    (tools) => this.remit(tools),
    (tools) => this.carry(tools),
    (tools) => this.repeatRefunds(tools),
    ({ database, clock }) => sumBook(database, clock.now()),
  ];

  #refunding({ database, clock }: Tools) {
    return {
      database,
      secondPersonAboveCents: 1e12,
      clock,
      log: silentLog,
      refundPart: async (_order: unknown, part: { refund_id: string; amount_in_cents: number }) => {
        await this.#away();
        this.#refunded.set(part.refund_id, part.amount_in_cents);
        await this.#away();
        return { kind: 'refunded' } as const;
      },
    };
  }

  /** A call to a processor or a bank: it takes a moment, and may be lost. */
  async #away(): Promise<void> {
    await this.#place.sleep(20 + this.#random() * 200);
    if (!this.isHealed && this.#random() < 0.15) throw new Error('no answer');
  }

  /** A payment whose money is with the platform and to which nothing else happens. */
  async #payment(fate: 'refund' | 'returned' | 'disputed') {
    const rows = await this.#place.captured();
    const free = rows.filter(({ id }) => (this.#fate.get(id) ?? fate) === fate);
    const one = free[Math.floor(this.#random() * free.length)];
    if (one === undefined) return undefined;
    this.#fate.set(one.id, fate);
    this.#place.happened(`payment ${fate}`);
    return one;
  }

  async refund(tools: Tools): Promise<void> {
    const one = await this.#payment('refund');
    if (one === undefined) return;
    const amount_in_cents =
      this.#random() < 0.5 ? one.cents : Math.ceil(this.#random() * one.cents);
    const request = { amount_in_cents, reason_code: 'other', reason: REASON } as const;
    // Whoever gets no answer asks again with the same words.
    for (let asks = 0; asks < 2; asks += 1) {
      await requestRefund(this.#refunding(tools), one.id, request, 'ada').catch(this.#refused);
    }
  }

  async repeatRefunds(tools: Tools): Promise<void> {
    await repeatRefunds(this.#refunding(tools));
  }

  async takeBack({ database, clock }: Tools): Promise<void> {
    const kind = this.#random() < 0.5 ? 'returned' : 'disputed';
    const one = await this.#payment(kind);
    if (one === undefined) return;
    const reference = `d-${one.id}`;
    const tell = async (outcome?: 'won' | 'lost'): Promise<void> => {
      this.#events += 1;
      const money = [{ reference, amount_in_cents: one.cents, ...(outcome && { outcome }) }];
      const event_id = `${this.#events}`;
      const event = { event_id, platform_payment_id: one.id, kind, money } as const;
      await applyEvent(database, 'simulated', event, new Date(clock.now()).toISOString());
    };
    await tell();
    if (kind === 'disputed') await tell(this.#random() < 0.5 ? 'won' : 'lost');
  }

  async endCases({ database, clock }: Tools): Promise<void> {
    for (const { case_id } of await listCases(database, { state: 'lost' })) {
      const ends = ['recovered', 'charged_to_biller', 'written_off'] as const;
      const disposition = ends[Math.floor(this.#random() * ends.length)] ?? 'written_off';
      const on = { database, secondPersonAboveCents: 1e12 };
      const by = { actor: 'ada', at: new Date(clock.now()).toISOString() };
      await endCase(on, case_id, { disposition, reason: REASON }, by).catch(this.#refused);
    }
  }

  async closeBatches({ database }: Tools): Promise<void> {
    const open = await database.query<{ platform_batch_id: string }>(
      'SELECT platform_batch_id FROM duebridge_platform.batches WHERE closed_at IS NULL ORDER BY 1',
    );
    for (const { platform_batch_id } of open) {
      await closeBatchNow(database, platform_batch_id, REASON, 'ada').then(
        () => this.#place.happened('batch closed'),
        this.#refused,
      );
    }
  }

  async remit({ database, clock }: Tools): Promise<void> {
    await remit({
      database,
      registry: this.#place.registry,
      sealer: this.#sealer,
      clock,
      log: silentLog,
      channel: {
        send: async ({ remittance_id }) => {
          await this.#away();
          this.#transferred.add(remittance_id);
          await this.#away();
          return { kind: 'sent' };
        },
        find: async (id) => {
          await this.#away();
          return this.#transferred.has(id) ? { kind: 'sent' } : undefined;
        },
        state: async (id) => {
          await this.#away();
          return { kind: this.#transferred.has(id) ? 'paid' : 'under_way' };
        },
      },
      compare: (id) =>
        database.query(
          `INSERT INTO duebridge_platform.comparisons (platform_batch_id, actor, method, compared, differences) VALUES ($1, 'ada', 'statement', 1, 0)`,
          [id],
        ),
    });
  }

  /** The bank pays most transfers of a file, sends back some, and a few a while later. */
  async carry({ database, clock }: Tools): Promise<void> {
    const desk = {
      database,
      sealer: this.#sealer,
      clock,
      payer: PAYER,
      secondPersonAboveCents: 1e12,
    };
    const order = { way: 'pain001', mode: 'test' } as const;
    await makeBankFile(desk, order, 'ada').catch(this.#refused);
    for (const { remittance_id, file_id } of await listRemittances(database, { state: 'sent' })) {
      if (file_id === null) continue;
      const outcome = this.#random() < 0.1 ? 'returned' : 'paid';
      await endTransfer(desk, remittance_id, { outcome, reference: 'B' }, 'ada').then(
        () => this.#place.happened(`transfer ${outcome}`),
        this.#refused,
      );
    }
    const late = { outcome: 'returned', reference: 'late' } as const;
    for (const { remittance_id } of await listRemittances(database, { state: 'paid' })) {
      if (this.isHealed || this.#random() >= 0.05) continue;
      await endTransfer(desk, remittance_id, late, 'ada').catch(this.#refused);
    }
  }

  /**
   * PL17: what each biller posted is what it was paid, is owed and bears; what it was paid is what its statements say; and what the
   * processor refunded is what the book says.
   */
  async violations(postings: ReadonlyMap<string, number>): Promise<Violation[]> {
    const on = { query: this.#place.look };
    const found: string[] = [];
    const off = await on.query<{ biller_id: string; cents: number }>(
      'SELECT biller_id, sum(amount_in_cents)::bigint AS cents FROM duebridge_platform.deductions GROUP BY 1',
    );
    const borne = new Map(off.map(({ biller_id, cents }) => [biller_id, cents]));
    const paid = new Map<string, number>();
    for (const one of await listRemittances(on, { state: 'paid', limit: 10_000 })) {
      let cents = paid.get(one.biller_id) ?? 0;
      try {
        for await (const lines of linesOf(on, one)) {
          for (const line of lines) cents += line.amount_in_cents;
        }
      } catch (error) {
        found.push(String(error));
      }
      paid.set(one.biller_id, cents);
    }
    for (const one of await readBalances(on)) {
      const { biller_id } = one;
      if (one.paid !== (paid.get(biller_id) ?? 0)) {
        found.push(
          `${biller_id} was paid ${one.paid}, and its statements say ${paid.get(biller_id)}`,
        );
      }
      const has = one.owed + one.remitting + one.paid + (borne.get(biller_id) ?? 0);
      const posted = postings.get(biller_id);
      if (posted !== undefined && posted !== has) {
        found.push(`${biller_id} posted ${posted}, and is paid, owed or bears ${has}`);
      }
    }
    const sent = [...this.#refunded.values()].reduce((sum, cents) => sum + cents, 0);
    const [book] = await on.query<{ cents: number }>(
      `SELECT coalesce(sum(amount_in_cents), 0)::bigint AS cents FROM duebridge_platform.transfers WHERE act = 'refund_done'`,
    );
    const refunded = book?.cents ?? 0;
    if (sent !== refunded) found.push(`${sent} were refunded, and the book has ${refunded}`);
    return found.map((what) => ({ rule: 'PL17', what }));
  }
}

/** An office in a world with an engine: one process after the other, each killed at some moment, perhaps in an act, until it closes. */
export function officeIn(
  stage: Stage,
  random: () => number,
): {
  readonly office: Office;
  /** What the processor has not answered is asked once more, and nothing else begins. */
  readonly close: () => Promise<void>;
} {
  const { world, postgres, partners, databaseFaults, bugs } = stage.around;
  const office = new Office(
    {
      registry: registryOf(partners),
      look: postgres.look.bind(postgres),
      sleep: (ms) => world.sleep(ms),
      captured: () =>
        postgres.look(
          `SELECT p.platform_payment_id AS id, p.amount_in_cents AS cents FROM duebridge_platform.payments p
             JOIN duebridge_platform.funds f USING (platform_payment_id)
            WHERE f.state = 'captured' AND p.status = 'succeeded' AND p.settled_at IS NOT NULL ORDER BY 1`,
        ),
      happened: stage.fault,
      bug: (what) => void bugs.push(what),
    },
    random,
  );
  let isClosing = false;
  const born = (name: string, faults: DatabaseFaults) => {
    const process = new Process(world, name);
    return { process, database: postgres.connect(process, faults), clock: process.clock };
  };
  const work = async (): Promise<void> => {
    const { database } = born('office', healthyDatabase());
    for (const { partner, side } of partners.values()) {
      await office.pays(database, partner, [side.biller_id]);
    }
    for (let number = 1; ; number += 1) {
      const { process, ...tools } = born(`office ${number}`, databaseFaults);
      if (!office.isHealed) {
        world.after(10_000 + random() * 40_000, () => {
          if (office.isHealed) return;
          stage.fault('office killed');
          process.kill();
        });
        process.stepWallClock((random() - 0.5) * 7_200_000);
      }
      while (!process.isDead) {
        await world.sleep(EVERY_MS);
        // What a killed process waits for never comes; its successor does not wait either.
        await Promise.race([office.act(tools), world.sleep(15_000)]);
        if (isClosing) return;
      }
    }
  };
  void work();
  return {
    office,
    async close() {
      isClosing = true;
      await world.run(20_000);
      let isOver = false;
      const last = async (): Promise<void> => {
        await office.repeatRefunds(born('office at last', healthyDatabase()));
        isOver = true;
      };
      void last();
      await world.run(60_000, () => isOver);
    },
  };
}
