/**
 * Healthy payments beside others that the same partner cannot take: the real engine with the times of production, in virtual time,
 * so that minutes of trouble take a second.
 */
import type { Json } from '@duebridge/contract';
import { seededRandom } from '@duebridge/runtime/testing';
import type { Partner } from '../../packages/platform/src/partners/registry.ts';
import { healthyDatabase, type SimulatedPostgres } from './database.ts';
import { History } from './history.ts';
import { healthyNetwork } from './network.ts';
import { ModelPartner, type Request, type Response } from './partners.ts';
import { World } from './time.ts';
import { confirmOf, Processor, WorkerProcess, type Surroundings } from './worker.ts';
import { registration } from './stage.ts';

/** What the partner answers for a sick payment; undefined to accept it, and never to end it. */
export type Sickness = (request: Request, world: World) => Promise<Response | undefined>;

/** One stream of healthy payments, and what happens beside it. */
export interface Scene {
  readonly sick: Sickness;
  /** Sick payments confirmed at once, just before the stream begins. */
  readonly count: number;
  /** Interval of further sick payments; none if it is left out. */
  readonly sickEveryMs?: number;
  /** How long the first sick payments are alone. */
  readonly aheadMs?: number;
  readonly everyMs?: number;
  readonly seconds?: number;
  readonly budget?: Partial<Partner['budget']>;
  /** The partner fails every healthy payment too. A failed payment has no time of its end. */
  readonly fails?: boolean;
}

/** Between looks at which payments have ended. */
const LOOK_MS = 50;

/** An answer that a partner gives when it cannot take a payment. */
export function refusal(status: number, more: { readonly retryAfter?: string } = {}): Response {
  return { kind: 'http', status, json: { code: 'NOT_NOW', message: 'no' }, ...more };
}

/** How long the partner takes to post a healthy payment. */
const SETTLE_MS = 100;
const HEALTHY_CENTS = 300;
const SICK_CENTS = 100;

/**
 * A partner whose sick payments are those of accounts that are named so. Like servers that settle a payment when they are asked for it, it
 * dates a posting by the poll.
 */
class SickPartner extends ModelPartner {
  readonly #at: World;
  readonly #scene: Pick<Scene, 'sick' | 'fails'>;
  readonly #since = new Map<string, number>();
  readonly #ends = new Map<string, Record<string, Json>>();

  constructor(world: World, scene: Pick<Scene, 'sick' | 'fails'>) {
    super(world, 'acme', 'acme', 'none', Number.POSITIVE_INFINITY);
    this.#at = world;
    this.#scene = scene;
  }

