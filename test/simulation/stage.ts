/**
 * What a seed draws: the partners and processes of a world, its payments, and everything that goes wrong in it.
 *
 * Three streams of random numbers: what joined these worlds later is drawn apart, so that a seed still tells most of its story.
 */
import { seededRandom } from '@duebridge/runtime/testing';
import type { Partner } from '../../packages/platform/src/partners/registry.ts';
import { healthyDatabase, type SimulatedPostgres } from './database.ts';
import type { History } from './history.ts';
import { healthyNetwork } from './network.ts';
import {
  KitPartner,
  ModelPartner,
  OwnSystem,
  type SimulatedPartner,
  type Trouble,
} from './partners.ts';
import type { World } from './time.ts';
import { confirmOf, Processor, WorkerProcess, type Confirm, type Surroundings } from './worker.ts';

/** How long everything goes wrong, in virtual milliseconds. */
export const TROUBLE_MS = 90_000;
/** Far from any seed that is run. */
const LATER_SEEDS = 1_000_000_000;
/** A fault whose payments end later than those of any other. */
export const PAUSED_BY_OPERATOR = 'partner paused by an operator';
/** Share of the worlds in which an asynchronous standby takes over from the platform's database. */
const FAILS_OVER = 0.15;
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

/** What is recorded while a world runs. */
export interface Story {
  readonly world: World;
  readonly random: () => number;
  readonly history: History;
  readonly faults: Map<string, number>;
}

/** The draws of a seed. */
function drawOf(seed: number, { random }: Story) {
  return {
    first: random,
    /** Two further streams for what joined these worlds later, so that a seed still tells most of its story. */
    later: seededRandom(seed + LATER_SEEDS),
    latest: seededRandom(seed + 2 * LATER_SEEDS),
    on: (of = 0.5) => random() < of,
    between: (least: number, most: number) => least + random() * (most - least),
  };
}

/** A world, before anything happens in it. */
export type Stage = Awaited<ReturnType<typeof setStage>>;

/** Makes the partners and what is between them, healthy but for the one partner. */
export async function setStage(postgres: SimulatedPostgres, seed: number, story: Story) {
  const { world, history, faults } = story;
  const draw = drawOf(seed, story);
  const { first, later, latest } = draw;
  // Swarm: each seed switches each kind of fault on or off, so that rare combinations occur as well as common ones.
  const isCalm = draw.on(0.25);
  const isLater = later() < 0.2;
  const troubles = isLater ? LATER_TROUBLES : TROUBLES;
  const isDead = latest() < 0.1;
  const drawnBefore = troubles[Math.floor((isLater ? later() : first()) * troubles.length)];
  const trouble = isDead ? 'dead_name' : (drawnBefore ?? 'none');
  if (isLater) first();
  const unreserved = Math.floor(first() * 3) / 2;
  const databaseFaults = healthyDatabase();
  const processor = new Processor(world);

  /** The accounts behind the kit: its own tables, or a system of the biller's. */
  const own = later() < 0.3 ? new OwnSystem(world) : undefined;
  const kit = new KitPartner(world, postgres, databaseFaults, 'kit', 'kit-biller', own);
  const slow = new ModelPartner(world, 'slow', 'slow-biller', 'none', draw.between(500, 20_000));
  // Long enough for what is forgotten, and to be asked for in a loop.
  const isSlow = trouble === 'forgets' || trouble === 'claims_to_wait';
  const settleMs = isSlow ? draw.between(10_000, 40_000) : draw.between(200, 3_000);
  const troubled = new ModelPartner(world, 'troubled', 'troubled-biller', trouble, settleMs);
  const sides: readonly SimulatedPartner[] = [kit, slow, troubled];
  const partners = new Map(sides.map((side) => [side.name, { partner: registration(side), side }]));
  for (const { partner, side } of partners.values()) {
    await postgres.look(
      `INSERT INTO duebridge_platform.partners (partner_id, name, kind, mode, biller_id, base_url, auth_method, auth_public, auth_sealed)
       VALUES ($1, $1, 'biller', 'test', $2, 'https://partner.example', 'key', '{}', 'x')`,
      [partner.partner_id, side.biller_id],
    );
  }
  const failsOver = latest() < FAILS_OVER && !isCalm;
  const around: Surroundings = {
    world,
    postgres,
    databaseFaults,
    networkFaults: healthyNetwork(),
    history,
    processor,
    bugs: [],
    partners,
    failsOver,
  };
  return {
    draw,
    world,
    history,
    around,
    /** Share of the payments of which nothing is reserved, so that they may begin as dispatching: none, half or all. */
    unreserved,
    partners,
    sides,
    kit,
    own,
    troubled,
    workers: [] as WorkerProcess[],
    confirmed: [] as Confirm[],
    /** Only the one partner is in trouble, so that nobody else has a reason to wait. */
    isCalm,
    trouble,
    fault: (what: string): void => {
      faults.set(what, (faults.get(what) ?? 0) + 1);
      history.add({ kind: 'fault', what });
    },
  };
}

