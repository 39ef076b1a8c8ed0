/**
 * One simulated world from a seed: the real engine on one to three workers, our kit on one or two replicas and partners in memory,
 * a real PostgreSQL, a network and a processor. First everything that the seed chose goes wrong; then everything heals; then every
 * payment has to end within a time limit.
 */
import { seededRandom } from '@duebridge/runtime/testing';
import { outOfBalance, readBalances } from '../../packages/platform/src/money/balances.ts';
import { findFaults } from '../../packages/platform/src/money/check.ts';
import { belongTo } from './chance.ts';
import { check, type Violation } from './checkers.ts';
import { healthyDatabase, type SimulatedPostgres } from './database.ts';
import { History, type Ending, type PlatformRow } from './history.ts';
import { healthyNetwork } from './network.ts';
import { officeIn } from './office.ts';
import type { SimulatedPartner, Trouble } from './partners.ts';
import {
  bear,
  beginTrouble,
  confirmPayments,
  drawFaults,
  PAUSED_BY_OPERATOR,
  setStage,
  TROUBLE_MS,
  type Stage,
  type Story,
} from './stage.ts';
import { Spinning, World } from './time.ts';

/** How long after healing every payment has to have ended and been settled. */
const BOUND_MS = 10 * 60_000;
/** The same where a partner asked for a pause of ten minutes, or an operator made one of nine: what follows them comes later. */
const PAUSED_BOUND_MS = 20 * 60_000;
/**
 * In every seventh world the money goes on: refunds, returns, remittances (office.ts). The other worlds tell the story that they told before there
 * was an office. Where the database loses its tail, what had left for a bank is lost with it: that is not judged here.
 */
const WITH_OFFICE = 5;
const hasOffice = (seed: number, { around }: Stage): boolean =>
  seed % 7 === WITH_OFFICE && around.failsOver !== true;
/** Far from any seed that is run. */
const OFFICE_SEEDS = 5_000_000_000;
/** A healthy partner waits for no other: from confirm to settled, in addition to its own time. */
const NEIGHBOUR_MS = 30_000;

/** The result of a world. */
export interface Outcome {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly history: Pick<History, 'events'>;
  readonly payments: number;
  /** Faults that happened, by kind. */
  readonly faults: ReadonlyMap<string, number>;
  /** Virtual milliseconds that passed, and those from healing to the last settlement. */
  readonly virtualMs: number;
  readonly convergedMs: number;
}

/** Runs one world to its end. */
export async function runWorld(postgres: SimulatedPostgres, seed: number): Promise<Outcome> {
  const random = seededRandom(seed);
  const world = new World(random);
  const story: Story = {
    world,
    random,
    history: new History(() => world.elapsed),
    faults: new Map(),
  };
  const leave = belongTo(seed, () => world.now());
  await postgres.begin(world);
  const stage = await setStage(postgres, seed, story);
  try {
    return await live(postgres, seed, story, stage);
  } catch (error) {
    if (!(error instanceof Spinning)) throw error;
    const { history, faults } = story;
    const violations = [{ rule: 'LV5', what: error.message }];
    const times = { virtualMs: world.elapsed, convergedMs: BOUND_MS };
    return { seed, violations, history, payments: 0, faults, ...times };
  } finally {
    // Nothing of it goes on beside the next world.
    for (const { process } of stage.workers) process.kill();
    stage.kit.stop();
    leave();
  }
}

