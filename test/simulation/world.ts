/**
 * One simulated world from a seed: the real engine on one to three workers, our kit on one or two replicas and partners in memory,
 * a real PostgreSQL, a network and a processor. First everything that the seed chose goes wrong; then everything heals; then every
 * payment has to end within a time limit.
 */
import { seededRandom } from '@duebridge/runtime/testing';
import type { Partner } from '../../packages/platform/src/partners/registry.ts';
import { findFaults } from '../../packages/platform/src/money/check.ts';
import { check, type Violation } from './checkers.ts';
import { healthyDatabase, type SimulatedPostgres } from './database.ts';
import { History, type Ending, type PlatformRow } from './history.ts';
import { healthyNetwork } from './network.ts';
import {
  KitPartner,
  ModelPartner,
  OwnSystem,
  type SimulatedPartner,
  type Trouble,
} from './partners.ts';
import { Spinning, World } from './time.ts';
import { Processor, WorkerProcess, type Surroundings } from './worker.ts';

/** How long everything goes wrong, in virtual milliseconds. */
const TROUBLE_MS = 90_000;
/**
 * How long after healing every payment has to have ended and been settled: a partner may have asked for a pause of 15 minutes
 * (Retry-After is capped there), and the first poll after that may be a minute away.
 */
const BOUND_MS = 20 * 60_000;
/** Far from any seed that is run. */
const LATER_SEEDS = 1_000_000_000;
/** A healthy partner waits for no other: from confirm to settled, in addition to its own time. */
const NEIGHBOUR_MS = 30_000;

/** The result of a world. */
export interface Outcome {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly history: History;
  /** What the seed drew: payments and faults, by names that `without` takes. */
  readonly parts: readonly string[];
  readonly payments: number;
  /** Faults that happened, by kind. */
  readonly faults: ReadonlyMap<string, number>;
  /** Virtual milliseconds that passed, and those from healing to the last settlement. */
  readonly virtualMs: number;
  readonly convergedMs: number;
}

const TROUBLES: readonly Trouble[] = [
  'always_500',
  'refuses_credentials',
  'refuses_one',
  'fails_one',
  'hangs',
  'too_many_requests',
  'forgets',
  'claims_to_wait',
  'html',
  'other_amount',
];
/** Drawn apart, as everything that later joined these worlds, so that a seed still tells most of its story. */
const LATER_TROUBLES: readonly Trouble[] = ['delays_one', 'denies_reads'];

/** Runs one world to its end, without those of its payments and faults that `without` names (shrink.ts). */
export async function runWorld(
  postgres: SimulatedPostgres,
  seed: number,
  without: ReadonlySet<string> = new Set(),
): Promise<Outcome> {
  const random = seededRandom(seed);
  const world = new World(random);
  const story: Story = {
    world,
    random,
    history: new History(() => world.elapsed),
    faults: new Map(),
    parts: [],
  };
  try {
    return await live(postgres, seed, without, story);
  } catch (error) {
    if (!(error instanceof Spinning)) throw error;
    const { history, parts, faults } = story;
    const violations = [{ rule: 'LV5', what: error.message }];
    const times = { virtualMs: world.elapsed, convergedMs: BOUND_MS };
    return { seed, violations, history, parts, payments: 0, faults, ...times };
  }
}

/** What is recorded while a world runs. */
interface Story {
  readonly world: World;
  readonly random: () => number;
  readonly history: History;
  readonly faults: Map<string, number>;
  readonly parts: string[];
}