  override async handle(request: Request): Promise<Response> {
    const { id, account_id } = request;
    const isSick = account_id === 'sick';
    const refused = isSick ? await this.#scene.sick(request, this.#at) : undefined;
    if (refused !== undefined) return refused;
    const answer = await super.handle(request);
    if (isSick || answer.kind !== 'http' || answer.status !== 200) return answer;
    const { elapsed } = this.#at;
    const since = this.#since.get(id) ?? elapsed;
    this.#since.set(id, since);
    if (elapsed - since >= SETTLE_MS && !this.#ends.has(id)) {
      const posted_at = new Date(this.#at.now()).toISOString();
      const fails = { status: 'failed', failure_reason: 'The account is closed.' };
      this.#ends.set(id, this.#scene.fails ? fails : { status: 'succeeded', posted_at });
    }
    return { ...answer, json: { ...(answer.json as object), ...this.#ends.get(id) } };
  }
}

/** A world with one worker and this partner, in which nothing has happened yet. */
export async function openScene(
  postgres: SimulatedPostgres,
  scene: Pick<Scene, 'sick' | 'fails' | 'budget'>,
) {
  const world = new World(seededRandom(1));
  const history = new History(() => world.elapsed);
  await postgres.begin(world);
  const side = new SickPartner(world, scene);
  const known = registration(side);
  const partner: Partner = {
    ...known,
    budget: {
      max_concurrent_calls: 64,
      max_calls_per_second: 1_000,
      call_timeout_ms: 15_000,
      wait_seconds: 0,
      ...scene.budget,
    },
  };
  await postgres.look(
    `INSERT INTO duebridge_platform.partners (partner_id, name, kind, biller_id, base_url, auth_method, auth_public, auth_sealed)
     VALUES ('acme', 'acme', 'biller', 'acme', 'https://partner.example', 'key', '{}', 'x')`,
  );
  const around: Surroundings = {
    world,
    postgres,
    databaseFaults: healthyDatabase(),
    networkFaults: healthyNetwork(),
    history,
    processor: new Processor(world),
    bugs: [],
    partners: new Map([['acme', { partner, side }]]),
  };
  const worker = new WorkerProcess(around, 'worker');
  /** Confirms a payment of one of its accounts. */
  const pay = (account_id: string, cents: number): Promise<boolean> =>
    worker.confirm(confirmOf({ partner_id: 'acme', account_id, cents }, world.now()));
  return { world, history, partner, around, worker, pay };
}

/** How the healthy payments of a scene fared. Ascending; Infinity for a payment that did not get there. */
export type Fared = Awaited<ReturnType<typeof play>>;

/** Plays one scene to its end. */
export async function play(postgres: SimulatedPostgres, scene: Scene) {
  const { count, sickEveryMs, aheadMs = 250, everyMs = 250, seconds = 10 } = scene;
  const { world, history, around, worker, pay } = await openScene(postgres, scene);
  void worker.start();
  await world.run(5_000);
  // The first payment waits for the first share of the budget.
  void pay('well', 1);
  await world.run(5_000);
  const begun = world.elapsed;
  const end = aheadMs + seconds * 1_000;
  for (let made = 0; made < count; made += 1) void pay('sick', SICK_CENTS);
  for (let at = sickEveryMs ?? end; at < end; at += sickEveryMs ?? end) {
    world.after(at, () => void pay('sick', SICK_CENTS));
  }
  for (let at = aheadMs; at < end; at += everyMs)
    world.after(at, () => void pay('well', HEALTHY_CENTS));
  const endedAt = new Map<string, number>();
  const over = world.elapsed + end + 5_000;
  await world.run(aheadMs);
  while (world.elapsed < over) {
    await world.run(LOOK_MS);
    const ended = `SELECT platform_payment_id AS id FROM duebridge_platform.payments WHERE status <> 'processing'`;
    for (const { id } of await postgres.look<{ id: string }>(ended)) {
      if (!endedAt.has(id)) endedAt.set(id, world.elapsed);
    }
  }
  worker.process.kill();
  if (around.bugs.length > 0) throw new Error(around.bugs.join('\n'));

  const isHealthy = new Map<string, boolean>();
  const putAt = new Map<string, number>();
  for (const event of history.events) {
    if (event.kind === 'confirmed') isHealthy.set(event.id, event.cents === HEALTHY_CENTS);
    if (event.kind === 'answered' && !putAt.has(event.id)) putAt.set(event.id, event.at);
  }
  const since = (times: Map<string, number>): number[] =>
    history.events.flatMap((event) =>
      event.kind === 'confirmed' && event.cents === HEALTHY_CENTS
        ? [(times.get(event.id) ?? Infinity) - event.at]
        : [],
    );
  const ascending = (a: number, b: number): number => a - b;
  return {
    /** Milliseconds from the confirm to the end that the customer sees. */
    ends: since(endedAt).toSorted(ascending),
    /** The same times, in the order of the confirms. */
    endsInTurn: since(endedAt),
    /** Milliseconds from the confirm to the partner's answer to the PUT. */
    puts: since(putAt).toSorted(ascending),
    /** Calls for sick payments, by milliseconds after they were confirmed. */
    sickCalls: history.events.flatMap((event) =>
      event.kind === 'sent' && event.at >= begun && isHealthy.get(event.id) === false
        ? [event.at - begun]
        : [],
    ),
  };
}