/** Starts another worker. */
export function bear({ around, workers }: Stage): void {
  const worker = new WorkerProcess(around, `worker ${workers.length + 1}`);
  workers.push(worker);
  void worker.start();
}

/** Payments, all through the trouble. */
export function confirmPayments(stage: Stage): void {
  const { draw, world, sides, confirmed, unreserved } = stage;
  const { first } = draw;
  const payments = 8 + Math.floor(first() * 8);
  for (let made = 0; made < payments; made += 1) {
    world.after(draw.between(0, TROUBLE_MS * 0.7), () => {
      const worker = someWorker(stage);
      const partner_id = sides[Math.floor(first() * sides.length)]?.name ?? 'kit';
      const cents = 1 + Math.floor(first() * 50_000);
      const isReserved = !draw.on(unreserved);
      const funding_method = isReserved ? 'simulated' : cents % 2 === 0 ? 'mandate' : 'elsewhere';
      worker?.process.whenRunning(() => {
        const account_id = `A-${1 + Math.floor(first() * 3)}`;
        const what = { partner_id, account_id, cents, funding_method } as const;
        const confirm = confirmOf(what, world.now());
        void worker.confirm(confirm).then((isMade) => isMade && confirmed.push(confirm));
      });
    });
  }
}

function someWorker({ draw, workers }: Stage): WorkerProcess | undefined {
  const alive = workers.filter(({ process }) => !process.isDead);
  return alive[Math.floor(draw.first() * alive.length)];
}

/** Draws everything that goes wrong besides the one partner. */
export function drawFaults(stage: Stage): void {
  const { around, own } = stage;
  const { first, later, latest } = stage.draw;
  const { networkFaults: network, databaseFaults: database, processor } = around;
  const drawn = <F extends object>(
    chance: number,
    faults: F,
    name: keyof F & string,
    least: number,
    most: number,
    from = first,
  ): void => {
    if (from() >= chance) return;
    Object.assign(faults, { [name]: least + from() * (most - least) });
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
    // A replica stands still between its last look and its call, for longer than its claims hold.
    drawn(0.6, own, 'suspendsMs', 45_000, 65_000, latest);
  }
  drawActs(stage, ACTS, first);
  drawActs(stage, LATER_ACTS, later);
  drawActs(stage, LATEST_ACTS, latest);
  if (around.failsOver === true) drawFailover(stage);
}

/** Something that happens at a moment: what, how likely in a world, and how. */
type Act = readonly [what: string, chance: number, act: (stage: Stage) => void];