async function live(
  postgres: SimulatedPostgres,
  seed: number,
  without: ReadonlySet<string>,
  { world, random, history, faults, parts }: Story,
): Promise<Outcome> {
  /** Everything is drawn, so that the rest of the world stays as it is, and then happens or not. */
  const happens = (part: string): boolean => {
    parts.push(part);
    return !without.has(part);
  };
  const fault = (what: string): void => {
    faults.set(what, (faults.get(what) ?? 0) + 1);
    history.add({ kind: 'fault', what });
  };
  await postgres.begin(world);

  // Swarm: each seed switches each kind of fault on or off, so that rare combinations occur as well as common ones.
  const on = (of = 0.5): boolean => random() < of;
  const between = (least: number, most: number): number => least + random() * (most - least);
  /** Only the one partner is in trouble, so that nobody else has a reason to wait. */
  const isCalm = on(0.25);
  const later = seededRandom(seed + LATER_SEEDS);
  const isLater = later() < 0.2;
  const troubles = isLater ? LATER_TROUBLES : TROUBLES;
  const drawnTrouble =
    troubles[Math.floor((isLater ? later() : random()) * troubles.length)] ?? 'none';
  if (isLater) random();
  const trouble = happens(`partner: ${drawnTrouble}`) ? drawnTrouble : 'none';
  /** Share of the payments of which nothing is reserved, so that they may begin as dispatching: none, half or all. */
  const unreserved = Math.floor(random() * 3) / 2;
  const database = healthyDatabase();
  const network = healthyNetwork();
  const processor = new Processor(world);

  /** The accounts behind the kit: its own tables, or a system of the biller's. */
  const own = later() < 0.3 ? new OwnSystem(world) : undefined;
  const kit = new KitPartner(world, postgres, database, 'kit', 'kit-biller', own);
  const slow = new ModelPartner(world, 'slow', 'slow-biller', 'none', between(500, 20_000));
  const troubled = new ModelPartner(
    world,
    'troubled',
    'troubled-biller',
    trouble,
    drawnTrouble === 'forgets' ? between(10_000, 40_000) : between(200, 3_000),
  );
  const sides: readonly SimulatedPartner[] = [kit, slow, troubled];
  const partners = new Map(sides.map((side) => [side.name, { partner: registration(side), side }]));
  for (const { partner, side } of partners.values()) {
    await postgres.look(
      `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed)
       VALUES ($1, $1, 'biller', $2, 'https://partner.example', 'key', '{}', 'x')`,
      [partner.partner_id, side.biller_id],
    );
  }
  const around: Surroundings = {
    world,
    postgres,
    databaseFaults: database,
    networkFaults: network,
    history,
    processor,
    bugs: [],
    partners,
  };
  let kitIsUp = false;
  void (async () => {
    await kit.start(on() ? 2 : 1, ['A-1', 'A-2', 'A-3'], on(0.3) ? 3_000 : 0);
    kitIsUp = true;
  })();
  await world.run(10_000, () => kitIsUp);

  const workers: WorkerProcess[] = [];
  let born = 0;
  const bear = (): void => {
    born += 1;
    const worker = new WorkerProcess(around, `worker ${born}`);
    workers.push(worker);
    void worker.start();
  };
  for (let count = 1 + Math.floor(random() * 3); count > 0; count -= 1) bear();
  await world.run(100);
  const begun = world.elapsed;

  // Payments, all through the trouble.
  const payments = 8 + Math.floor(random() * 8);
  for (let made = 0; made < payments; made += 1) {
    const at = between(0, TROUBLE_MS * 0.7);
    if (!happens(`payment ${made + 1}`)) continue;
    world.after(at, () => {
      const alive = workers.filter(({ process }) => !process.isDead);
      const worker = alive[Math.floor(random() * alive.length)];
      const to = sides[Math.floor(random() * sides.length)]?.name ?? 'kit';
      const cents = 1 + Math.floor(random() * 50_000);
      const method = !on(unreserved) ? 'simulated' : cents % 2 === 0 ? 'mandate' : 'elsewhere';
      worker?.process.whenRunning(() => {
        const account = `A-${1 + Math.floor(random() * 3)}`;
        void worker.confirm(to, account, cents, method);
      });
    });
  }

  if (!isCalm) {
    const drawn = <F extends object>(
      chance: number,
      faults: F,
      name: keyof F & string,
      least: number,
      most: number,
      from = random,
    ): void => {
      if (from() >= chance) return;
      const value = least + from() * (most - least);
      if (happens(`${name} ${least < 1 ? value.toFixed(3) : Math.round(value)}`))
        Object.assign(faults, { [name]: value });
    };
    drawn(0.5, network, 'lostRequest', 0.01, 0.2);
    drawn(0.5, network, 'lostAnswer', 0.01, 0.2);
    drawn(0.3, network, 'stalled', 0.01, 0.1);
    drawn(0.3, network, 'doubled', 0.05, 0.3);
    drawn(0.3, network, 'gateway', 0.02, 0.2);
    drawn(0.3, network, 'latencyMs', 50, 800);
    drawn(0.4, database, 'lostBefore', 0.002, 0.03);
    drawn(0.4, database, 'lostAnswer', 0.002, 0.03);
    drawn(0.3, database, 'latencyMs', 20, 600);
    drawn(0.3, processor.faults, 'before', 0.02, 0.2);
    drawn(0.3, processor.faults, 'after', 0.02, 0.2);
    drawn(0.3, processor.faults, 'hangs', 0.02, 0.3, later);
    if (own) {
      drawn(0.5, own.faults, 'before', 0.05, 0.3, later);
      drawn(0.7, own.faults, 'after', 0.05, 0.4, later);
      drawn(0.5, own.faults, 'lookup', 0.05, 0.5, later);
      drawn(0.5, own.faults, 'slowMs', 100, 12_000, later);
    }
    const some = (): WorkerProcess | undefined =>
      workers.filter(({ process }) => !process.isDead)[Math.floor(random() * workers.length)];
    const acts: readonly (readonly [string, number, () => void])[] = [
      [
        'worker killed',
        0.5,
        () => {
          some()?.process.kill();
          world.after(between(500, 20_000), bear);
        },
      ],
      ['worker paused', 0.4, () => some()?.process.pause(between(500, 25_000))],
      [
        'worker clock stepped',
        0.3,
        () => some()?.process.stepWallClock(between(-3_600_000, 3_600_000)),
      ],
      [
        'worker joined',
        0.2,
        () => {
          if (workers.length < 6) bear();
        },
      ],
      [
        'database down',
        0.4,
        () => {
          database.down = true;
          world.after(between(200, 15_000), () => {
            database.down = false;
          });
        },
      ],
      [
        'network cut',
        0.4,
        () => {
          network.cut = true;
          world.after(between(200, 10_000), () => {
            network.cut = false;
          });
        },
      ],
      ['kit killed', 0.4, () => kit.crash(between(200, 10_000))],
      ['kit paused', 0.3, () => kit.pause(between(200, 10_000))],
      ['kit clock stepped', 0.2, () => kit.stepWallClock(between(-3_600_000, 3_600_000))],
    ];
    const drawActs = (
      acts: readonly (readonly [string, number, () => void])[],
      from: () => number,
    ): void => {
      for (const [what, chance, act] of acts) {
        if (from() >= chance) continue;
        for (let count = 1 + Math.floor(from() * 3); count > 0; count -= 1) {
          const at = 1_000 + from() * (TROUBLE_MS - 1_000);
          if (!happens(`${what} at ${Math.round(at)} ms`)) continue;
          world.after(at, () => {
            fault(what);
            act();
          });
        }
      }
    };
    drawActs(acts, random);
    drawActs(
      [['database clock stepped', 0.2, () => postgres.stepClock((later() - 0.5) * 2 * 3_600_000)]],
      later,
    );
  }
  if (drawnTrouble === 'forgets') {
    const at = between(5_000, TROUBLE_MS);
    world.after(at, () => {
      if (trouble !== 'forgets') return;
      fault('partner restored from a backup');
      troubled.forget();
    });
  } else if (trouble !== 'none') fault(`partner: ${trouble}`);

  const rows = new Rows(postgres, history);
  await everyTwoSeconds(world, TROUBLE_MS, rows);

  // Healing.
  Object.assign(network, healthyNetwork());
  Object.assign(database, healthyDatabase());
  Object.assign(processor.faults, { before: 0, after: 0, hangs: 0 });
  for (const side of sides) side.heal();
  history.add({ kind: 'healed' });
  const healedAt = world.elapsed;
  if (workers.every(({ process }) => process.isDead)) bear();
  let convergedMs = BOUND_MS;
  while (world.elapsed < healedAt + BOUND_MS) {
    // As often as before, and with the time: a payment that is settled only now has waited no longer than until now.
    await world.run(2_000);
    const standing = await rows.look(world.elapsed);
    if (standing.every((row) => row.settled || row.stage === 'review')) {
      convergedMs = world.elapsed - healedAt;
      break;
    }
  }
  // Whoever would still call after the end does it now, and whoever cannot keep a lease shows it.
  await everyTwoSeconds(world, 40_000, rows);
  const unproven = workers.filter(({ process, engine }) => !process.isDead && !engine.health.lease);

  const end: Ending = {
    platform: await rows.look(),
    funds: processor.acts,
    partner: (await Promise.all(sides.map((side) => side.rows()))).flat(),
    postings: (await Promise.all(sides.map((side) => side.postings()))).flat(),
  };
  for (const { process } of workers) process.kill();
  for (const side of sides) await side.stop();
  const those = (are: (side: SimulatedPartner) => boolean): Set<string> =>
    new Set(sides.filter(are).map(({ name }) => name));
  const wrong = those(({ isWrong }) => isWrong);
  const forgetful = those(({ isForgetful }) => isForgetful);
  const violations = [
    ...check({ events: history.events, end, forgetful, wrong }),
    ...unproven.map(({ process }) => ({
      rule: 'LV1',
      what: `${process.name} lives, the database answers, and its lease is not proven`,
    })),
    ...around.bugs.map((what) => ({ rule: 'bug', what })),
    ...[...rows.faults].map((what) => ({ rule: 'PL17', what })),
    ...(isCalm ? neighboursThatWaited(rows, history, trouble) : []),
  ];
  return {
    seed,
    violations,
    history,
    parts,
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
              amount_in_cents AS cents, review_reason, slot,
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
    for (const fault of await findFaults(on, 0)) this.faults.add(fault);
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

export function registration(side: SimulatedPartner): Partner {
  return {
    partner_id: side.name,
    name: side.name,
    kind: 'biller',
    biller_id: side.biller_id,
    biller_names: {},
    mode: 'test',
    support_contact: null,
    colour: null,
    logo: null,
    refusals: [],
    base_url: 'https://partner.example',
    origins: [],
    paths: {} as Partner['paths'],
    budget: {
      max_concurrent_calls: 8,
      max_calls_per_second: 50,
      call_timeout_ms: 15_000,
      wait_seconds: side.name === 'slow' ? 0 : 10,
    },
    account_check: 'off',
    batch_time_zone: 'UTC',
    batch_cutoff: '00:00',
    auth: { method: 'key', header: 'x-api-key' },
    paused: false,
    pause_reason: null,
    created_at: '2026-01-01T00:00:00.000Z',
  };
}