async function live(
  postgres: SimulatedPostgres,
  seed: number,
  story: Story,
  stage: Stage,
): Promise<Outcome> {
  const { world, random, history, faults } = story;
  const { draw, kit, sides, workers, around } = stage;

  let kitIsUp = false;
  void (async () => {
    // Its claims are of use only where there is another replica.
    const replicas = draw.on() || stage.own ? 2 : 1;
    await kit.start(replicas, ['A-1', 'A-2', 'A-3'], draw.on(0.3) ? 3_000 : 0);
    kitIsUp = true;
  })();
  await world.run(10_000, () => kitIsUp);
  for (let count = 1 + Math.floor(random() * 3); count > 0; count -= 1) bear(stage);
  const money = hasOffice(seed, stage)
    ? officeIn(stage, seededRandom(seed + OFFICE_SEEDS))
    : undefined;
  await world.run(100);
  const begun = world.elapsed;
  confirmPayments(stage);
  if (!stage.isCalm) drawFaults(stage);
  beginTrouble(stage);

  const rows = new Rows(postgres, history);
  await everyTwoSeconds(world, TROUBLE_MS, rows);

  // Healing.
  Object.assign(around.networkFaults, healthyNetwork());
  Object.assign(around.databaseFaults, healthyDatabase());
  Object.assign(around.processor.faults, { before: 0, after: 0, hangs: 0 });
  for (const side of sides) side.heal();
  if (money) money.office.isHealed = true;
  history.add({ kind: 'healed' });
  const healedAt = world.elapsed;
  if (workers.every(({ process }) => process.isDead)) bear(stage);
  const isPaused = stage.trouble === 'delays_one' || faults.has(PAUSED_BY_OPERATOR);
  let convergedMs = isPaused ? PAUSED_BOUND_MS : BOUND_MS;
  for (const end = world.elapsed + convergedMs; world.elapsed < end;) {
    // As often as before while neighbours are judged (LV3): a payment that is settled only now has waited no longer than until now.
    await world.run(world.elapsed < healedAt + 2 * NEIGHBOUR_MS ? 2_000 : 15_000);
    const standing = await rows.look(world.elapsed);
    if (standing.every((row) => row.settled || row.stage === 'review')) {
      convergedMs = world.elapsed - healedAt;
      break;
    }
  }
  // Whoever would still call after the end does it now, and whoever cannot keep a lease shows it.
  await everyTwoSeconds(world, 40_000, rows);
  await money?.close();
  const unproven = workers.filter(({ process, engine }) => !process.isDead && !engine.health.lease);

  const end: Ending = {
    platform: await rows.look(),
    funds: around.processor.acts,
    partner: (await Promise.all(sides.map((side) => side.rows()))).flat(),
    postings: (await Promise.all(sides.map((side) => side.postings()))).flat(),
  };
  const those = (are: (side: SimulatedPartner) => boolean): Set<string> =>
    new Set(sides.filter(are).map(({ name }) => name));
  const wrong = those(({ isWrong }) => isWrong);
  const forgetful = those(({ isForgetful }) => isForgetful);
  const sound = sides.filter(({ name }) => !wrong.has(name) && !forgetful.has(name));
  const postedBy = sound.map(({ name, biller_id }) => {
    const ids = new Set(end.platform.flatMap((row) => (row.partner === name ? [row.id] : [])));
    const posted = end.postings.filter(({ id }) => ids.has(id));
    return [biller_id, posted.reduce((sum, { cents }) => sum + cents, 0)] as const;
  });
  const violations = [
    ...((await money?.office.violations(new Map(postedBy))) ?? []),
    ...check({ events: history.events, end, forgetful, wrong }),
    ...unproven.map(({ process }) => ({
      rule: 'LV1',
      what: `${process.name} lives, the database answers, and its lease is not proven`,
    })),
    ...around.bugs.map((what) => ({ rule: 'bug', what })),
    ...[...rows.faults].map((what) => ({ rule: 'PL17', what })),
    ...(stage.isCalm ? neighboursThatWaited(rows, history, stage.trouble) : []),
  ];
  return {
    seed,
    violations,
    history,
    payments: end.platform.length,
    faults,
    virtualMs: world.elapsed - begun,
    convergedMs,
  };
}

/**
 * LV3: while one partner alone is in trouble, payments of the others end as if it did not exist; while it has trouble with one payment
 * alone, so do its others.
 */
function neighboursThatWaited(rows: Rows, history: History, trouble: Trouble): Violation[] {
  const first = history.events.find(
    (event) => event.kind === 'sent' && event.partner === 'troubled',
  );
  const victim = first?.kind === 'sent' && trouble === 'delays_one' ? first.id : undefined;
  return history.events.flatMap((event): Violation[] => {
    if (event.kind !== 'confirmed' || event.id === victim) return [];
    if (event.partner === 'troubled' && victim === undefined) return [];
    const settledAt = rows.settledAt.get(event.id) ?? Number.POSITIVE_INFINITY;
    // The slow partner takes up to 30 s by itself, and is polled at growing intervals until its times are known.
    const bound = event.partner === 'slow' ? NEIGHBOUR_MS + 45_000 : NEIGHBOUR_MS;
    return settledAt - event.at <= bound
      ? []
      : [
          {
            rule: 'LV3',
            what: `${event.id} at ${event.partner} waited although only another ${victim === undefined ? 'partner' : 'payment'} was in trouble`,
          },
        ];
  });
}

/** The payments' rows, looked at from outside; writes what changed into the history. The book of money has to hold at every look. */
class Rows {
  readonly settledAt = new Map<string, number>();
  /** Money that was not where it should be. */
  readonly faults = new Set<string>();
  readonly #postgres: SimulatedPostgres;
  readonly #history: History;
  readonly #seen = new Map<string, string>();

  constructor(postgres: SimulatedPostgres, history: History) {
    this.#postgres = postgres;
    this.#history = history;
  }

  async look(at?: number): Promise<PlatformRow[]> {
    const rows = await this.#postgres.look<PlatformRow & { slot: number | null }>(
      `SELECT platform_payment_id AS id, partner_id AS partner, status, stage, settled_at IS NOT NULL AS settled,
              amount_in_cents AS cents, review_reason, payment_id, slot,
              CASE funding_method WHEN 'mandate' THEN 'afterwards' WHEN 'elsewhere' THEN 'elsewhere' ELSE 'reserved' END AS collection
         FROM duebridge_platform.payments ORDER BY platform_payment_id`,
    );
    for (const { id, stage, status, slot, settled } of rows) {
      const now = `${stage} ${status} ${slot ?? ''}`;
      if (this.#seen.get(id) !== now) {
        this.#seen.set(id, now);
        this.#history.add({ kind: 'row', id, stage, status, slot });
      }
      if (settled && at !== undefined && !this.settledAt.has(id)) this.settledAt.set(id, at);
    }
    const on = { query: this.#postgres.look.bind(this.#postgres) };
    const balances = await readBalances(on);
    for (const fault of await findFaults(on, 0, balances)) this.faults.add(fault);
    for (const one of balances) {
      if (outOfBalance(one) !== 0) this.faults.add(`${one.biller_id} is out of balance`);
    }
    return rows;
  }
}

async function everyTwoSeconds(world: World, ms: number, rows: Rows): Promise<void> {
  const end = world.elapsed + ms;
  while (world.elapsed < end) {
    await world.run(Math.min(2_000, end - world.elapsed));
    await rows.look(world.elapsed);
  }
}