const ACTS: readonly Act[] = [
  [
    'worker killed',
    0.5,
    (stage) => {
      anyWorker(stage)?.process.kill();
      stage.world.after(stage.draw.between(500, 20_000), () => bear(stage));
    },
  ],
  [
    'worker paused',
    0.4,
    (stage) => anyWorker(stage)?.process.pause(stage.draw.between(500, 25_000)),
  ],
  [
    'worker clock stepped',
    0.3,
    (stage) => anyWorker(stage)?.process.stepWallClock(stage.draw.between(-3_600_000, 3_600_000)),
  ],
  [
    'worker joined',
    0.2,
    (stage) => {
      if (stage.workers.length < 6) bear(stage);
    },
  ],
  ['database down', 0.4, (stage) => databaseDown(stage, stage.draw.between(200, 15_000))],
  [
    'network cut',
    0.4,
    ({ world, draw, around: { networkFaults } }) => {
      networkFaults.cut = true;
      world.after(draw.between(200, 10_000), () => {
        networkFaults.cut = false;
      });
    },
  ],
  ['kit killed', 0.4, ({ kit, draw }) => kit.crash(draw.between(200, 10_000))],
  ['kit paused', 0.3, ({ kit, draw }) => kit.pause(draw.between(200, 10_000))],
  [
    'kit clock stepped',
    0.2,
    ({ kit, draw }) => kit.stepWallClock(draw.between(-3_600_000, 3_600_000)),
  ],
];
const LATER_ACTS: readonly Act[] = [
  [
    'database clock stepped',
    0.2,
    ({ around, draw }) => around.postgres.stepClock((draw.later() - 0.5) * 2 * 3_600_000),
  ],
];
const LATEST_ACTS: readonly Act[] = [
  [
    PAUSED_BY_OPERATOR,
    0.15,
    ({ partners, around, world, draw }) => {
      const known = partners.get('troubled');
      if (known === undefined) return;
      // Holds that end before the operator resumes the partner, and longer than the margin with which the engine relies on one.
      around.processor.holdMs = 330_000 + draw.latest() * 60_000;
      const set = (paused: boolean): void => {
        partners.set('troubled', { ...known, partner: { ...known.partner, paused } });
      };
      set(true);
      world.after(300_000 + draw.latest() * 240_000, () => set(false));
    },
  ],
];
function anyWorker({ draw, workers }: Stage): WorkerProcess | undefined {
  return workers.filter(({ process }) => !process.isDead)[
    Math.floor(draw.first() * workers.length)
  ];
}

function databaseDown({ world, around: { databaseFaults } }: Stage, ms: number): void {
  databaseFaults.down = true;
  world.after(ms, () => {
    databaseFaults.down = false;
  });
}

function drawActs(stage: Stage, acts: readonly Act[], from: () => number): void {
  for (const [what, chance, act] of acts) {
    if (from() >= chance) continue;
    for (let count = 1 + Math.floor(from() * 3); count > 0; count -= 1) {
      stage.world.after(1_000 + from() * (TROUBLE_MS - 1_000), () => {
        stage.fault(what);
        act(stage);
      });
    }
  }
}

/**
 * The platform's primary is lost, and an asynchronous standby takes over without its latest commits. The pages that are open ask again:
 * whoever confirmed what is not there any more confirms it once more.
 */
function drawFailover(stage: Stage): void {
  const { draw, world, around, history, confirmed } = stage;
  const { postgres } = around;
  const at = 2_000 + draw.latest() * (TROUBLE_MS - 20_000);
  const behindMs = 500 + draw.latest() * 4_000;
  const againMs = 2_000 + draw.latest() * 15_000;
  world.after(at - behindMs, () => void postgres.copyToStandby());
  world.after(at, () => {
    stage.fault('database failed over');
    databaseDown(stage, 500);
    history.add({ kind: 'rewound' });
    void postgres.failOver();
  });
  world.after(at + againMs, () => {
    for (const confirm of confirmed) {
      const worker = someWorker(stage);
      worker?.process.whenRunning(() => void worker.confirm(confirm, true));
    }
  });
}

/** Lets the trouble of the one partner begin. */
export function beginTrouble({ draw, world, troubled, trouble, fault }: Stage): void {
  if (trouble !== 'forgets') {
    if (trouble !== 'none') fault(`partner: ${trouble}`);
    return;
  }
  world.after(draw.between(5_000, TROUBLE_MS), () => {
    fault('partner restored from a backup');
    troubled.forget();
  });
}

export function registration(side: SimulatedPartner): Partner {
  return {
    partner_id: side.name,
    name: side.name,
    kind: 'biller',
    biller_id: side.biller_id,
    biller_names: {},
    biller_logos: {},
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
    batch_time_zone: 'UTC',
    batch_cutoff: '00:00',
    auth: { method: 'key', header: 'x-api-key' },
    paused: false,
    pause_reason: null,
    created_at: '2026-01-01T00:00:00.000Z',
  };
}
